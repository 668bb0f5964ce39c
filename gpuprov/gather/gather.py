"""Reads many hosts: one script and one exec per host, many hosts at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from gpuprov.errors import GpuprovError, UnreachableError, defect
from gpuprov.gather.children import Job, Process, run_all
from gpuprov.gather.script import PROBE_LIMIT, TIMED_OUT, compose, split
from gpuprov.gather.settings import Settings
from gpuprov.gather.transport import Answer, job
from gpuprov.gather.unreached import Unreached
from gpuprov.limits import HOST_LIMIT
from gpuprov.probe.base import Facts, Probe, ProbeFailed
from gpuprov.probe.login import PYTHON, python
from gpuprov.spec.model import RawHost

T = TypeVar("T")
Gathered = dict[str, Facts | UnreachableError]
WORKERS_PER_CORE = 16
"""Hosts at a time: enough to fill a core with key exchanges while some hosts are slow or down. On 2 cores and 50 sshd, 16 to
32 at a time took 0.8 of the time of all at once; 64 gained nothing."""


def _of_host(raw: RawHost, probes: tuple[Probe[Any], ...]) -> tuple[Probe[Any], ...]:
    """The probes as this host's inventory wants them: it may name a Python."""
    named = Settings(raw).python if PYTHON in probes else ""
    return tuple(python(named) if probe == PYTHON else probe for probe in probes) if named else probes


class HostFacts(Facts):
    """Facts of a host where a snippet may not have ended: then it has printed half of the truth, and is not parsed."""

    def get(self, probe: Probe[T]) -> T:
        output = self._outputs.get(probe.name)
        if output is not None and output.status == TIMED_OUT:
            raise ProbeFailed(f"{probe.name} did not end within {PROBE_LIMIT} s on the host")
        return super().get(probe)


def gather(
    hosts: Sequence[tuple[RawHost, tuple[Probe[Any], ...]]],
    *,
    workers: int | None = None,
    timeout: float = HOST_LIMIT,
    on_done: Callable[[str, Facts | UnreachableError], None] | None = None,
    took: dict[str, float] | None = None,
) -> Gathered:
    """The facts of each host, or why it could not be read; in the order given. `on_done` is told of each as it ends, `took` gets the
    seconds that each needed from its turn on.

    On an exception (an interrupt too) every child is ended before it goes on.
    """
    found: Gathered = {raw.name: Unreached(raw.name, "not tried") for raw, _ in hosts}
    scripts: dict[tuple[Probe[Any], ...], str] = {}
    begun: dict[str, float] = {}

    def note(name: str, result: Facts | UnreachableError) -> None:
        found[name] = result
        if took is not None:
            took[name] = time.monotonic() - begun[name] if name in begun else 0.0
        if on_done:
            on_done(name, result)

    jobs = []
    for raw, probes in hosts:
        try:
            probes = _of_host(raw, probes)
            script = scripts.get(probes) or scripts.setdefault(probes, compose(probes))
            jobs.append(_noting_start(job(raw, script, timeout, _noted(raw.name, note)), raw.name, begun))
        except GpuprovError as error:
            note(raw.name, Unreached(raw.name, error.message.removeprefix(f"{raw.name}: "), error.hint))
        except Exception as error:
            note(raw.name, Unreached(raw.name, *defect("the way to the host", error)))
    run_all(jobs, workers or WORKERS_PER_CORE * (os.cpu_count() or 1))
    return found


def _noting_start(job: Job, name: str, begun: dict[str, float]) -> Job:
    def start() -> Process:
        begun[name] = time.monotonic()
        return job.start()

    return msgspec.structs.replace(job, start=start)


def _noted(name: str, note: Callable[[str, Facts | UnreachableError], None]) -> Callable[[Answer], None]:
    def done(answer: Answer) -> None:
        if isinstance(answer, UnreachableError):
            note(name, answer)
            return
        try:
            outputs = split(answer) or {}
        except Exception as error:
            note(name, Unreached(name, *defect("the reader of what the host printed", error)))
            return
        note(name, HostFacts(outputs))

    return done
