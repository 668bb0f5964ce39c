"""Runs steps on many hosts at a time, over whatever the inventory says."""

from collections.abc import Callable, Mapping, Sequence

from gpuprov.accept.model import Ran, Runner, Step
from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.facts.collect.children import run_all
from gpuprov.facts.collect.script import compose_one, split
from gpuprov.facts.collect.transport import Answer, job
from gpuprov.facts.collect.unreached import Unreached
from gpuprov.spec.model import RawHost

# Hosts at a time without --forks.
AT_A_TIME = 256
# Seconds that a step may take beyond its script's: to connect, and to return.
CONNECT = 60.0


def make_runner(hosts: Mapping[str, RawHost], at_a_time: int = AT_A_TIME) -> Runner:
    """Make the runner for these hosts. Local children are ended on an interrupt; what they started is ended on the
    host."""

    def run(steps: Sequence[Step]) -> dict[str, Ran]:
        results: dict[str, Ran] = {}
        jobs = []
        for step in steps:
            script = compose_one("step", step.script, step.limit)
            try:
                jobs.append(job(hosts[step.host], script, step.limit + CONNECT, _record_answer(step.host, results)))
            except GpuprovError as error:
                results[step.host] = Ran(lost=Unreached(step.host, error.message, error.fix))
        run_all(jobs, min(len(jobs), at_a_time) or 1)
        return results

    return run


def _record_answer(host: str, results: dict[str, Ran]) -> Callable[[Answer], None]:
    def done(answer: Answer) -> None:
        if isinstance(answer, UnreachableError):
            results[host] = Ran(lost=answer)
            return
        output = (split(answer) or {})["step"]
        results[host] = Ran(text=output.text + output.error, status=output.status)

    return done
