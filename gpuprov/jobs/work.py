"""Does one job: reads, plans or applies its hosts, and writes the result of each as soon as it is known.

Delivery is at least once: the same job in the same run skips hosts with a green result, and does the others again.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path

import msgspec

from gpuprov import apply as applying
from gpuprov import plan as planning
from gpuprov.core.errors import CODES, Code, GpuprovError, UnreachableError
from gpuprov.core.signals import ended_politely
from gpuprov.core.time_limits import ACT_LIMIT
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.probes.base import Facts
from gpuprov.jobs import outcome
from gpuprov.jobs.frozen import digest_of_file
from gpuprov.jobs.model import Act, HostResult, Job
from gpuprov.jobs.pulse import Pulse
from gpuprov.jobs.repairs import repair_hosts
from gpuprov.jobs.results import Results
from gpuprov.jobs.tally import Tally
from gpuprov.plan.decide import PlanOptions
from gpuprov.plan.extra import checked_run
from gpuprov.plan.read import Pair
from gpuprov.repair import model as repairing
from gpuprov.verify.evaluate import Result
from gpuprov.verify.verify import verify_each

Note = Callable[[HostResult], None]
# Seconds to read one host, as in gpuprov verify.
VERIFY_LIMIT = 60.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The act and its options. quick: a plan without Ansible. timeout: seconds that one act of apply may take on a
    host. repair: how many unfit hosts may be repaired before they are changed; None: no host is looked at for that.
    asked_at: the time of the job, whatever is given."""

    act: Act = "verify"
    run: str
    forks: int = 0
    timeout: float = ACT_LIMIT
    quick: bool = False
    reboot: bool = False
    repair: int | None = None
    drain: str | None = None
    break_lock: tuple[str, ...] = ()
    log_dir: Path | None = None
    asked_at: str = ""


def work(job: Job, pairs: Sequence[Pair], folder: Path, options: Options, pulse: Pulse) -> int:
    """Do the job, and return the exit code of all its hosts, including those done before.

    Raises GpuprovError if nothing can be started. An interrupt ends it; results of finished hosts stay.
    """
    common = outcome.Told(
        run=checked_run(options.run), job=job.digest, fleet=job.fleet, act=options.act, started=outcome.now()
    )
    results, options = Results(folder), msgspec.structs.replace(options, asked_at=job.made_at)
    try:
        finished = {
            name: result for name in (host.name for host in job.hosts) if (result := _find_done(results, name, common))
        }
        left = [pair for pair in pairs if pair[0].name not in finished]
        with pulse.going(done=len(finished), of=len(pairs)), ended_politely():

            def note(host_result: HostResult) -> None:
                results.write(host_result)
                finished[host_result.host] = host_result
                pulse.ended(host_result, done=len(finished))

            interrupted = False
            try:
                if left:
                    interrupted = ACTS[options.act](left, options, common, pulse, note)
            except KeyboardInterrupt:
                interrupted = True
        code = CODES["interrupted"] if interrupted else exit_code(finished.values())
        pulse.over(code)
        return code
    finally:
        results.close()


def _find_done(results: Results, host: str, common: outcome.Told) -> HostResult | None:
    """Return the host's result if it is green and from this run, this act, and the same fleet."""
    result = results.read(host)
    same = result and (result.run, result.act, result.fleet) == (common.run, common.act, common.fleet)
    return result if result and same and result.green else None


def _verify(pairs: Sequence[Pair], options: Options, common: outcome.Told, pulse: Pulse, note: Note) -> bool:
    took: dict[str, float] = {}

    def judged(name: str, results: list[Result], _facts: Facts | UnreachableError) -> None:
        note(outcome.of_verify(common, name, results, took.pop(name, 0.0)))

    verify_each(pairs, judged, pace=Pace(options.forks), timeout=VERIFY_LIMIT, took=took)
    return False


def _plan(pairs: Sequence[Pair], options: Options, common: outcome.Told, pulse: Pulse, note: Note) -> bool:
    chosen = PlanOptions(reboot=options.reboot, exact=not options.quick)
    plans = planning.plan(pairs, chosen, pace=Pace(options.forks), timeout=options.timeout, show=pulse)
    for plan in plans:
        note(outcome.of_plan(common, plan))
    return False


def _apply(pairs: Sequence[Pair], options: Options, common: outcome.Told, pulse: Pulse, note: Note) -> bool:
    act = "prepare" if options.act == "prepare" else "apply"
    settings = applying.Options.of({**msgspec.structs.asdict(options), "act": act, "yes": True})
    noted: dict[str, applying.HostOutcome] = {}

    def known(host_outcome: applying.HostOutcome) -> None:
        # A full disk here ends no apply that is under way there: it is reported when that has ended.
        with suppress(GpuprovError):
            note(outcome.of_apply(common, host_outcome))
            noted[host_outcome.host] = copy(host_outcome)

    ended = applying.apply(pairs, settings, pulse, known=known)
    for host in ended.hosts:
        if noted.get(host.host) != host:
            note(outcome.of_apply(common, host))
    return ended.interrupted


def _repair_and_apply(pairs: Sequence[Pair], options: Options, common: outcome.Told, pulse: Pulse, note: Note) -> bool:
    """Apply to the hosts; before, repair those that are unfit, if the job may."""
    if options.repair is None:
        return _apply(pairs, options, common, pulse, note)
    chosen = repairing.Options(
        run=options.run,
        yes=True,
        drain=False,
        reboot=options.reboot,
        max_out="100%",
        max_fail="100%",
        forks=options.forks,
        break_lock=options.break_lock,
        total=len(pairs),
    )
    repairs = repair_hosts(pairs, chosen, options.repair)

    def note_repair(host_result: HostResult) -> None:
        note(msgspec.structs.replace(host_result, repair=repairs.describe(host_result.host)))

    for refused in repairs.refused.values():
        note_repair(outcome.of_apply(common, refused))
    left = [pair for pair in pairs if pair[0].name not in repairs.refused]
    if repairs.interrupted or not left:
        return repairs.interrupted
    return _apply(left, options, common, pulse, note_repair)


# Functions of the acts; each returns True if it was interrupted.
ACTS: dict[Act, Callable[[Sequence[Pair], Options, outcome.Told, Pulse, Note], bool]] = {
    "verify": _verify,
    "plan": _plan,
    "prepare": _apply,
    "apply": _repair_and_apply,
}


def exit_code(results: Iterable[HostResult]) -> Code:
    """Return the exit code of apply, plan and verify for such hosts."""
    tally = Tally()
    for result in results:
        tally.add(result.state, result.verdict, result.counts)
    return tally.exit_code


def check_files(job: Job) -> None:
    """Raise GpuprovError if a file that the job's specs name differs on this machine, or is missing."""
    wrong = [path for path, digest in job.files.items() if digest_of_file(path) != digest]
    if wrong:
        message = f"{wrong[0]} is not the file that the inventory was frozen with"
        raise GpuprovError(message, "copy it from there, to the same place; or freeze the inventory again")
