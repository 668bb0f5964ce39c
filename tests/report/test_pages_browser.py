"""The pages of accept, plan, apply and rehearse in a real browser: mouse, keys, contrast, no error, hostile texts that
stay texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprov.accept.model import Outcome
from gpuprov.accept.page import page as accept_page
from gpuprov.apply import ApplyRun, HostOutcome
from gpuprov.apply.model import AppliedItem, Lap
from gpuprov.apply.page import render as apply_page
from gpuprov.plan import HostPlan
from gpuprov.plan import page as plan_page
from gpuprov.rehearse import Rehearsal, Rehearsed, Seen, Step
from gpuprov.rehearse.model import ACTS
from gpuprov.rehearse.page import render_page as rehearse_page
from gpuprov.report.fleet import Known
from gpuprov.report.page import About
from gpuprov.simulate.description import Description
from gpuprov.simulate.waivers import Judged, Waived
from gpuprov.verify.evaluate import Result
from tests.accept.fleet import Fleet, bandwidth, data, facts, run
from tests.plan.test_page import CUT, FULL
from tests.plan.test_summary import IDLE, JOB, ROOT
from tests.report.browser import Browser
from tests.report.test_browser import CHROMIUM, CONTRAST, EVIL, one

pytestmark = [
    pytest.mark.install,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which is not installed"),
]
ABOUT = About(
    at="2026-01-31 12:00 UTC", inventory="site.yaml", command="gpuprov it site.yaml --html page.html " + "x" * 300
)
LINES = (
    "[...document.querySelectorAll('.about dt')].map((e) => { const all = document.createRange(); "
    "all.selectNodeContents(e); return new Set([...all.getClientRects()].map((one) => Math.round(one.top))).size; })"
)
SCREENS = [(390, False), (390, True), (1920, False), (1920, True)]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(str(CHROMIUM), tmp_path_factory.mktemp("profile")) as started:
        yield started


def opened(browser: Browser, folder: Path, text: str, width: int = 1400, *, dark: bool = False) -> Browser:
    file = folder / "page.html"
    file.write_text(text, encoding="utf-8")
    browser.said.clear()
    browser.open(file, width=width, dark=dark)
    return browser


def readable(page: Browser) -> None:
    """Nothing is cut off at the side, every text has contrast, with all that is folded opened, too."""
    page.ask("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    assert page.ask("document.documentElement.scrollWidth <= innerWidth")
    assert set(page.ask(LINES)) == {1}, "a label that is broken"
    assert page.ask(CONTRAST) == [], "contrast under 4.5"
    broken = (
        "[...document.querySelectorAll('.one')].filter((e) => e.getClientRects().length > 1).map((e) => e.textContent)"
    )
    assert page.ask(broken) == [], "an option in two pieces"
    assert "--html" in page.ask("[...document.querySelectorAll('.about .one')].map((e) => e.textContent)")
    assert page.said == []


def harmless(page: Browser, scripts: int = 2) -> None:
    """Nothing of a hostile text has become a part of the page."""
    assert "owned" not in page.ask("document.title").partition("<img")[0]
    assert page.ask("[...document.images].every((e) => e.src.startsWith('data:image/svg+xml'))")
    assert page.ask("document.querySelectorAll('script').length") == scripts
    assert "\\\\u202e" in json.dumps(page.ask("document.documentElement.innerText")), "what hides is spelled out"
    assert not {"\u202e", "\u2028", "\x1b"} & set(page.ask("document.documentElement.textContent"))
    assert page.said == []


# ---- accept
# ----------------------------------------------------------------------------------------------------------------------
def accepted(count: int = 6) -> Outcome:
    """One host is slow with all, one path has no figure, one host cannot be reached."""
    fleet = Fleet(ib_write_bw=bandwidth(391.2), ibping=data("ibping"))
    for other in range(1, count + 1):
        fleet.pairs["gpu3", f"10.0.0.{other}"] = fleet.pairs[f"gpu{other}", "10.0.0.3"] = bandwidth(196.1)
    fleet.pairs["gpu1", "10.0.0.2"] = "Couldn't connect\n"
    return run(fleet, count, found={f"gpu{n}": facts(n) for n in range(1, count)})


def test_a_cell_tells_its_figures_by_mouse_and_by_keys(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, accept_page(accepted(), ABOUT))
    assert "gpu3 is slow with all" in page.shows("#outliers")
    cells = page.ask("[...document.querySelectorAll('td .cell')].map((e) => e.className.split(' ')[1])")
    assert set(cells) == {"far", "met", "none", "same"}
    page.click(".map td .cell.far")
    told = page.shows(".cell-told")
    assert "196" in told
    assert "at least 390 Gb/s" in told
    assert "ib_write_bw" in told, "the command that shows it"
    page.key("Escape")
    assert page.ask("document.querySelector('.cell-told').hidden")
    before = page.ask("document.activeElement.getAttribute('aria-label')")
    page.key("ArrowRight")
    page.key("ArrowDown")
    after = page.ask("document.activeElement.getAttribute('aria-label')")
    assert after != before
    assert after.startswith("gpu")
    page.key("Enter")
    assert page.shows(".cell-told h3") == after
    stops = page.ask("document.querySelector('.map').querySelectorAll('button.cell[tabindex=\"0\"]').length")
    assert stops == 1, "one stop for Tab"


def test_the_map_says_everything_without_colour(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, accept_page(accepted(), ABOUT))
    texts = page.ask("[...document.querySelectorAll('td .cell.far')].map((e) => e.textContent)")
    assert texts
    assert all(one.endswith("!!") for one in texts)
    assert page.ask("[...document.querySelectorAll('td .cell.none')].every((e) => e.textContent === 'none')")
    legend = page.shows(".legend")
    assert "met: 390 Gb/s or more" in legend
    corner = page.shows(".scroll th")
    assert "sends" in corner
    assert "receives" in corner


def test_the_search_of_an_acceptance(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, accept_page(accepted(), ABOUT))
    page.key("/")
    page.type("gpu3 slow")
    page.key("Enter")
    assert page.shows("#hits").startswith("1 found")
    page.key("Escape")
    assert page.ask("document.querySelectorAll('[data-item][hidden]').length") == 0


@pytest.mark.parametrize(("width", "dark"), SCREENS)
def test_an_acceptance_can_be_read(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    page = opened(browser, tmp_path, accept_page(accepted(), ABOUT), width, dark=dark)
    page.click(".map td .cell.far")
    readable(page)


def test_hostile_texts_in_an_acceptance(browser: Browser, tmp_path: Path) -> None:
    from msgspec.structs import replace

    def evil(text: str) -> str:
        return EVIL if text.startswith("gpu") else text

    outcome = accepted()
    outcome.hosts = tuple(f"{EVIL}{n}" for n, _ in enumerate(outcome.hosts))
    names = {f"gpu{n + 1}": name for n, name in enumerate(outcome.hosts)}
    outcome.findings = [
        replace(
            one, host=names[one.host], found=EVIL, expected=EVIL, fix=EVIL, evidence=EVIL, check=f"acceptance.{EVIL}",
            measurement=one.measurement and replace(one.measurement, peer=names.get(one.measurement.peer, ""),
                                                    detail=EVIL),
        )
        for one in outcome.findings
    ]  # fmt: skip
    outcome.notes, outcome.run = [EVIL], EVIL
    page = opened(browser, tmp_path, accept_page(outcome, About(at=EVIL, inventory=EVIL, command=EVIL)))
    page.click(".map td .cell.far")
    harmless(page)


# ---- plan
# ------------------------------------------------------------------------------------------------------------------------
def planned() -> str:
    plans = [
        *(msgspec.structs.replace(FULL, host=f"gpu{n:03}") for n in range(1, 13)),
        msgspec.structs.replace(FULL, host="busy", blocked=(JOB,)),
        msgspec.structs.replace(FULL, host="root", blocked=(ROOT,)),
        HostPlan(host="away", unreachable="no route to host"),
    ]
    return plan_page.render(plans, ABOUT, "gpuprov apply friday.plan")


def test_a_plan_by_mouse_and_by_keys(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, planned())
    assert "gpu[001:012]" in page.shows("#changes")
    assert "\u2192" in page.shows("h1")
    reboots = page.ask("[...document.querySelectorAll('#reboots article')].map((e) => e.innerText)")
    assert [("no longer blocked" in told) for told in reboots] == ["busy" in told or "root" in told for told in reboots]
    spots = page.ask(
        "[...document.querySelectorAll('#changes .group[open]')].map((e) => [e.querySelector('summary'),"
        " e.querySelector('.actions')].map((one) => one.getBoundingClientRect().top))"
    )
    assert all(abs(one - other) < 12 for one, other in spots), "show and copy on one line"
    shown = page.ask("document.querySelector('#changes details').open")
    page.click("#changes details > summary")
    assert page.ask("document.querySelector('#changes details').open") is not shown
    page.key("/")
    page.type("gpu007")
    page.key("Enter")
    assert "found" in page.shows("#hits")
    assert page.ask("[...document.querySelectorAll('#hosts .host .who')].map((e) => e.textContent)") == ["gpu007"]
    page.key("Escape")
    assert page.ask("document.querySelectorAll('[data-item][hidden]').length") == 0
    page.ask("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.click(".do .copy")
    page.wait("window.copied")
    assert page.ask("window.copied") == "gpuprov apply friday.plan"
    page.click("#reboots .copy")
    page.wait("window.copied.startsWith('--limit')")
    assert page.said == []


def test_many_hosts_of_a_plan_are_folded_until_they_are_searched(browser: Browser, tmp_path: Path) -> None:
    plans = [msgspec.structs.replace(FULL, host=f"gpu{n:05}") for n in range(1000)]
    page = opened(browser, tmp_path, plan_page.render(plans, ABOUT, "gpuprov apply friday.plan"))
    assert page.ask("document.documentElement.scrollHeight") < 4000
    assert "gpu00200 to gpu00399" in page.shows("#hosts")
    page.key("/")
    page.type("gpu00257")
    page.key("Enter")
    page.wait("document.querySelectorAll('#hosts .some[open]').length === 1")
    assert page.ask("[...document.querySelectorAll('#hosts .host')].filter((e) => e.checkVisibility()).length") == 1
    page.key("Escape")
    assert page.ask("document.querySelectorAll('.some[open], .some[hidden]').length") == 0
    page.key("/")
    page.type("gpu00")
    page.wait("document.getElementById('hits').textContent.includes('1,00')")
    assert page.ask(
        "document.querySelectorAll('.some').length === 5 && document.querySelectorAll('.some[open]').length === 1"
    )
    page.key("Escape")
    page.click(".some:nth-of-type(2) > summary")
    page.wait("document.querySelectorAll('.some .host').length === 200")
    assert page.ask("document.querySelectorAll('.some .host dl').length") == 0, "drawn when it is opened"
    page.click(".some .host > summary")
    page.wait("document.querySelector('.some .host dl') !== null")
    page.ask("document.querySelector('#changes .group').open = false")
    page.click(".some .host a")
    assert page.ask("document.querySelector('#changes .group').open")
    assert page.said == []


def test_a_plan_of_ten_thousand_hosts_opens_in_less_than_a_second_of_the_processor(
    browser: Browser, tmp_path: Path
) -> None:
    """As benchmarks/page_open.py measures it; with a page that names each host's last apply, and two plans of scattered
    hosts."""
    plans = [
        msgspec.structs.replace(FULL if n % 3 else IDLE, host=f"gpu{n:05}", last_apply=f"run {n}")
        for n in range(10_000)
    ]
    text = plan_page.render(plans, ABOUT, "gpuprov apply friday.plan")
    assert len(text) < 20_000_000
    page = opened(browser, tmp_path, text)
    assert 0 < page.cost(tmp_path / "page.html") < 1.0
    page.key("/")
    page.type("9999")
    page.wait("document.querySelectorAll('#hosts .host').length === 1")
    assert "1 found" in page.shows("#hits")


@pytest.mark.parametrize(("width", "dark"), SCREENS)
def test_a_plan_can_be_read(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    readable(opened(browser, tmp_path, planned(), width, dark=dark))


def test_hostile_texts_in_a_plan(browser: Browser, tmp_path: Path) -> None:
    job = msgspec.structs.replace(JOB, found=EVIL, fix=EVIL, expected=EVIL, evidence=EVIL)
    cut = msgspec.structs.replace(CUT, gpu=EVIL, model=EVIL)
    plan = msgspec.structs.replace(
        FULL, host=EVIL, run={EVIL: EVIL}, mig=(cut,), reboot_reasons=(EVIL,), versions={EVIL: EVIL},
        unpredicted=(EVIL,),
    )  # fmt: skip
    plans = [
        plan,
        msgspec.structs.replace(plan, host=f"{EVIL}2", blocked=(job,)),
        HostPlan(host=f"{EVIL}3", unreachable=EVIL),
    ]
    page = opened(browser, tmp_path, plan_page.render(plans, About(inventory=EVIL, command=EVIL), EVIL))
    page.ask("document.querySelectorAll('#hosts .host').forEach((e) => { e.open = true; })")
    page.key("/")
    page.type("img")
    page.key("Enter")
    harmless(page)


# ---- rehearse
# --------------------------------------------------------------------------------------------------------------------
def rehearsed(text: str = "") -> Rehearsed:
    """One that is green, and one whose apply failed."""
    seen = Seen(
        packages=tuple(f"{text or 'libnvidia'}-{n}: 535.1" for n in range(30)),
        files=(f"{text or '/etc/x'}: new",),
        reboot=text or "would reboot once: the driver",
        clients=(text or "dcgm",),
    )
    good = Rehearsal(
        name=f"{text}re-1",
        hosts=tuple(f"{text}gpu{n:03}" for n in range(1, 5)),
        description=Description(),
        notes=(text or "repositories: distribution, nvidia",),
        left_out=(text or "rdma: fabric efa",),
        steps=[Step(name=act, verdict="ok", seconds=3.0, told=text or "18 passed") for act in ACTS],
        seen=seen,
        judged=Judged(
            proved=("a.b",),
            waived=(
                Waived(
                    host="re-1",
                    check="nvidia_driver.loaded",
                    status="skip",
                    found="-",
                    reason=text or "no silicon here",
                ),
            ),
        ),
        results=[
            one(f"{text}re-1", "nvidia_driver.packages", found=text),
            one(f"{text}re-1", "nvidia_driver.loaded", "skip", found="-"),
        ],
    )
    bad = Rehearsal(
        name=f"{text}re-2",
        hosts=(f"{text}inf1",),
        description=Description(),
        steps=[
            Step(name="bring up", verdict="ok", seconds=9.0, told="answers ssh"),
            Step(
                name="apply",
                verdict="failed",
                seconds=4.0,
                told=text or "failed: kernel: Write: no space",
                details=(text or "fix: make some",),
            ),
        ],
    )
    return Rehearsed(run=text or "r", rehearsals=[good, bad], seconds=321)


def test_a_rehearsal_shows_acts_changes_and_what_was_real(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, rehearse_page(rehearsed(), ABOUT))
    assert page.shows("h1") == "The rehearsal is not green for inf1: apply failed"
    told = page.shows("main")
    for words in (
        *ACTS,
        "would reboot once",
        "Unknown: apply did not succeed",
        "What it ran on",
        "simulated",
        "no space",
    ):
        assert words in told, words
    assert "libnvidia-7" not in told
    assert page.shows(".outcome h2").startswith("inf1"), "what failed comes first"
    assert "0 checks" not in told
    page.click(".outcome + .outcome details summary")
    assert "libnvidia-7" in page.shows("main")
    assert page.ask("document.querySelector('.cause [data-copy^=\"--limit\"]').dataset.copy") == "--limit inf1", (
        "the real host"
    )
    assert page.ask("[...document.querySelectorAll('.acts .tag')].every((e) => e.textContent && e.title)"), (
        "without a colour, too"
    )
    page.key("/")
    page.type("no space")
    page.key("Enter")
    assert page.ask("document.querySelectorAll('.outcome:not([hidden])').length") == 1
    page.key("Escape")
    page.key("Escape")
    assert page.ask("document.querySelectorAll('.outcome:not([hidden])').length") == 2
    assert page.said == []


@pytest.mark.parametrize(("width", "dark"), SCREENS)
def test_a_rehearsal_can_be_read(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    readable(opened(browser, tmp_path, rehearse_page(rehearsed(), ABOUT), width, dark=dark))


def test_hostile_texts_in_a_rehearsal(browser: Browser, tmp_path: Path) -> None:
    harmless(opened(browser, tmp_path, rehearse_page(rehearsed(EVIL), About(at=EVIL, inventory=EVIL, command=EVIL))))


# ---- apply
# -----------------------------------------------------------------------------------------------------------------------
def applied(text: str = "") -> str:
    green = Result(host="", capability="kernel", check="kernel.sysctl", status="pass", found="right")
    later = msgspec.structs.replace(
        green, check="kernel.command_line", status="fail", reboot=text or "iommu=pt", moment="next-boot"
    )
    tasks = [f"kernel: {text or 'Write'} {n}" for n in range(8)] + ["nvidia_driver: Install the set"]

    def outcome(host: str, *rows: Result, **more: Any) -> HostOutcome:
        return HostOutcome(host=host, results=[msgspec.structs.replace(row, host=host) for row in rows], **more)

    items = [
        AppliedItem(
            capability="kernel",
            kind="file",
            name=text or "/etc/sysctl.d/gpuprov.conf",
            before=text or "another text",
            after="written",
            diff=f"-{text or 'old'}\n+new",
            state="done",
            why=text,
        )
    ]
    hosts = [
        outcome(f"{text}gpu{n}", green, state="changed", changed=tasks, items=items, ran={"kernel": text or "sysctl"})
        for n in range(1, 9)
    ]
    hosts += [
        outcome(f"{text}wait{n}", green, later, state="changed", changed=tasks[:1], ran={"kernel": "x"}) for n in (1, 2)
    ]
    hosts += [
        outcome(
            f"{text}bad",
            state="failed",
            task="kernel: Write",
            message=text or "no space left",
            fix=text or "make some",
        )
    ]
    hosts += [
        outcome(f"{text}away", state="unreachable", message=text or "no route"),
        outcome(f"{text}idle", green, skipped={"kernel": "matches"}),
    ]
    acts = [
        Lap(name="Act 1, preflight - lock, judge", hosts=11, seconds=3.2),
        Lap(name="Act 2, install", hosts=11, seconds=61),
    ]
    run = ApplyRun(run="r", hosts=hosts, seconds=70, acts=acts, stopped=text or "1 failed, --max-fail is 0")
    return apply_page(
        run,
        About(at=text, inventory=text, command=text) if text else ABOUT,
        {one.host: Known(groups=("all", "rack1")) for one in hosts},
    )


def test_an_apply_says_what_was_not_done_what_waits_and_what_changed(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, applied())
    assert page.shows("h1") == "bad, away are not as their specs say"
    titles = page.ask(
        "[...document.querySelectorAll('main h2')].filter((e) => e.checkVisibility()).map((e) => e.textContent)"
    )
    assert titles[:5] == ["Not done", "Waits for a reboot", "Acts", "What changed", "Verify, after it"]
    told = page.shows("main")
    for words in (
        "no space left",
        "make some",
        "iommu=pt",
        "gpuprov apply --reboot",
        "61.0 s",
        "/etc/sysctl.d/gpuprov.conf",
        "gpu[1:8]",
    ):
        assert words in told, words
    page.ask("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.click(".boot .copy")
    page.wait("window.copied")
    assert page.ask("window.copied") == "--limit wait1,wait2"
    page.click("#grid .square[title^='bad']")
    assert "no space left" in page.shows("#host")
    page.key("Escape")
    page.key("/")
    page.type("iommu")
    page.key("Enter")
    assert page.shows("#host h2") == "wait1"
    page.key("Escape")
    page.key("Escape")
    assert page.ask("document.querySelectorAll('[data-item][hidden]').length") == 0
    assert page.said == []


@pytest.mark.parametrize(("width", "dark"), SCREENS)
def test_an_apply_can_be_read(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    readable(opened(browser, tmp_path, applied(), width, dark=dark))


def test_hostile_texts_in_an_apply(browser: Browser, tmp_path: Path) -> None:
    harmless(opened(browser, tmp_path, applied(EVIL)))
