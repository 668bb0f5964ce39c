"""One host: reset, health, reboot, health, or given up."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.fleet.drain import State, Step
from gpuprov.host_code import process
from gpuprov.repair import chain
from gpuprov.repair.chain import Chain
from gpuprov.repair.hosts import Answer
from gpuprov.repair.model import HostRepair, Options
from gpuprov.verify.evaluate import Result
from tests.repair.fake_hosts import OPTIONS, FakeDrains, FakeHost, FakeHosts, finding, plan

REFUSED = {"reset": Answer(problem="nvidia-smi --gpu-reset: GPU 0 is in use")}
UNREAD = Result(host="gpu1", capability="health", check="health.kernel_log", status="skip", found="begins late")
ASKED_UNREAD = Result(host="gpu1", capability="health", check="health.recovery", status="error", found="no output")
GONE = Result(host="gpu1", capability="host", check="host.reachable", status="unreachable", found="no route")
NOT_SET_UP = Result(host="gpu1", capability="mig", check="mig.instances", status="fail", found="none")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "SETTLING", {"reset": 0.0, "reboot": 0.0})


def repair(
    host: FakeHost, drains: FakeDrains | None = None, options: Options = OPTIONS, **more: Any
) -> tuple[HostRepair, FakeHosts]:
    hosts = FakeHosts({"gpu1": host})
    chosen: Any = drains or FakeDrains(step("done"))
    return Chain(plan(**more), hosts, chosen, options).run(), hosts


ROWS: list[tuple[str, FakeHost, Options, str, str]] = [
    # what it is; the host; options; its state; what was asked
    ("a reset repairs it", FakeHost(), OPTIONS, "repaired", "take reset note-repaired release"),
    ("only a boot does", FakeHost(ends="reboot"), OPTIONS, "repaired", "take reset reboot seen note-repaired release"),
    ("the driver refuses the reset", FakeHost(ends="reboot", answers=REFUSED), OPTIONS, "repaired",
     "take reset reboot seen note-repaired release"),
    ("nothing does", FakeHost(ends=""), OPTIONS, "given up", "take reset reboot seen note-given-up release"),
        ("it does not come back", FakeHost(ends="", comes_back=False), OPTIONS, "given up",
     "take reset reboot seen note-given-up release"),
    ("a process came in between", FakeHost(ends="", answers={"reset": Answer(holders=("python3",))}), OPTIONS,
     "refused",
     "take reset release"),
    ("one came before the reboot", FakeHost(ends="", answers={"reboot": Answer(holders=("python3",))}), OPTIONS,
     "refused",
     "take reset reboot release"),
    ("a process holds a GPU", FakeHost(answers={"take": Answer(holders=("python3 (pid 7, kim)",))}), OPTIONS, "refused",
     "take"),
    ("no root", FakeHost(answers={"take": Answer(problem="repair needs root")}), OPTIONS, "refused", "take"),
    ("it cannot be reached", FakeHost(answers={"take": Answer(problem="no route", silent=True)}), OPTIONS,
     "unreachable", "take"),
    ("another run has it", FakeHost(answers={"take": Answer(locked={"holder": None, "id": "x"})}), OPTIONS, "locked",
     "take"),
    ("its lock is lost midway", FakeHost(answers={"reset": Answer(problem="another run", lost=True)}), OPTIONS,
     "locked",
     "take reset release"),
    ("MIG does not come back", FakeHost(after=(NOT_SET_UP,)), OPTIONS, "differs", "take reset note-repaired release"),
    ("the rest is not proven", FakeHost(after=(UNREAD,)), OPTIONS, "not proven", "take reset note-repaired release"),
    ("it is gone after the reset", FakeHost(after=(GONE,)), OPTIONS, "given up", "take reset note-given-up release"),
    ("it then asks for hands", FakeHost(ends="", later="drain"), OPTIONS, "given up",
     "take reset note-given-up release"),
    ("it is well by then", FakeHost(well=True), OPTIONS, "fit", "take release"),
    ("it asks for hands by then", FakeHost(action="drain"), OPTIONS, "refused", "take release"),
    ("the reset is done and not answered", FakeHost(answers={"reset": Answer(problem="cut off", silent=True)}), OPTIONS,
     "repaired", "take reset note-repaired release"),
    ("health cannot be read after it", FakeHost(after=(ASKED_UNREAD,)), OPTIONS, "not proven", "take reset release"),
]  # fmt: skip


@pytest.mark.parametrize(("host", "options", "state", "calls"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_acts_and_their_end(host: FakeHost, options: Options, state: str, calls: str) -> None:
    outcome, hosts = repair(host, options=options)
    acts = [act.replace(" ", "-") for act in hosts.calls]
    assert (outcome.state, " ".join(dict.fromkeys(acts))) == (state, calls)
    assert bool(outcome.left) == (state in ("given up", "differs") and GONE not in host.after)
    assert [tried.act for tried in outcome.tries] == [act for act in ("reset", "reboot") if act in hosts.calls]


def test_a_reboot_that_is_not_permitted_is_not_made() -> None:
    outcome, hosts = repair(FakeHost(ends="reboot"), reboot=False)
    assert (outcome.state, [tried.act for tried in outcome.tries]) == ("given up", ["reset"])
    assert "reboot" not in hosts.calls


def test_a_host_that_only_a_reboot_repairs_is_not_reset() -> None:
    outcome, hosts = repair(
        FakeHost(ends="reboot", action="reboot"), step="reboot", findings=(finding("gpu1", "reboot"),)
    )
    assert outcome.state == "repaired"
    assert "reset" not in hosts.calls


def test_a_dead_run_s_lock_is_taken_over() -> None:
    dead = {**process.describe("old", ""), "pid": 2**22 + 1, "pid_start": "1"}
    host = FakeHost(answers={"take": Answer(locked={"holder": dead, "text": "whole", "id": "old"})})
    outcome, hosts = repair(host)
    assert (outcome.state, hosts.calls) == ("locked", ["take", "take"]), "asked once more, as of a stale lock"


def test_services_that_do_not_start_are_told_and_health_decides() -> None:
    answer = Answer(failed={"dcgm.service": "exit 1"}, unrecorded="not recorded on the host: full")
    outcome, _ = repair(FakeHost(answers={"reset": answer}))
    assert outcome.state == "repaired"
    assert outcome.tries[0].problem == "dcgm.service does not start: exit 1; not recorded on the host: full"


def step(state: State, **more: Any) -> Step:
    return Step(host="gpu1", node="gpu1", state=state, **more)


def others(message: str, *waits_for: str, fix: str = "") -> Step:
    return step("refused", others=True, message=message, waits_for=waits_for, fix=fix)


IN_USE = {"take": Answer(holders=("python3 (pid 7, kim)",))}
UNDO = "gpuprov undrain gpu1 INVENTORY --by slurm --run r1"
JOBS = step("waiting", message="jobs run on it")
DRAINED: list[tuple[str, Step, FakeHost, str, list[str], str]] = [
    # what it is; the scheduler's answer; the host; its state; what the scheduler was asked; why it stays out
    ("drained by us, and repaired", step("done"), FakeHost(), "repaired", ["out", "back"], ""),
    ("drained by us, and given up", step("done"), FakeHost(ends=""), "given up", ["out"],
     f"drained by this run: {UNDO}"),
    ("drained by us, and not set up", step("done"), FakeHost(after=(NOT_SET_UP,)), "differs", ["out"], UNDO),
    ("drained by others", others("root: Xid 79"), FakeHost(), "repaired", ["out"], "drained by others: root: Xid 79"),
    ("drained by another run", others("run r2 has it", fix="gpuprov undrain --run r2"), FakeHost(), "repaired",
     ["out"],
     "run r2 has it; gpuprov undrain --run r2"),
    ("jobs run, and others drained it", others("run r2 has it", "job 7"), FakeHost(), "refused", ["out"],
     "run r2 has it"),
    ("drained by us, and in use", step("done"), FakeHost(answers=IN_USE), "refused", ["out", "back"], ""),
    ("drained by us, and a process comes before the reset", step("done"),
     FakeHost(answers={"reset": Answer(holders=("python3",))}), "refused", ["out"], UNDO),
    ("refused", step("refused", message="Slurm knows no node"), FakeHost(), "refused", ["out"], ""),
    ("jobs do not end", JOBS, FakeHost(), "refused", ["out", "back"], ""),
    ("no answer", step("unknown", message="no controller"), FakeHost(), "refused", ["out", "back"], ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "host", "state", "calls", "out"), [pytest.param(*row[1:], id=row[0]) for row in DRAINED]
)
def test_drained_first_and_given_back_only_when_green(
    answer: Step, host: FakeHost, state: str, calls: list[str], out: str
) -> None:
    drains = FakeDrains(answer)
    outcome, hosts = repair(host, drains, drain="slurm")
    assert (outcome.state, drains.calls) == (state, calls)
    assert out in outcome.out
    assert bool(outcome.out) == bool(out)
    assert ("take" in hosts.calls) == answer.is_free
    if not answer.is_free:
        assert answer.message in outcome.message, "why is said"


@pytest.mark.parametrize("back", ["waiting", "refused", "unknown"])
@pytest.mark.parametrize("answer", [JOBS, step("done")])
def test_what_is_not_given_back_is_told_with_the_way_back(answer: Step, back: State) -> None:
    outcome, _ = repair(FakeHost(answers=IN_USE), FakeDrains(answer, back), drain="slurm")
    assert (outcome.state, outcome.out) == ("refused", f"not given back: {back}; {UNDO}")


@pytest.mark.parametrize(
    ("before", "last", "calls", "out"),
    [
        (others("root: bad HCA", "job 7"), step("unknown"), ["out"], "drained by others: root: bad HCA"),
        (others("root: bad HCA", "job 7"), JOBS, ["out", "back"], ""),
        (JOBS, step("unknown"), ["out", "back"], ""),
        (JOBS, others("root: bad HCA", "job 7"), ["out"], "drained by others: root: bad HCA"),
        (JOBS, step("refused", message="the site's command ended with 3"), ["out", "back"], ""),
    ],
)
def test_only_what_this_run_drained_is_given_back(before: Step, last: Step, calls: list[str], out: str) -> None:
    drains = FakeDrains(last, before=(before,))
    outcome, _ = repair(FakeHost(), drains, drain="slurm")
    assert (outcome.state, drains.calls, outcome.out) == ("refused", calls, out)


def test_what_a_scheduler_answers_is_shown() -> None:
    shown: list[str] = []
    drains: Any = FakeDrains(others("run r2 has it", "job 7", "job 8"))
    hosts: Any = FakeHosts({"gpu1": FakeHost()})
    Chain(plan(drain="slurm"), hosts, drains, OPTIONS, say=lambda host, text: shown.append(text)).run()
    assert shown == ["draining (slurm)", "not free: run r2 has it; job 7; job 8"]


def test_a_run_that_is_ended_begins_no_further_act() -> None:
    hosts: Any = FakeHosts({"gpu1": FakeHost(ends="")})
    drains: Any = FakeDrains(step("done"))
    outcome = Chain(plan(), hosts, drains, OPTIONS, goes_on=lambda: "reset" not in hosts.calls).run()
    assert (outcome.state, hosts.calls) == ("interrupted", ["take", "reset", "release"])
    assert "reboot" not in hosts.calls
