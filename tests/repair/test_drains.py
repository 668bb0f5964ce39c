"""The scheduler of a host in repair: asked until its jobs have left, or the run has had enough."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.drain import Step
from gpuprov.fleet.drain.noted import Noted
from gpuprov.repair import drains
from gpuprov.repair.drains import Drains
from gpuprov.repair.model import Options
from gpuprov.spec.model import RawHost
from tests.repair.fake_hosts import plan
from tests.rows import run_each

JOBS = Step(host="gpu1", node="gpu1", state="waiting", waits_for=("job 7",))
FREE = Step(host="gpu1", node="gpu1", state="done")


OTHERS = Step(host="gpu1", node="gpu1", state="refused", others=True, message="root: bad HCA")
BUSY = structs.replace(OTHERS, waits_for=("job 7",))
UNKNOWN = Step(host="gpu1", node="gpu1", state="unknown", message="no controller")
NO_NODE = Step(host="gpu1", node="gpu1", state="refused", message="Slurm knows no node gpu1")


class Scheduler:
    """It answers so, look by look."""

    name = "slurm"

    def __init__(self, *answers: Step) -> None:
        self.answers, self.calls = list(answers), list[str]()

    def drain(self, host: str, run: str) -> Step:
        self.calls.append(f"drain {host} {run}")
        return self.drained(host, run) if self.answers[0].state == "refused" else FREE

    def drained(self, host: str, run: str) -> Step:
        return self.answers.pop(0)

    def returned(self, host: str, run: str, green: bool) -> Step:
        self.calls.append(f"return {host} {run} {green}")
        return FREE


def made(scheduler: Scheduler, **options: Any) -> Drains:
    adapter: Any = scheduler
    return Drains({"slurm": adapter}, Options(run="r1", poll=0.01, **options))


@run_each(
    ("answers", "options", "goes_on", "last", "expected"),
    [
        ([FREE], {}, True, FREE, [FREE]),
        ([JOBS, JOBS, JOBS, FREE], {}, True, FREE, [JOBS, FREE]),
        ([JOBS], {"wait": 0.0}, True, JOBS, [JOBS]),
        ([JOBS], {}, False, JOBS, [JOBS]),
        ([OTHERS], {}, True, OTHERS, [OTHERS]),
        ([BUSY, BUSY, OTHERS], {}, True, OTHERS, [BUSY, OTHERS]),
        ([BUSY, UNKNOWN, OTHERS], {}, True, OTHERS, [BUSY, UNKNOWN, OTHERS]),
        ([BUSY], {"wait": 0.0}, True, BUSY, [BUSY]),
        ([UNKNOWN, UNKNOWN, JOBS, UNKNOWN, UNKNOWN, FREE], {}, True, FREE, [UNKNOWN, JOBS, UNKNOWN, FREE]),
        ([JOBS, UNKNOWN, UNKNOWN, UNKNOWN], {}, True, UNKNOWN, [JOBS, UNKNOWN]),
        ([NO_NODE], {}, True, NO_NODE, [NO_NODE]),
    ],
    ids=["free", "jobs leave", "no longer than told", "the run is ended", "drained by others", "their jobs leave",
         "they leave while it does not answer", "their jobs stay", "answers come late", "no answers come", "refused"],
)  # fmt: skip
def test_jobs_are_waited_for(
    answers: list[Step], options: dict[str, Any], goes_on: bool, last: Step, expected: list[Step]
) -> None:
    scheduler, by_others = Scheduler(*answers), answers[0].others
    host = plan(drain="slurm")
    chosen = made(scheduler, **options)
    heard: list[Step] = []
    assert chosen.take_out(host, heard.append, lambda _: goes_on) == last
    assert (heard, scheduler.answers) == (expected, [])
    assert {*scheduler.calls} == {"drain gpu1 r1"}
    assert len(scheduler.calls) == 1 or not by_others, "what others have out is only looked at"
    assert chosen.give_back(host).state == "done"
    assert scheduler.calls[-1] == "return gpu1 r1 True"


@run_each(
    ("by", "more"),
    [("slurm", ""), ("kubernetes", "--context 'site a' "), ("command", "--command '/opt/drain $GPUPROV_HOST' ")],
)
def test_the_way_back_has_the_options_of_its_scheduler(by: Any, more: str) -> None:
    chosen = Drains({}, Options(run="r1", command="/opt/drain $GPUPROV_HOST", context="site a"))
    assert chosen.format_undrain(plan(drain=by)) == f"gpuprov undrain gpu1 INVENTORY --by {by} {more}--run r1"


def test_only_the_schedulers_that_plans_need_must_be_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    raw = {"gpu1": RawHost(name="gpu1")}
    drains.make({"gpu1": plan()}, raw, Options())
    with pytest.raises(GpuprovError, match="scontrol is not installed here"):
        drains.make({"gpu1": plan(drain="slurm")}, raw, Options())
    with pytest.raises(GpuprovError, match="needs the site's command"):
        drains.make({"gpu1": plan(drain="command")}, raw, Options())
    chosen = drains.make({"gpu1": plan(drain="command")}, raw, Options(command="true"))
    assert isinstance(chosen._adapters["command"], Noted)
