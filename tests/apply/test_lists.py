"""A run's lists: by the plan's own code, before and after, without another login; and how they are told."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuprov.apply import ApplyRun, HostOutcome, Options, as_text, page
from gpuprov.apply.document import build_document
from gpuprov.apply.first_look import first_look
from gpuprov.apply.lists import Lists
from gpuprov.apply.model import AppliedItem
from gpuprov.capabilities.base import Change
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.plan import HostPlan, sentence
from gpuprov.plan.foresee import Foreseen, Text
from gpuprov.plan.made import made
from gpuprov.plan.model import Item
from gpuprov.plan.planning import plans_of
from gpuprov.plan.read import Reading
from gpuprov.resources import Difference, Packages
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.spec.problem import Origin, Path
from gpuprov.verify.evaluate import Result
from gpuprov.verify.unmanaged import Unmanaged
from tests import documents
from tests.rows import run_each

ORIGINS: dict[Path, Origin] = {("kernel",): Origin("gpu.yaml", 5, 9), ("kernel", "sysctl"): Origin("gpu.yaml", 5, 24)}
PAIR = (RawHost(name="gpu1"), HostSpec(name="gpu1", capabilities={"kernel": Kernel()}, origins=ORIGINS))
FACTS = Facts({"receipt": Output(""), "apply_marker": Output(""), "reboot_reasons": Output("")})
SYSCTL = Change(kind="setting", name="sysctl", before="a=1", after="a=2")
TOOLS = Change(kind="package", name="tools", before="1.0", after="2.0")
PROGRAM = Difference("/usr/local/lib/gpuprov/x.py", "absent")
TEXT = Text("/etc/gpuprov/x.conf", "new\n", "another text")
UNKNOWN = Text("/etc/apt/sources.list", "x\n", "")
WANTED = Packages(of="tools", install=("tools=2.0",))
CHANGED = ["kernel: Write", "kernel: Set"]


def result(*changes: Change, moment: Any = "now", status: Any = "fail", **more: Any) -> Result:
    return Result(
        host="gpu1", capability="kernel", check="kernel.sysctl", status=status, changes=changes, moment=moment, **more
    )


def reading(*results: Result, **foreseen: Any) -> Reading:
    return Reading(FACTS, results, foreseen=Foreseen(**foreseen))


BEFORE = reading(
    result(SYSCTL),
    result(TOOLS, moment="preflight", status="pass"),
    files={"kernel": (PROGRAM,)},
    texts={"kernel": (TEXT, UNKNOWN)},
    packages={"kernel": (WANTED,)},
)
GREEN = reading(result(status="pass"), packages={"kernel": ()})


def settled(before: Reading, after: Reading | None, plan: HostPlan | None = None, **outcome: Any) -> HostOutcome:
    options = Options(yes=True, prune=outcome.pop("prune", False))
    lists = Lists([PAIR], options)
    looked = first_look(PAIR, before, options)
    found = msgspec.structs.replace(looked, results=list(after.results) if after else [], **outcome)
    if plan:
        lists.approve({"gpu1": plan})
    lists.settle(found, before, after)
    return found


def told(outcome: HostOutcome) -> list[tuple[str, str, str]]:
    return [(one.name, one.state, one.why) for one in outcome.items]


def test_the_list_is_that_of_the_plan_and_what_differs_no_longer_is_done() -> None:
    (plan,) = plans_of([PAIR], {"gpu1": BEFORE})
    moved = [Item(capability="kernel", kind="package", name="tools", after="2.0")]
    found = settled(BEFORE, GREEN, state="changed", changed=CHANGED, made=moved)
    assert told(found) == [
        ("tools", "done", ""),
        ("sysctl", "done", ""),
        (PROGRAM.path, "done", ""),
        (TEXT.path, "done", ""),
    ]
    assert {(one.kind, one.name) for one in plan.changes} <= {(one.kind, one.name) for one in found.items}
    assert {one.capability for one in found.items} == {"kernel"}
    run = ApplyRun(run="r", hosts=[found], seconds=1)
    assert as_text(run).splitlines()[-1] == "1 host: 1 changed; done: 1 package, 2 files, 1 setting; 1.0 s"
    counted = msgspec.structs.replace(plan, diffs=(Item(kind="file", name="/a"), Item(kind="file", name="/b")))
    assert sentence([counted]) == "1 host: 1 package, 2 files, 1 setting", "the plan counts as apply does"


def test_what_still_differs_is_not_done() -> None:
    after = reading(result(SYSCTL), files={}, texts={"kernel": (TEXT,)}, packages={"kernel": (WANTED,)})
    found = settled(BEFORE, after, state="failed", task="kernel: Set", culprit="kernel", changed=CHANGED[:1])
    assert told(found) == [
        ("tools", "not done", "failed: kernel: Set"),
        ("sysctl", "not done", "failed: kernel: Set"),
        (PROGRAM.path, "done", ""),
        (TEXT.path, "not done", "failed: kernel: Set"),
    ]
    assert found.origin == "gpu.yaml:5:9"
    assert "gpu1: failed: kernel: Set: no (gpu.yaml:5:9)" in as_text(
        ApplyRun(run="r", hosts=[msgspec.structs.replace(found, message="no")])
    )


def test_a_failed_role_names_the_field_that_its_failing_check_proves() -> None:
    after = reading(result(SYSCTL, fields=("sysctl",)), texts={"kernel": (TEXT,)})
    found = settled(BEFORE, after, state="failed", task="kernel: Set", culprit="kernel", changed=CHANGED[:1])
    assert found.origin == "gpu.yaml:5:24"


def test_a_check_that_fails_after_an_apply_ends_with_the_place_that_asked() -> None:
    after = reading(result(SYSCTL, fields=("sysctl",), found="no", expected="yes"))
    found = settled(BEFORE, after, state="changed", changed=CHANGED)
    assert found.places == {"kernel.sysctl": "gpu.yaml:5:24"}
    assert (
        "  fail kernel.sysctl: no; wanted: yes (gpu.yaml:5:24)"
        in as_text(ApplyRun(run="r", hosts=[found])).splitlines()
    )
    clock = Result(host="gpu1", capability="host", check="host.clock", status="fail")
    off = settled(BEFORE, reading(clock), state="changed")
    assert off.places == {}, "the house's own checks are in no spec"


def test_an_approved_plan_is_the_list_that_is_told() -> None:
    """As it was simulated, with what only the package manager knows."""
    rows = (Item(capability="kernel", kind="package", name="libtools", after="2.0"),)
    plan = HostPlan(host="gpu1", run={"kernel": "fails"}, changes=rows)
    found = settled(BEFORE, GREEN, plan, state="changed", changed=CHANGED)
    assert told(found) == [("libtools", "done", "")]
    waits = reading(packages={"kernel": (WANTED,)})
    assert told(settled(BEFORE, waits, plan, state="changed", changed=CHANGED)) == [
        ("libtools", "not done", "it still differs")
    ]


def test_a_host_that_waits_for_a_reboot_says_so_of_what_waits() -> None:
    later = reading(result(SYSCTL, reboot="the old kernel runs"))
    found = settled(BEFORE, later, state="changed", changed=CHANGED)
    assert told(found)[1] == ("sysctl", "not done", "waits for a reboot: the old kernel runs")


def test_a_blocked_host_has_its_list_and_the_place_that_asked() -> None:
    before = msgspec.structs.replace(
        BEFORE, results=(*BEFORE.results, result(moment="preflight", fields=("sysctl",), found="no", expected="yes"))
    )
    options = Options(yes=True)
    outcome = first_look(PAIR, before, options)
    Lists([PAIR], options).settle(outcome, before)
    assert (outcome.state, outcome.origin) == ("blocked", "gpu.yaml:5:24")
    assert {(one.state, one.why) for one in outcome.items} == {("not done", "blocked: kernel.sysctl")}
    lines = as_text(ApplyRun(run="r", hosts=[outcome])).splitlines()
    assert lines[:2] == [
        "gpu1: blocked: kernel.sysctl: no; wanted: yes (gpu.yaml:5:24)",
        "  not done: 1 package, 2 files, 1 setting (-v lists them)",
    ]
    assert "    ~ sysctl: a=1 -> a=2" in as_text(ApplyRun(run="r", hosts=[outcome]), verbose=True)


def test_a_setting_is_put_back_where_the_host_says_so() -> None:
    """Another one, which the receipt lists no longer either, was changed by others."""
    left = tuple(
        Unmanaged(capability="kernel", kind="setting", name=name, value="1", before="60")
        for name in ("vm.swappiness", "vm.dirty_ratio")
    )
    values = {"files": {}, "units": [], "holds": [], "busy": False, "forgotten": [], "settings": ["x", "y"]}
    before = reading(result(status="pass"), unmanaged=left, prune=values)
    done = made("", "settings", {"changed": True, "restored": ["vm.swappiness"]})
    found = settled(before, GREEN, prune=True, state="changed", changed=["host: Put back"], made=done)
    assert [(one.name, one.before, one.after, one.state) for one in found.items] == [
        ("vm.swappiness", "1", "60", "done"),
        ("vm.dirty_ratio", "1", "60", "not needed"),
    ]


def test_what_prune_takes_away_is_listed_and_done() -> None:
    old = Unmanaged(capability="mps", kind="file", name="/etc/gpuprov/mps.json")
    before = reading(result(SYSCTL), unmanaged=(old,), prune=PRUNES)
    kept = reading(result(status="pass"), unmanaged=(old,), prune=PRUNES)
    for after, state in ((GREEN, "done"), (kept, "not done")):
        found = settled(before, after, prune=True, state="changed", changed=["Switch off units", *CHANGED])
        assert [(one.capability, one.name, one.state) for one in found.items if one.kind == "file"] == [
            ("host", old.name, state)
        ]


PRUNES: dict[str, Any] = {
    "files": {"/etc/gpuprov/mps.json": "0"},
    "units": [],
    "holds": [],
    "forgotten": ["mps"],
    "busy": False,
}


@run_each("state", ["unchanged", "changed"])
def test_a_host_with_nothing_to_do_has_no_list(state: Any) -> None:
    options = Options(yes=True)
    outcome = HostOutcome(host="gpu1", state=state)
    lists = Lists([PAIR], options)
    lists.settle_rest({"gpu1": outcome}, {})
    assert outcome.items == []
    lists.approve({"gpu1": HostPlan(host="gpu1")})
    lists.settle(outcome, GREEN, GREEN)
    assert outcome.items == []


def test_a_defect_in_a_list_costs_no_apply() -> None:
    lists = Lists([PAIR], Options(yes=True))
    lists.approve({"gpu1": HostPlan(host="gpu1", run={"kernel": "x"}, mig=(3,))})  # type: ignore[arg-type]
    outcome = HostOutcome(host="gpu1", state="changed", ran={"kernel": "x"})
    lists.settle(outcome, BEFORE, GREEN)
    assert outcome.items == []
    assert "the list of what was applied" in outcome.warnings[0]


# ---- how it is told ----


def item(name: str, state: Any = "done", why: str = "", kind: Any = "package", **more: Any) -> AppliedItem:
    return AppliedItem(capability="kernel", kind=kind, name=name, state=state, why=why, **more)


def outcome(host: str, *items: AppliedItem, **more: Any) -> HostOutcome:
    return HostOutcome(
        host=host, state="changed", changed=CHANGED, items=[*items], results=[result(status="pass")], **more
    )


SAME = (
    item("a", before="1", after="2"),
    item("b", before="1", after="2"),
    item("c", before="1", after="2.1", why="the plan said 2"),
    item("/etc/x", kind="file", before="another text", after="written", diff="--- before\n+++ after\n-old\n+new"),
    item("nvidia-persistenced.service", "not needed", kind="service", before="inactive", after="active"),
    item("d", "unforeseen", after="3"),
)


def test_hosts_with_the_same_list_are_told_once_and_others_apart() -> None:
    hosts = [outcome("gpu1", *SAME), outcome("gpu2", *SAME), outcome("gpu3", *SAME[:-1])]
    text = as_text(ApplyRun(run="r", hosts=hosts, seconds=1))
    assert text.splitlines() == [
        "gpu1, gpu2 (2 hosts): changed (2 tasks), verify is green",
        "  kernel: done",
        "    ~ 1 -> 2: a, b",
        "    ~ /etc/x: another text -> written",
        "  kernel: done (the plan said 2)",
        "    ~ 1 -> 2.1: c",
        "  kernel: not needed",
        "    ~ nvidia-persistenced.service: inactive -> active",
        "  kernel: also done",
        "    + 3: d",
        "gpu3: changed (2 tasks), verify is green",
        *("  kernel: done", "    ~ 1 -> 2: a, b", "    ~ /etc/x: another text -> written"),
        *("  kernel: done (the plan said 2)", "    ~ 1 -> 2.1: c"),
        *("  kernel: not needed", "    ~ nvidia-persistenced.service: inactive -> active"),
        "3 hosts: 3 changed; done: 3 to 4 packages, 1 file; 3 not needed; 1.0 s",
    ]
    assert "kernel: Write" not in text, "tasks are told with -v"
    verbose = as_text(ApplyRun(run="r", hosts=hosts), verbose=True)
    assert "    diff of /etc/x\n      --- before\n      +++ after\n      -old\n      +new\n" in verbose
    assert "  changed kernel: Write\n" in verbose


def test_process_ids_do_not_keep_hosts_apart() -> None:
    hosts = [
        outcome(f"gpu{n}", item(f"dcgm (nvidia-dcgm.service {n})", kind="client", after="stopped")) for n in (1, 2)
    ]
    assert as_text(ApplyRun(run="r", hosts=hosts)).splitlines()[:3] == [
        "gpu1, gpu2 (2 hosts): changed (2 tasks), verify is green",
        "  kernel: done",
        "    - dcgm (nvidia-dcgm.service): stopped",
    ]


def test_the_page_shows_the_list_and_folds_the_tasks() -> None:
    hosts = [outcome("gpu1", *SAME), msgspec.structs.replace(outcome("gpu2", *SAME), changed=CHANGED[:1])]
    text = page.render(ApplyRun(run="r", hosts=hosts))
    part = text[text.index("<h2>What changed</h2>") : text.index("Verify, after it")]
    assert part.count('<details class="card') == 1, "both hosts in one card, although their tasks differ"
    assert '<h3>kernel <span class="own right">done (the plan said 2)</span></h3>' in part
    assert '<li class="change"><b>~</b> 2 packages: 1 \u2192 2: a, b</li>' in part
    assert '<details class="diff"><summary><code>/etc/x</code> <span class="add">+1</span>' in part
    tasks = part[part.index('<details class="tasks">') :]
    assert tasks.count("<li>Write</li>") == 2
    assert tasks.count("<li>Set</li>") == 1
    assert '<p class="who">gpu2</p>' in tasks
    assert "<li>Write</li>" not in part[: part.index('<details class="tasks">')]
    assert ".signs li {" in text


def test_the_page_of_a_run_that_only_prepares() -> None:
    """What verify has found before it is not a failure of the run."""
    found = settled(BEFORE, None, state="prepared", changed=["kernel: Fetch"])
    found.results = list(BEFORE.results)
    text = page.render(ApplyRun(run="r", act="prepare", hosts=[found]))
    assert "Prepared: nothing in service was changed" in text
    assert '<span class="own fail">not done (only prepared: apply does it)</span>' in text
    assert "<h2>Not done</h2>" not in text


def test_the_page_escapes_what_a_list_says() -> None:
    evil = "<script>alert(1)</script>"
    text = page.render(ApplyRun(run="r", hosts=[outcome("gpu1", item(evil, why=evil, kind="file", diff=f"+{evil}"))]))
    assert evil not in text


def test_json_has_each_item_with_what_became_of_it() -> None:
    red = HostOutcome(host="gpu2", state="failed", task="kernel: Set", origin="gpu.yaml:5:24")
    read = documents.read_document(build_document(ApplyRun(run="r", hosts=[outcome("gpu1", *SAME), red])))
    assert read["hosts"][0]["items"][2] == {
        "capability": "kernel",
        "kind": "package",
        "name": "c",
        "before": "1",
        "after": "2.1",
        "diff": "",
        "state": "done",
        "why": "the plan said 2",
    }
    assert read["hosts"][0]["changed"] == CHANGED
    assert (read["hosts"][1]["items"], read["hosts"][1]["origin"]) == ([], "gpu.yaml:5:24")
    assert read["summary"]["sentence"].endswith("; done: 4 packages, 1 file; 1 not needed")
