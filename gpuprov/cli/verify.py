"""The command `gpuprov verify`: parse, call, return the exit code."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from gpuprov.cli import options
from gpuprov.cli.about import about
from gpuprov.cli.sections import Command, Seconds
from gpuprov.report.files import ReportFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuprov.facts.collect.rounds import Pace
    from gpuprov.fleet.specs import Fleet
    from gpuprov.report.fleet import Known
    from gpuprov.verify.evaluate import Result

BAD = ("fail", "error", "unreachable")


@click.command(cls=Command, short_help="Prove that hosts match their specs, now and after a reboot.")
@options.inventory
@options.reaching
@options.capabilities
@options.report_files
@click.option(
    "--timeout", metavar="SECONDS", type=Seconds(1), default=60.0, show_default=True, help="Time limit of one host."
)
@options.recorded
@options.json_flag
def verify(
    inventory: options.InventoryOptions,
    files: ReportFiles,
    only: str | None,
    timeout: float,
    records: tuple[Path, ...],
    as_json: bool,
) -> int:
    """Prove that the hosts match their specs, now and after the next boot. Changes nothing.

    With --from no host is contacted: a bug report, sosreport, must-gather or capture is judged in its place. A check
    whose facts are not in it is skipped, and says so.

    \b
    Example: gpuprov verify inventory.yaml --junit report.xml --html report.html
             gpuprov verify inventory.yaml --limit gpu017 --from nvidia-bug-report.log.gz
    """
    from gpuprov.report import results as reporting
    from gpuprov.report import retry
    from gpuprov.report.files import check_writable
    from gpuprov.verify import unasked
    from gpuprov.verify.verify import exit_code

    if records:
        options.reaches_nobody("--from", inventory)
    fleet = options.load(inventory)
    options.ask_something(fleet, options.only(only))
    check_writable(*files)
    beside = unasked.Unasked(fleet.pairs)
    page = _PageFacts(fleet) if files.html else None
    also: tuple[Any, ...] = (*(page.probes if page else ()), *unasked.PROBES)

    def note(host: str, outcome: Any) -> None:
        if page:
            page.note(host, outcome)
        beside.note(host, outcome)

    took: dict[str, float] = {}
    whole: float | None = None
    if records:
        from gpuprov.cli.from_records import verify_records

        results = verify_records(fleet, fleet.pairs, records, options.only(only), named=bool(inventory.limit))
    else:
        pace = options.pace(inventory)
        results, took, whole = _verify_hosts(fleet, options.only(only), timeout, pace, also, note)
    asked = {"from": records, **files._asdict()}
    reporting.show(
        results,
        as_json=as_json,
        verbose=inventory.verbose,
        files=files,
        took=took,
        seconds=whole,
        about=about("verify", inventory, options.only(only), asked) if page else None,
        known=page.hosts if page else {},
    )
    beside.tell()
    retry.offer(
        "verify", list(dict.fromkeys(result.host for result in results if result.status in BAD)), len(fleet.pairs)
    )
    return exit_code(results)


class _PageFacts:
    """What the HTML page says of hosts beside their results."""

    def __init__(self, fleet: Fleet) -> None:
        from gpuprov.report.known import PROBES, known

        self.probes = PROBES
        self._raws = {raw.name: raw for raw, _ in fleet.pairs}
        self.hosts: dict[str, Known] = {name: known(raw) for name, raw in self._raws.items()}

    def note(self, host: str, outcome: Any) -> None:
        """Keep what a host has answered."""
        from gpuprov.facts.probes.base import Facts
        from gpuprov.report.known import known

        if isinstance(outcome, Facts):
            self.hosts[host] = known(self._raws[host], outcome)


def _verify_hosts(
    fleet: Fleet,
    only: frozenset[str] | None,
    timeout: float,
    pace: Pace,
    also: tuple[Any, ...],
    on_done: Callable[[str, Any], None],
) -> tuple[list[Result], dict[str, float], float]:
    """Read the hosts, with progress on the terminal. Returns the results, the seconds of each host, and of all."""
    from gpuprov.core import durations, terminal
    from gpuprov.verify.verify import verify as prove

    started, took = monotonic(), dict[str, float]()
    selected = only or {name for _, spec in fleet.pairs for name in spec.capabilities}
    names, earlier = [raw.name for raw, _ in fleet.pairs], durations.earlier("verify", selected)
    with terminal.Progress(names, "verifying", quiet=True, earlier=earlier) as progress:

        def done(host: str, outcome: Any) -> None:
            on_done(host, outcome)
            progress.done(host)

        results = prove(fleet.pairs, only=only, pace=pace, timeout=timeout, on_done=done, took=took, also=also)
    whole = monotonic() - started
    durations.note("verify", selected, whole, len(fleet.pairs))
    return results, took, whole
