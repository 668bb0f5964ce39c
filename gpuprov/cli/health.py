"""The command `gpuprov health`: parse, call, return the exit code."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click

from gpuprov.cli import options
from gpuprov.cli.about import about
from gpuprov.cli.sections import Command
from gpuprov.report.files import ReportFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuprov.facts.collect.rounds import Pace
    from gpuprov.fleet.specs import Fleet
    from gpuprov.spec.model import HostSpec, RawHost
    from gpuprov.verify.evaluate import Result


@click.command(cls=Command, short_help="Say whether hosts are fit for work, and what NVIDIA says to do.")
@options.inventory
@options.reaching
@click.option("--since", metavar="TIME", help="Judge the kernel log from then on: boot, 24h, 7d, 2026-11-20T14:02.")
@click.option(
    "--reset-done",
    metavar="TIME",
    help="Record on the hosts that their GPUs were reset then (now, 10m, 2026-11-20T14:02): what a reset ends is past.",
)
@click.option(
    "--reset-gpu",
    "gpus",
    multiple=True,
    metavar="ADDRESS",
    help="With --reset-done: only this GPU was reset, by its PCI address; may be given again.",
)
@options.report_files
@options.read_limit
@options.recorded
@options.json_flag
def health(
    *,
    inventory: options.InventoryOptions,
    files: ReportFiles,
    since: str | None,
    reset_done: str | None,
    gpus: tuple[str, ...],
    timeout: float,
    records: tuple[Path, ...],
    as_json: bool,
) -> int:
    """Say whether each host is fit for work: yes, no, or not until it is reset or restarted. Changes nothing, but for
    the record of a reset that --reset-done leaves on a host.

    The checks of the capability `health`, also of hosts whose spec does not ask for it. What is to be done is what
    NVIDIA says: return the card, drain, reboot, reset, restart the program. Exit code 0: all are fit; 1: some are not,
    or it is not proven; 4: some cannot be reached. With --from no host is contacted: what a bug report, sosreport,
    capture, kernel log, nvidia-smi -q or ibstat holds is judged, also in a folder of many hosts; what it does not is
    not proven. It needs no inventory.

    \b
    Example: gpuprov health inventory.yaml --since 24h
             gpuprov health inventory.yaml --prometheus /var/lib/node_exporter/textfile/gpuprov-health.prom
             gpuprov health --from nvidia-bug-report.log.gz
             gpuprov health inventory.yaml --limit gpu017 --reset-done 10m --reset-gpu 0000:19:00.0
    """
    from gpuprov.capabilities.health import watched
    from gpuprov.cli.from_records import lacks_inventory
    from gpuprov.core.errors import GpuprovError
    from gpuprov.report import health as report
    from gpuprov.report import health_page, junit, retry
    from gpuprov.report.files import check_writable
    from gpuprov.report.results import deliver
    from gpuprov.verify.fitness import health_code, of_health

    if records:
        options.reaches_nobody("--from", inventory)
        if since is not None:
            raise GpuprovError("--since and --from: a record is judged over all that it holds", "leave --since out")
    refuse_reset_done(reset_done, gpus, records, inventory.limit)
    fleet = None if records and lacks_inventory(inventory) else options.load(inventory)
    check_writable(*files)
    began = monotonic()
    if fleet and reset_done is not None:
        record_resets(fleet, reset_done, gpus, timeout, inventory.forks)
    pairs = [(raw, watched(spec, since)) for raw, spec in fleet.pairs] if fleet else []
    took: dict[str, float] = {}
    if records:
        verified = _verify_records(fleet, pairs, records, named=bool(inventory.limit))
    else:
        verified = _verify_hosts(pairs, options.pace(inventory), timeout, took)
    results = of_health(verified)
    document = report.build_document(results, None if records else monotonic() - began)
    origin = about("health", inventory, None, {"from": records, **files._asdict()})
    text = None if as_json else partial(_format_text, results, verbose=inventory.verbose)
    deliver(
        document,
        text,
        (
            (files.junit, lambda: junit.render(results, took)),
            (files.html, lambda: health_page.render(results, origin, verbose=inventory.verbose)),
            (files.prometheus, lambda: report.as_metrics(results)),
        ),
    )
    bad = ("fail", "error", "unreachable")
    if fleet:
        retry.offer(
            "health", list(dict.fromkeys(result.host for result in results if result.status in bad)), len(pairs)
        )
    return health_code(results)


def _verify_records(
    fleet: Fleet | None, pairs: Sequence[tuple[RawHost, HostSpec]], records: tuple[Path, ...], *, named: bool
) -> list[Result]:
    """Judge the records of the fleet's hosts; without a fleet, of the hosts that they are of."""
    from gpuprov.capabilities.health import watched
    from gpuprov.cli import from_records
    from gpuprov.spec.model import HostSpec
    from gpuprov.verify.fitness import CAPABILITY

    if fleet is None:
        return from_records.verify_alone(records, lambda name: watched(HostSpec(name=name)), {CAPABILITY})
    return from_records.verify_records(fleet, pairs, records, {CAPABILITY}, named=named)


def _verify_hosts(
    pairs: Sequence[tuple[RawHost, HostSpec]], pace: Pace, timeout: float, took: dict[str, float]
) -> list[Result]:
    """Read the hosts, with progress on the terminal; `took` gets the seconds of each."""
    from gpuprov.core import terminal
    from gpuprov.verify.fitness import CAPABILITY
    from gpuprov.verify.verify import verify

    with terminal.Progress([raw.name for raw, _ in pairs], "reading", quiet=True) as progress:

        def on_done(host: str, _: object) -> None:
            progress.done(host)

        return verify(pairs, only={CAPABILITY}, pace=pace, timeout=timeout, on_done=on_done, took=took)


def _format_text(results: Sequence[Result], *, verbose: bool) -> str:
    import sys

    from gpuprov.core import terminal
    from gpuprov.report import health as report

    width = min(terminal.width(), 120)
    return report.as_text(results, colour=terminal.coloured(sys.stdout), width=width, verbose=verbose)


def refuse_reset_done(at: str | None, gpus: tuple[str, ...], records: tuple[Path, ...], limit: str | None) -> None:
    """Raise GpuprovError where --reset-done and its --reset-gpu cannot work, before a host is read."""
    from gpuprov.core.errors import GpuprovError
    from gpuprov.repair.reset_done import check_request

    if at is None:
        if gpus:
            raise click.UsageError("--reset-gpu names the GPUs of --reset-done, which is not given")
        return
    if records:
        raise GpuprovError(
            "--reset-done and --from: a record cannot be changed", "leave --from out, to record it on the host"
        )
    if not limit:
        raise GpuprovError("--reset-done is about named hosts, and --limit names none", "add --limit HOST")
    check_request(at, gpus)


def record_resets(fleet: Fleet, at: str, gpus: tuple[str, ...], timeout: float, forks: int) -> None:
    """Record the reset on the fleet's hosts, and say so."""
    from gpuprov.capabilities.health.past import moment
    from gpuprov.core import terminal
    from gpuprov.plan.extra import new_run
    from gpuprov.repair import reset_done
    from gpuprov.repair.hosts import ReachedHosts
    from gpuprov.repair.model import Options

    hosts = ReachedHosts(fleet.pairs, Options(run=new_run(), timeout=timeout, forks=forks))
    for name, mark in reset_done.record_resets([raw.name for raw, _ in fleet.pairs], hosts, at, gpus).items():
        terminal.progress(f"{name}: recorded: {', '.join(mark.gpus) or 'all GPUs'} reset at {moment(mark.at)}")
