"""Hosts that are there only as a script: what ails each, what an act does about it, and what was asked of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuprov.facts.probes.base import Facts, Output
from gpuprov.fleet.drain import State, Step, format_undrain
from gpuprov.repair.hosts import Answer, Judged
from gpuprov.repair.model import Gpu, HostPlan, Options, Scope
from gpuprov.verify.evaluate import Result

GPU = Gpu(index=1, address="0000:19:00.0", uuid="GPU-1", name="H100")
OPTIONS = Options(run="r1", yes=True, reboot=True)


def finding(host: str, action: str = "reset", check: str = "health.recovery", **more: Any) -> Result:
    return Result(
        host=host, capability="health", check=check, status="fail", found="needs it", action=action,
        devices=(GPU.address,), **more,
    )  # fmt: skip


def passed(host: str) -> Result:
    return Result(host=host, capability="health", check="health.gpus", status="pass")


def plan(host: str = "gpu1", **more: Any) -> HostPlan:
    values: dict[str, Any] = {
        "step": "reset",
        "findings": (finding(host),),
        "scope": Scope(gpus=(GPU,)),
        "reboot": True,
    }
    return HostPlan(host=host, **values | more)


@dataclass
class FakeHost:
    """`ends`: the act that ends what ails it. `answers`: other answers than the usual ones, by act. `after`: results
    beside those of health, once it is well. `later`: what health asks for after an act."""

    ends: str = "reset"
    action: str = "reset"
    answers: dict[str, Answer] = field(default_factory=dict)
    after: tuple[Result, ...] = ()
    later: str = ""
    comes_back: bool = True
    well: bool = False
    boots: int = 1


@dataclass
class FakeHosts:
    hosts: dict[str, FakeHost]
    calls: list[str] = field(default_factory=list)
    slept: float = 0.0

    def judge(self, names: Sequence[str]) -> dict[str, Judged]:
        return {name: (self._results(name), Facts({"repairs": Output("")})) for name in names}

    def _results(self, name: str) -> list[Result]:
        host = self.hosts[name]
        return [passed(name), *(host.after if host.well else (finding(name, host.action),))]

    def act(self, action: str, plan: HostPlan, **more: Any) -> Answer:
        host = self.hosts[plan.host]
        self.calls.append(f"{action} {more['act']}" if action == "note" else action)
        answer = host.answers.get(action)
        if action in ("reset", "reboot"):
            host.action = host.later or host.action
        if action == host.ends and not (answer and answer.problem and not answer.silent):
            host.well = True
        if answer is not None:
            return answer
        if action == "reboot" and host.comes_back:
            host.boots += 1
        if action == "seen" and not host.comes_back:
            return Answer(problem="no route to host", silent=True)
        return Answer(boot=f"boot {host.boots}")

    def get_reboot_limit(self, host: str) -> float:
        return 0.01

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


@dataclass
class FakeDrains:
    """A scheduler that gives this step, and notes what was asked. `back`: its state when the host is given back;
    `before`: answers before the last."""

    step: Step
    back: State = "done"
    before: tuple[Step, ...] = ()
    calls: list[str] = field(default_factory=list)

    def take_out(self, plan: HostPlan, tell: Callable[[Step], None], *_: Any) -> Step:
        self.calls.append("out")
        for step in (*self.before, self.step):
            tell(step)
        return self.step

    def give_back(self, plan: HostPlan) -> Step:
        self.calls.append("back")
        return Step(host=plan.host, node=plan.host, state=self.back)

    def format_undrain(self, plan: HostPlan) -> str:
        return format_undrain(plan.drain, "r1", host=plan.host)
