"""Read many hosts: one script and one exec per host, many hosts at a time."""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from gpuprov.core.errors import GpuprovError, UnreachableError, defect
from gpuprov.core.time_limits import HOST_LIMIT
from gpuprov.facts.collect.children import Job, Process
from gpuprov.facts.collect.rounds import Pace, Rounds
from gpuprov.facts.collect.script import PROBE_LIMIT, TIMED_OUT, compose, split, with_environment
from gpuprov.facts.collect.settings import Settings
from gpuprov.facts.collect.transport import Answer, job
from gpuprov.facts.collect.unreached import Unreached
from gpuprov.facts.probes.base import Facts, Probe, ProbeFailed
from gpuprov.facts.probes.host.system import PYTHON, build_python_probe
from gpuprov.rules import reach
from gpuprov.spec.model import PACKAGE_BUNDLE, RawHost

T = TypeVar("T")
Gathered = dict[str, Facts | UnreachableError]


def _adapt_probes(raw: RawHost, probes: tuple[Probe[Any], ...]) -> tuple[Probe[Any], ...]:
    """Return the probes adapted to this host's inventory, which may name a Python."""
    named = Settings(raw).python if PYTHON in probes else ""
    return tuple(build_python_probe(named) if probe == PYTHON else probe for probe in probes) if named else probes


class HostFacts(Facts):
    """Facts of a host on which a script may have timed out: then its output is incomplete, and not parsed."""

    def get(self, probe: Probe[T]) -> T:
        output = self._outputs.get(probe.name)
        if output is not None and output.status == TIMED_OUT:
            raise ProbeFailed(f"{probe.name} did not end within {PROBE_LIMIT} s on the host")
        return super().get(probe)


def gather(
    hosts: Sequence[tuple[RawHost, tuple[Probe[Any], ...]]],
    *,
    pace: Pace | None = None,
    timeout: float = HOST_LIMIT,
    on_done: Callable[[str, Facts | UnreachableError], None] | None = None,
) -> Gathered:
    """Read every host as `gather_each` does; returns the facts of each host, or its error, in the order given.
    `on_done` is called too."""
    results: Gathered = {raw.name: Unreached(raw.name, "not tried") for raw, _ in hosts}

    def note(name: str, result: Facts | UnreachableError) -> None:
        results[name] = result
        if on_done:
            on_done(name, result)

    gather_each(hosts, note, pace=pace, timeout=timeout)
    return results


def gather_each(
    hosts: Sequence[tuple[RawHost, tuple[Probe[Any], ...]]],
    on_done: Callable[[str, Facts | UnreachableError], None],
    *,
    pace: Pace | None = None,
    timeout: float = HOST_LIMIT,
    took: dict[str, float] | None = None,
) -> None:
    """Read every host; `on_done` receives its facts, or its error, as soon as it ends, and nothing is kept here. `took`
    gets the seconds that each host needed from its start. Hosts whose sshd drops the connection before the login, as it
    does while too many log in, are tried again with fewer at a time; `pace` then remembers that number, if it let one
    of them in. On an exception (an interrupt too) every child is ended before it propagates."""
    pace = pace or Pace()
    scripts: dict[tuple[Probe[Any], ...], str] = {}
    begun: dict[str, float] = {}
    rounds = Rounds(pace)

    def note(name: str, result: Facts | UnreachableError) -> None:
        if took is not None:
            took[name] = time.monotonic() - begun[name] if name in begun else 0.0
        on_done(name, result)

    jobs: dict[str, Job] = {}
    for raw, probes in hosts:
        try:
            probes = _adapt_probes(raw, probes)
            script = scripts.get(probes) or scripts.setdefault(probes, compose(probes))
            script = with_environment(script, reach.of_bundle(str(raw.connection.get(PACKAGE_BUNDLE) or "")))
            jobs[raw.name] = _note_start(
                job(raw, script, timeout, rounds.hears(raw, _build_callback(raw.name, note))), raw.name, begun
            )
        except GpuprovError as error:
            note(raw.name, Unreached(raw.name, error.message.removeprefix(f"{raw.name}: "), error.fix))
        except Exception as error:
            note(raw.name, Unreached(raw.name, *defect("the connection to the host", error)))
    rounds.run(jobs)


def _note_start(job: Job, name: str, begun: dict[str, float]) -> Job:
    def start() -> Process:
        begun[name] = time.monotonic()
        return job.start()

    return msgspec.structs.replace(job, start=start)


def _build_callback(name: str, note: Callable[[str, Facts | UnreachableError], None]) -> Callable[[Answer], None]:
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
