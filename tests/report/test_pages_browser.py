"""The pages of accept, plan, apply and rehearse in a real browser: mouse, keys, contrast, no error, hostile texts that stay texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuprov.accept.model import Outcome
from gpuprov.accept.page import page as accept_page
from gpuprov.report.page import About
from tests.accept.fleet import Fleet, bandwidth, data, facts, run
from tests.report.browser import Browser
from tests.report.test_browser import CHROMIUM, CONTRAST, EVIL

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which is not installed")
ABOUT = About(
    at="2026-01-31 12:00 UTC", inventory="site.yaml", command="gpuprov it site.yaml --html page.html " + "x" * 300
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
    assert page.ask(CONTRAST) == [], "contrast under 4.5"
    assert page.said == []


def harmless(page: Browser) -> None:
    """Nothing of a hostile text has become a part of the page."""
    assert "owned" not in page.ask("document.title").partition("<img")[0]
    assert page.ask("[...document.images].every((e) => e.src.startsWith('data:image/svg+xml'))")
    assert page.ask("document.querySelectorAll('script').length") == 2
    assert "\\\\u202e" in json.dumps(page.ask("document.documentElement.innerText")), "what hides is spelled out"
    assert not {"\u202e", "\u2028", "\x1b"} & set(page.ask("document.documentElement.textContent"))
    assert page.said == []


# ---- accept ----------------------------------------------------------------------------------------------------------------------
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
    assert "as wanted: 390 Gb/s or more" in legend
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
            one, host=names[one.host], found=EVIL, wanted=EVIL, hint=EVIL, evidence=EVIL, check=f"acceptance.{EVIL}",
            measurement=one.measurement and replace(one.measurement, peer=names.get(one.measurement.peer, ""), detail=EVIL),
        )
        for one in outcome.findings
    ]  # fmt: skip
    outcome.notes, outcome.run = [EVIL], EVIL
    page = opened(browser, tmp_path, accept_page(outcome, About(at=EVIL, inventory=EVIL, command=EVIL)))
    page.click(".map td .cell.far")
    harmless(page)
