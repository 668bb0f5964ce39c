"""The first boot of a baked image: judge the hardware, bring about what was left, prove it, report. No Ansible, no
network.

Runs once for each machine, which its machine id tells from others; a run that does not end green is repeated by the
next boot. Exit status: 0 as wanted, 1 not as wanted, 3 not brought about, 5 another run holds the host.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from gpuprov import __version__
from gpuprov.apply.model import NOT_DONE, HostOutcome
from gpuprov.bake import files
from gpuprov.bake.ensure import ensure
from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.generated import desired
from gpuprov.core import safe_parse, terminal
from gpuprov.core.errors import CODES, Code, GpuprovError, UnreachableError, choose_code
from gpuprov.core.time_limits import ACT_LIMIT
from gpuprov.facts.collect.gather import gather
from gpuprov.facts.probes.base import Facts, Probe, ProbeFailed
from gpuprov.facts.probes.host.contents import CONTENTS
from gpuprov.fleet import specs
from gpuprov.host_code import lock, receipt
from gpuprov.host_code.fence import Owner
from gpuprov.jobs import frozen, outcome, stored
from gpuprov.jobs.model import HostResult
from gpuprov.plan.extra import new_run, owner
from gpuprov.plan.read import Pair, probes_for
from gpuprov.play.preflight.judging import judge
from gpuprov.render.spec_digest import digests
from gpuprov.report.files import write_atomic
from gpuprov.spec.model import HostSpec
from gpuprov.verify import images
from gpuprov.verify.evaluate import JUDGED, MOMENTS, Result, evaluate
from gpuprov.verify.verify import exit_code

# Readings after which no more is brought about: a unit that was started may have changed what another's settings
# follow from.
ROUNDS = 3
LARGEST = 16 << 20


class Report(msgspec.Struct, kw_only=True):
    """The report of a first boot."""

    gpuprov_first_boot: int = 1
    # The machine id.
    machine: str
    exit_code: int
    # What was brought about, in words.
    changed: tuple[str, ...] = ()
    result: HostResult


def main() -> int:
    """Finish this machine, print what came of it, and return the exit status."""
    try:
        report = finish(Path(files.FOLDER))
    except GpuprovError as error:
        terminal.error(error)
        return CODES["failed"]
    for line in describe(report):
        terminal.progress(line)
    return report.exit_code


def finish(folder: Path) -> Report:
    """Finish this machine with the job in the folder, or return the report if it is finished. Raises GpuprovError for
    no job."""
    here = machine_id()
    if (earlier := read_report(folder / "done.json")) and earlier.machine == here and earlier.exit_code == 0:
        return earlier
    job = stored.load_job(folder / "job.json")
    (pair,) = specs.judge(frozen.raw_hosts(job.hosts, job.specs), whole=False).pairs
    run, started = new_run(), outcome.now()
    host_outcome, changed = HostOutcome(host=pair[0].name), list[str]()
    with _held(owner(run, ACT_LIMIT), host_outcome) as leader:
        if leader:
            _finish(pair, leader, host_outcome, changed)
    common = outcome.Told(run=run, job=job.digest, fleet=job.fleet, act="apply", started=started)
    report = Report(
        machine=here,
        exit_code=_choose_code(host_outcome),
        changed=tuple(changed),
        result=outcome.of_apply(common, host_outcome),
    )
    write_atomic(folder / "done.json", safe_parse.format_document(report) + "\n", mode=0o644)
    return report


def read_report(path: Path) -> Report | None:
    """Read the report of an earlier boot; None if there is none, or it cannot be understood."""
    with suppress(OSError, safe_parse.Unreadable):
        return safe_parse.parse_typed_json(safe_parse.read_contents(str(path), LARGEST), Report, largest=LARGEST)
    return None


def machine_id() -> str:
    """Return the id of this machine."""
    # https://www.freedesktop.org/software/systemd/man/machine-id.html
    with suppress(OSError):
        return Path("/etc/machine-id").read_text(encoding="utf-8").strip()
    return ""


def describe(report: Report) -> Iterator[str]:
    """Describe the report for the journal."""
    item = report.result
    yield f"gpuprov first boot of {item.host}: {item.verdict or item.state}" + (
        f": {item.message}" if item.message else ""
    )
    yield from (f"  brought about: {text}" for text in report.changed)
    for row in item.failures:
        yield f"  {row.check}: {row.found}" + (f"; wanted: {row.expected}" if row.expected else "")
        if row.fix:
            yield f"    fix: {row.fix}"
    yield from (f"  not proven: {row.check}: {row.found}" for row in item.unproven)
    if item.reboot:
        yield f"  a reboot is required: {'; '.join(item.reboot)}"


@contextmanager
def _held(leader: Owner, host_outcome: HostOutcome) -> Iterator[Owner | None]:
    """Hold this host's lock inside; yields None if another run has it."""
    answer = lock.take(leader)
    if not answer["taken"]:
        holder = answer.get("holder") or {}
        host_outcome.state, host_outcome.message = (
            "locked",
            f"run {answer.get('id', '')} of {holder.get('user', 'somebody')} holds this host",
        )
        host_outcome.fix = f"when it has ended: systemctl restart {files.UNIT}"
        yield None
        return
    try:
        yield leader
    finally:
        lock.release_lock(leader)


def _finish(pair: Pair, leader: Owner, host_outcome: HostOutcome, changed: list[str]) -> None:
    """Judge the hardware, bring about what differs, and write the receipt, whatever verify finds then."""
    facts = _read(pair)
    if obstacle := next(filter(_must_stop, evaluate(pair[1], facts, stops=True)), None):
        host_outcome.state, host_outcome.task, host_outcome.message, host_outcome.fix = (
            "blocked",
            obstacle.check,
            obstacle.found,
            obstacle.fix,
        )
        host_outcome.results = evaluate(pair[1], facts, MOMENTS)
        return
    problems: dict[str, GpuprovError] = {}
    receipt.begin(leader, list(pair[1].capabilities), list(pair[1].capabilities))
    for _ in range(ROUNDS):
        made = _round(pair[1], facts, problems)
        changed += made
        facts = _read(pair)
        if not made:
            break
    verdict = judge(pair[1], facts, list(pair[1].capabilities), preflight=False)
    receipt.merge_applied(leader, list(pair[1].capabilities), digests(pair[1]), __version__, verdict.resources)
    host_outcome.state, host_outcome.changed = "changed" if changed else "unchanged", changed
    host_outcome.results = evaluate(pair[1], _read(pair), MOMENTS)
    for name, error in problems.items():
        host_outcome.state, host_outcome.task, host_outcome.message, host_outcome.fix = (
            "failed",
            name,
            error.message,
            error.fix,
        )


def _must_stop(result: Result) -> bool:
    """Return whether a check of the hardware, which baking has left to this boot, keeps the machine from being
    changed."""
    return result.refuses and (result.check == JUDGED or images.waits(result.check, result.moment, stops=True))


def _round(spec: HostSpec, facts: Facts, problems: dict[str, GpuprovError]) -> list[str]:
    """Bring about the resources of every capability, in apply order."""
    made: list[str] = []
    for name, block in spec.capabilities.items():
        if BY_NAME[name].resources is None:
            continue
        problems.pop(name, None)
        try:
            resources = desired(BY_NAME[name], Context(spec, block, facts))
            made += [f"{name}: {item}" for item in ensure(resources, facts.get(CONTENTS))]
        except ProbeFailed as error:
            problems[name] = GpuprovError(str(error), error.fix)
        except GpuprovError as error:
            problems[name] = error
    return made


def _read(pair: Pair) -> Facts:
    """Read this machine: what its checks, resources and receipt need. Raises GpuprovError if it cannot be read."""
    raw, spec = pair
    probes: dict[str, Probe[Any]] = {probe.name: probe for probe in probes_for(spec)}
    answer = gather([(raw, tuple(probes.values()))])[raw.name]
    if isinstance(answer, UnreachableError):
        raise GpuprovError(answer.message, answer.fix)
    return answer


def _choose_code(host_outcome: HostOutcome) -> Code:
    undone = NOT_DONE.get(host_outcome.state)
    return choose_code([undone]) if undone else exit_code(host_outcome.verified)


if __name__ == "__main__":
    sys.exit(main())
