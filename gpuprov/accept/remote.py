"""Runs steps on many hosts at a time, over whatever the inventory says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpuprov.accept.model import Ran, Runner, Step
from gpuprov.errors import GpuprovError, UnreachableError
from gpuprov.gather.children import run_all
from gpuprov.gather.script import compose, split
from gpuprov.gather.transport import Answer, job
from gpuprov.gather.unreached import Unreached
from gpuprov.probe.base import Output, Probe
from gpuprov.spec.model import RawHost

AT_A_TIME = 256
"""Hosts at a time, where --forks says nothing."""
CONNECT = 60.0
"""Seconds more than its script that a step may take: to connect, and to come back."""


def remote(hosts: Mapping[str, RawHost], at_a_time: int = AT_A_TIME) -> Runner:
    """The runner for these hosts. Local children are ended on an interrupt; what they started is ended on the host."""

    def run(steps: Sequence[Step]) -> dict[str, Ran]:
        found: dict[str, Ran] = {}
        jobs = []
        for step in steps:
            script = compose((Probe("step", step.script, _text),), limit=int(step.limit))
            try:
                jobs.append(job(hosts[step.host], script, step.limit + CONNECT, _noted(step.host, found)))
            except GpuprovError as error:
                found[step.host] = Ran(lost=Unreached(step.host, error.message, error.hint))
        run_all(jobs, min(len(jobs), at_a_time) or 1)
        return found

    return run


def _text(output: Output) -> str:
    return output.text


def _noted(host: str, found: dict[str, Ran]) -> Callable[[Answer], None]:
    def done(answer: Answer) -> None:
        if isinstance(answer, UnreachableError):
            found[host] = Ran(lost=answer)
            return
        output = (split(answer) or {})["step"]
        found[host] = Ran(text=output.text + output.error, status=output.status)

    return done
