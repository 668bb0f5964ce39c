"""`gpuprov accept`: read the hosts, take their locks, run the tests, record the results, release the locks."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

import msgspec

from gpuprov.accept import scripts, show
from gpuprov.accept.commands import format_commands
from gpuprov.accept.hosts import PROBES, Pair, find_busy, leave_out, prepare
from gpuprov.accept.lock import Lock
from gpuprov.accept.model import Finding, Host, Options, Outcome, Runner, Say
from gpuprov.accept.pairs import plan_rounds, run_rounds, split_rounds
from gpuprov.accept.rails import describe_down
from gpuprov.accept.remote import AT_A_TIME, make_runner
from gpuprov.accept.single import PARTS, run_across, run_part
from gpuprov.capabilities.acceptance.judge import describe_measurement, judge, named
from gpuprov.catalog.acceptance import RESULT
from gpuprov.core import terminal
from gpuprov.core.errors import GpuprovError, UnreachableError, defect
from gpuprov.core.sanitize import counted
from gpuprov.core.signals import ended_politely
from gpuprov.facts.collect import gather
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.probes.acceptance import LAST, Measurement, Record, parse_record
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.plan.extra import new_run
from gpuprov.report import retry
from gpuprov.report.page import About


def run(pairs: Sequence[Pair], options: Options, about: About | None = None) -> int:
    """Run the command: read, test, report. Returns the exit code. `about`: the origin of the page."""
    show.check(options)
    outcome = accept(pairs, options, say=terminal.progress)
    show.report(outcome, options, about)
    bad = ("fail", "error", "unreachable")
    retry.offer(
        "accept",
        list(dict.fromkeys(finding.host for finding in outcome.findings if finding.status in bad)),
        len(outcome.hosts),
    )
    return outcome.exit_code


def accept(
    pairs: Sequence[Pair],
    options: Options,
    say: Say,
    runner: Runner | None = None,
    reader: Callable[..., Mapping[str, Facts | UnreachableError]] = gather,
) -> Outcome:
    """Run the acceptance of these hosts. Raises GpuprovError if nothing can be run. An interrupt ends in an Outcome.

    The locks are released in every case; a host that cannot be reached releases its own later by itself.
    """
    included = [(raw, spec) for raw, spec in pairs if "acceptance" in spec.capabilities]
    outcome = Outcome(run=new_run(), hosts=tuple(raw.name for raw, _ in included))
    if not included:
        raise GpuprovError(
            "no host has acceptance in its spec", "add acceptance: {} to a group or a host, then gpuprov apply"
        )
    say(f"reading {len(included)} host{'s' * (len(included) != 1)}")
    hosts = prepare(
        included, reader([(raw, PROBES) for raw, _ in included], pace=Pace(options.forks)), outcome.findings
    )
    if not options.yes and hosts and not _confirm_load(hosts, options, outcome.findings):
        raise GpuprovError("not confirmed: nothing was run", "answer y, or give --yes")
    at_a_time = options.forks or AT_A_TIME
    began = monotonic()
    lock = Lock(runner or make_runner({raw.name: raw for raw, _ in included}, at_a_time), outcome.run, at_a_time)
    with ended_politely():
        try:
            _run_under_lock(hosts, lock, options, outcome, say)
        except KeyboardInterrupt:
            outcome.interrupted = True
            say("interrupted: ending what runs on the hosts")
        finally:
            outcome.notes += _describe_locks(lock.release())
            outcome.seconds = monotonic() - began
    return outcome


def _describe_locks(kept: Mapping[str, str]) -> list[str]:
    """Describe the hosts that did not release their locks."""
    when = "by itself, three minutes after the time limit of what ran there"
    return [f"{name} did not give its lock back ({why}); it does so {when}" for name, why in kept.items()]


def _confirm_load(hosts: Mapping[str, Host], options: Options, findings: Sequence[Finding]) -> bool:
    """Ask a person to confirm the load; return whether they agree."""
    for finding in findings:
        terminal.progress(f"{finding.host} is left out: {finding.found}")
    planned = plan_rounds([name for name, host in hosts.items() if host.devices], options.pairs)
    count = sum(len(batch) for batch in planned)
    pairs = f", {counted(count, 'pair')} in {counted(len(planned), 'round')}" if "rdma" in options.only else ""
    where = f"{', '.join(options.only)} on {len(hosts)} host{'s' * (len(hosts) != 1)}{pairs}"
    question = f"{where}: GPUs and network are loaded fully. Run?"
    return terminal.confirm(question)


def _run_under_lock(hosts: dict[str, Host], lock: Lock, options: Options, outcome: Outcome, say: Say) -> None:
    refused = lock.take(list(hosts), broken=options.break_lock)
    leave_out(hosts, refused, outcome.findings)
    if hosts and not options.in_use:
        busy = find_busy(hosts, options.only, lock)
        leave_out(hosts, busy, outcome.findings, check="acceptance.idle")
        outcome.notes += _describe_locks(lock.release(busy))
    if not hosts:
        return
    if "rdma" in options.only:
        _run_pairs(hosts, lock, options, outcome, say)
    for name, part in PARTS:
        if name in options.only:
            for task, measurement in run_part(part, hosts, lock, options.timeout, say):
                _note(outcome, hosts[task.host], measurement, shlex.join(task.words))
    if "nccl" in options.only:
        for task, measurement in run_across(hosts, lock, options.timeout, say):
            _note(outcome, hosts[task.host], measurement, shlex.join(task.words))
    _write_figures(hosts, lock, outcome)


def _run_pairs(hosts: Mapping[str, Host], lock: Lock, options: Options, outcome: Outcome, say: Say) -> None:
    able = [name for name, host in hosts.items() if host.block.rdma.tests]
    without = [name for name in able if not hosts[name].devices]
    for name in without:
        _skip(outcome, name, "acceptance.rdma", "no RDMA device that the spec means")
    for name in able:
        if "rdma" in hosts[name].spec.capabilities and (why := describe_down(hosts[name])):
            fix = "see its cable and switch port, and gpuprov verify; or take the device out of rdma.devices"
            outcome.findings.append(
                Finding(
                    host=name,
                    check="acceptance.ports",
                    status="fail",
                    found=why,
                    expected="every port of rdma up",
                    fix=fix,
                )
            )
    able = [name for name in able if name not in without]
    if len(able) == 1:
        _skip(
            outcome,
            able[0],
            "acceptance.rdma",
            "a test between hosts needs two, and this run has one with an RDMA device",
        )
    planned = split_rounds(plan_rounds(able, options.pairs), options.forks or AT_A_TIME)
    met: set[str] = set()
    for unit, measurement in run_rounds(hosts, planned, lock, options.timeout, say):
        met |= {unit.client, unit.server}
        _note(outcome, hosts[unit.client], measurement, format_commands(unit))
    for name in able if len(able) > 1 else ():
        if name not in met:
            _skip(
                outcome,
                name,
                "acceptance.rdma",
                "no port that is up speaks what another host's does, or no test is asked for by both",
            )


def _skip(outcome: Outcome, host: str, check: str, why: str) -> None:
    outcome.findings.append(Finding(host=host, check=check, status="skip", found=why))


def _note(outcome: Outcome, host: Host, measurement: Measurement, evidence: str) -> None:
    """Judge a measurement and keep it. `evidence`: the command that shows the same by hand."""
    try:
        verdict = judge(host.block, measurement)
    except Exception as error:
        check = f"acceptance.{measurement.test}"
        message, fix = defect(f"the judge of {check}", error)
        outcome.findings.append(Finding(host=host.name, check=check, status="error", found=message, fix=fix))
        return
    host.measurements.append(measurement)
    outcome.findings.append(
        Finding(
            host=host.name,
            check=f"acceptance.{named(measurement)}",
            status=verdict.status,
            found=describe_measurement(measurement),
            expected=verdict.expected if verdict.status != "skip" else "",
            fix=verdict.fix if verdict.status in ("fail", "error") else "",
            evidence=evidence,
            measurement=measurement,
            verdict=verdict,
        )
    )


def _write_figures(hosts: Mapping[str, Host], lock: Lock, outcome: Outcome) -> None:
    """Write each host's figures to it, beside those of other tests, and report the hosts that were lost on the way."""
    for host in hosts.values():
        if host.lost:
            fix = "see why, then accept it again"
            outcome.findings.append(
                Finding(host=host.name, check="host.reachable", status="unreachable", found=host.lost, fix=fix)
            )
    kept = [
        host
        for host in hosts.values()
        if host.name in lock.held and any(not measurement.skipped for measurement in host.measurements)
    ]
    before = lock.phase({host.name: (LAST.script, 30.0) for host in kept})
    steps = {}
    for host in kept:
        text = msgspec.json.encode(_merge_figures(before.get(host.name), host.measurements)).decode()
        steps[host.name] = (scripts.write(RESULT, text), 30.0)
    for name, ran in lock.phase(steps).items():
        if name in steps and (ran.lost or ran.status):
            outcome.notes.append(f"{name}: {RESULT} could not be written")


def _merge_figures(before: object, measurements: Sequence[Measurement]) -> Record:
    """Merge the new figures with the old ones of tests that were not run now."""
    text = getattr(before, "text", "") if before and not getattr(before, "lost", None) else ""
    old = parse_record(Output(text))
    tests = {measurement.test for measurement in measurements}
    kept = [measurement for measurement in (old.measurements if old else ()) if measurement.test not in tests]
    return Record(measurements=(*kept, *(measurement for measurement in measurements if not measurement.skipped)))
