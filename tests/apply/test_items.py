"""What became of each change that a plan lists: every state, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuprov.apply.items import After, applied, taken_back
from gpuprov.apply.model import AppliedItem, HostOutcome
from gpuprov.capabilities.base import Change
from gpuprov.plan.items import Key, key
from gpuprov.plan.made import REBOOT, made
from gpuprov.plan.model import Item
from gpuprov.verify.evaluate import Result
from tests.rows import run_each

FILE = Item(capability="mps", kind="file", name="/etc/gpuprov/mps.json", before="absent", after="written")
UNIT = Item(capability="mps", kind="service", name="gpuprov-mps@host.service", before="inactive", after="active")
DRIVER = Item(capability="nvidia_driver", kind="package", name="nvidia-driver", before="570.1-1", after="580.1-1")
BESIDE = Item(capability="nvidia_driver", kind="package", name="libnvidia-cfg1:amd64", after="580.1-1")
HELD = Item(capability="nvidia_driver", kind="hold", name="nvidia-driver", before="not held", after="held")
MODULE = Item(capability="nvidia_driver", kind="module", name="nvidia", before="570.1", after="580.1")
DAEMON = Item(capability="nvidia_driver", kind="client", name="dcgm (nvidia-dcgm.service 7)", after="stopped")
ALL = (FILE, UNIT, DRIVER, BESIDE, HELD, MODULE, DAEMON)
SEEN = {key(one) for one in ALL} - {key(BESIDE), key(DAEMON)}
"""What a reading without the package manager's answer, and without preflight, can list."""


def packages(*rows: str) -> list[Item]:
    return made("nvidia_driver", "gpuprov_packages", {"changed": True, "changes": list(rows)})


def judged(
    planned: Sequence[Item], left: Sequence[Item] | None = (), seen: set[Key] = SEEN, **outcome: Any
) -> list[tuple[str, str, str, str]]:
    """Name, version or state after, what became of it, and why."""
    after = outcome.pop("after", {})
    given = HostOutcome(host="gpu1", **{"state": "changed", **outcome})
    found = None if left is None else After(left=frozenset(map(key, left)), **after)
    return [(one.name, one.after, one.state, one.why) for one in applied(planned, seen, given, found)]


def test_what_a_task_brought_about_is_done() -> None:
    rows = packages("Inst nvidia-driver 580.1-1", "Inst libnvidia-cfg1 580.1-1", "hold nvidia-driver")
    clients = made("nvidia_driver", "clients", {"changed": True, "stopped": ["nvidia-dcgm.service"]})
    files = made("mps", "gpuprov_files", {"changed": True, "paths": [FILE.name], "units": [UNIT.name]})
    changed = ["mps: Write", "nvidia_driver: Install"]
    found = judged(ALL, changed=changed, made=[*rows, *clients, *files])
    assert [(name, state, why) for name, _, state, why in found] == [(one.name, "done", "") for one in ALL]
    assert found[0][1] == "written", "as the plan says it, not as the module does"


def test_the_version_that_came_is_told_where_the_plan_said_another() -> None:
    found = judged((DRIVER, BESIDE), changed=["nvidia_driver: Install"], made=packages("Inst nvidia-driver 580.2-1"))
    assert found == [
        ("nvidia-driver", "580.2-1", "done", "the plan said 580.1-1"),
        ("libnvidia-cfg1:amd64", "580.1-1", "not needed", ""),
    ]


def test_what_was_so_already_was_not_needed() -> None:
    """No task of the capability changed anything; the receipt, which the role of all hosts writes, says nothing."""
    found = judged(ALL, changed=["Write what was applied into the receipt"])
    assert {state for *_, state, _ in found} == {"not needed"}


def test_what_runs_may_come_by_the_reboot_alone() -> None:
    found = judged((FILE, UNIT, DRIVER, MODULE), changed=["Reboot the host"], made=[REBOOT])
    assert [state for *_, state, _ in found] == ["not needed", "done", "not needed", "done"]
    assert made("", "reboot", {"changed": True}) == [REBOOT]


def failing(item: Item, check: str, reboot: str = "") -> Result:
    change = Change(kind=item.kind, name=item.name)
    return Result(host="gpu1", capability=item.capability, check=check, status="fail", changes=(change,), reboot=reboot)


@run_each(
    ("outcome", "left", "why"),
    [
        ({"state": "blocked", "task": "host.clock"}, None, "blocked: host.clock"),
        ({"state": "locked"}, [UNIT], "another run works on the host"),
        ({"state": "not-started"}, [UNIT], "not started"),
        ({"state": "prepared", "changed": ["mps: Fetch"]}, None, "only prepared: apply does it"),
        ({"state": "failed", "task": "mps: Start", "culprit": "mps"}, [UNIT], "failed: mps: Start"),
        ({"state": "failed", "task": "Take the lock"}, [UNIT], "failed: Take the lock"),
        ({"state": "failed", "task": "dcgm: X", "culprit": "dcgm"}, [UNIT], "not reached: dcgm: X came before"),
        ({"after": {"results": [failing(UNIT, "mps.active")]}}, [UNIT], "mps.active fails"),
        (
            {"after": {"results": [failing(UNIT, "mps.active", "a new kernel")]}},
            [UNIT],
            "waits for a reboot: a new kernel",
        ),
        ({}, [UNIT], "it still differs"),
    ],
)
def test_why_something_is_not_done(outcome: dict[str, Any], left: Sequence[Item] | None, why: str) -> None:
    assert judged((UNIT,), left, **{"changed": ["mps: Write"], **outcome}) == [(UNIT.name, "active", "not done", why)]


def test_packages_that_only_the_package_manager_names_are_not_done_while_others_wait_with_them() -> None:
    failed: dict[str, Any] = {"state": "failed", "task": "nvidia_driver: Install", "culprit": "nvidia_driver"}
    found = judged((DRIVER, BESIDE), (DRIVER,), after={"waiting": frozenset(("nvidia_driver",))}, **failed)
    assert [(state, why) for *_, state, why in found] == [("not done", "failed: nvidia_driver: Install")] * 2
    # It failed later, and they are there.
    found = judged((BESIDE,), (), made=packages("Inst libnvidia-cfg1 580.1-1"), **failed)
    assert found == [(BESIDE.name, "580.1-1", "done", "")]


def test_what_no_check_of_verify_can_see_is_not_called_done_after_a_failure() -> None:
    failed: dict[str, Any] = {"state": "failed", "task": "nvidia_driver: Install", "culprit": "nvidia_driver"}
    assert judged((DAEMON,), **failed) == [(DAEMON.name, "stopped", "not done", "failed: nvidia_driver: Install")]


@run_each("state", ["failed", "unreachable"])
def test_nobody_knows_what_became_of_a_host_that_was_not_read_again(state: str) -> None:
    rows = packages("Inst nvidia-driver 580.1-1")
    found = judged((DRIVER, FILE), None, state=state, message="interrupted", changed=["nvidia_driver: I"], made=rows)
    assert [(became, why) for *_, became, why in found] == [
        ("done", ""),
        ("unknown", "the host was not read after the run"),
    ]


def test_what_could_not_be_read_again_is_not_called_done() -> None:
    found = judged((FILE, DRIVER), changed=["mps: Write"], after={"unread": frozenset(("mps",))})
    assert [state for *_, state, _ in found] == ["unknown", "not needed"]


def test_what_the_plan_had_not_foreseen_is_named() -> None:
    rows = packages("release dkms", "Inst dkms 3.0.11", "hold dkms", "complete 580.1")
    files = made("mps", "gpuprov_files", {"results": [{"changed": True, "paths": ["/etc/x"]}, {"paths": ["/etc/y"]}]})
    images = made("kernel", "boot", {"changed": True, "renewed": ["/boot/initrd.img-6.1", "/boot/grub/grub.cfg"]})
    outcome = HostOutcome(host="gpu1", state="changed", changed=["mps: Write"], made=[*rows, *files, *images, REBOOT])
    for shown, state in ((True, "unforeseen"), (False, "done")):
        found = applied((FILE,), SEEN, outcome, After(left=frozenset()), shown=shown)
        assert [(one.name, one.state) for one in found] == [
            (FILE.name, "done"),
            ("dkms", state),
            ("/etc/x", state),
            ("/boot/initrd.img-6.1", state),
        ]


@run_each("answer", [{}, {"changes": ["Inst a 1"]}, {"changed": True, "changes": "Inst a 1"}, {"results": 3}])
def test_an_answer_that_names_nothing_is_no_evidence(answer: dict[str, Any]) -> None:
    assert made("nvidia_driver", "gpuprov_packages", answer) == []
    assert made("nvidia_driver", "gpuprov_packages", {"changed": True, "changes": ["", 7, "remove the older a"]}) == []


def test_a_rollback_takes_back_what_was_done() -> None:
    def one(item: Item, state: Any) -> AppliedItem:
        return AppliedItem(kind=item.kind, name=item.name, capability=item.capability, state=state)

    first = [one(DRIVER, "done"), one(FILE, "not done"), one(UNIT, "done")]
    back = [one(DRIVER, "done"), one(MODULE, "done"), one(FILE, "done"), one(HELD, "not needed")]
    found = taken_back(first, back, "rolled back to one")
    assert [(each.name, each.state, each.why) for each in found] == [
        (DRIVER.name, "taken back", ""),
        (FILE.name, "not done", ""),
        (UNIT.name, "done", ""),
        (MODULE.name, "done", "rolled back to one"),
    ]
