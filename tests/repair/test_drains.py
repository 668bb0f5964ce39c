"""The scheduler of a host in repair: asked until its jobs have left, or the run has had enough."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.drain import Step
from gpuprov.fleet.drain.noted import Noted
from gpuprov.repair import drains
from gpuprov.repair.drains import Drains
from gpuprov.repair.model import Options
from gpuprov.spec.model import RawHost
from tests.repair.fake_hosts import plan

JOBS = Step(host="gpu1", node="gpu1", state="waiting", waits_for=("job 7",))
FREE = Step(host="gpu1", node="gpu1", state="done")


class Scheduler:
    """Its jobs leave after so many looks."""

    name = "slurm"

    def __init__(self, looks: int) -> None:
        self.looks, self.calls = looks, list[str]()

    def drain(self, host: str, run: str) -> Step:
        self.calls.append(f"drain {host} {run}")
        return FREE

    def drained(self, host: str, run: str) -> Step:
        self.looks -= 1
        return FREE if self.looks < 0 else JOBS

    def returned(self, host: str, run: str, green: bool) -> Step:
        self.calls.append(f"return {host} {run} {green}")
        return FREE


def made(scheduler: Scheduler, **options: Any) -> Drains:
    adapter: Any = scheduler
    return Drains({"slurm": adapter}, Options(run="r1", poll=0.01, **options))


@pytest.mark.parametrize(
    ("looks", "options", "goes_on", "state"),
    [(0, {}, True, "done"), (3, {}, True, "done"), (3, {"wait": 0.0}, True, "waiting"), (3, {}, False, "waiting")],
    ids=["free", "jobs leave", "no longer than told", "the run is ended"],
)
def test_jobs_are_waited_for(looks: int, options: dict[str, Any], goes_on: bool, state: str) -> None:
    scheduler = Scheduler(looks)
    host = plan(drain="slurm")
    chosen = made(scheduler, **options)
    assert chosen.take_out(host, lambda _: None, lambda _: goes_on).state == state
    assert {*scheduler.calls} == {"drain gpu1 r1"}
    assert chosen.give_back(host, lambda _: None).state == "done"
    assert scheduler.calls[-1] == "return gpu1 r1 True"


def test_only_the_schedulers_that_plans_need_must_be_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    raw = {"gpu1": RawHost(name="gpu1")}
    drains.make({"gpu1": plan()}, raw, Options())
    with pytest.raises(GpuprovError, match="scontrol is not installed here"):
        drains.make({"gpu1": plan(drain="slurm")}, raw, Options())
    with pytest.raises(GpuprovError, match="wants the site's command"):
        drains.make({"gpu1": plan(drain="command")}, raw, Options())
    chosen = drains.make({"gpu1": plan(drain="command")}, raw, Options(command="true"))
    assert isinstance(chosen._adapters["command"], Noted)
