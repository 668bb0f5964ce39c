"""The command `gpuprov show`: parse, call, return the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuprov.cli import complete, options
from gpuprov.cli.about import about
from gpuprov.cli.from_records import read_records
from gpuprov.cli.host_argument import of_host
from gpuprov.cli.sections import Command, Written

if TYPE_CHECKING:
    from gpuprov.fleet.specs import Fleet


@click.command(cls=Command, short_help="List what a host should have; all about a host as a page.")
@click.argument("host", metavar="HOST", shell_complete=complete.hosts)
@options.inventory
@options.reaching
@click.option("--file", "path", metavar="PATH", help="Print the text of this file of the host, and nothing else.")
@click.option(
    "--html",
    type=Written(),
    help="Also write a page about the one host: what it is, verdict and fixes, topology, MIG, what changed, kernel "
    "log.",
)
@options.capabilities
@options.read_limit
@options.recorded
@options.json_flag
def show(
    *,
    host: str,
    inventory: options.InventoryOptions,
    path: str | None,
    html: Path | None,
    only: str | None,
    timeout: float,
    records: tuple[Path, ...],
    as_json: bool,
) -> int:
    """List the files, units, settings and kernel modules that a host should have, and how it has them. Changes nothing.

    HOST is a host of the inventory, or a pattern as --limit takes it. What apply would write is worked out from the
    spec and from what the host is, or a record of it with --from; --file prints the text of one file. With --html one
    page says all that a ticket needs, also where nothing is reached but a record. Exit code 0: all is as it should be,
    the page's verdict included; 1: some is not, or not known; 4: a host cannot be reached.

    \b
    Example: gpuprov show gpu001 inventory.yaml
             gpuprov show gpu017 inventory.yaml --html gpu017.html --from gpu017.capture.json
             gpuprov show gpu001 inventory.yaml --file /etc/systemd/system/gpuprov-mig.service
    """
    from gpuprov.report import listing as report
    from gpuprov.report.files import check_writable

    if path is not None and as_json:
        raise click.UsageError("--file prints a text, --json a document: one of them")
    if records:
        options.reaches_nobody("--from", inventory)
    fleet = of_host(host, inventory, options.load)
    names = options.only(only)
    options.ask_something(fleet, names)
    check_writable(html)
    least = 0
    if html:
        origin = about("show", inventory, files={"from": records, "html": html}, host=host)
        readings, unread, least = _write_page(fleet, names, records, timeout, (html, origin, inventory))
    else:
        readings, unread = _read(fleet, names, records, timeout, inventory)
    return max(least, report.show(readings, unread, path=path, as_json=as_json, verbose=inventory.verbose))


def _write_page(fleet: Fleet, names: Any, records: tuple[Path, ...], timeout: float, page: Any) -> Any:
    """Write the page of the one host; return the same as `_read`, of the same reading, and 1 unless the page is
    green."""
    from gpuprov.capabilities import BY_NAME
    from gpuprov.core import terminal
    from gpuprov.facts.probes.base import Facts
    from gpuprov.host_page.page import judge, render
    from gpuprov.host_page.read import read_host, read_recorded, require_one_host
    from gpuprov.report.files import write_atomic
    from gpuprov.verify.listing import listing
    from gpuprov.verify.recorded import list_names

    file, origin, inventory = page
    raw, spec = require_one_host(fleet.pairs)
    if records:
        known = list_names(fleet.pairs, fleet.left_out)
        host = read_recorded(
            raw, spec, read_records(records, warn=False, hosts=known), fleet.left_out, note=terminal.progress
        )
    else:
        host = read_host(raw, spec, timeout=timeout, pace=options.pace(inventory))
    write_atomic(file, render(host, origin))
    verdict = judge(host)
    terminal.progress(f"{file}: {verdict.sentence}")
    least = int(verdict.state != "right")
    if not isinstance(host.facts, Facts):
        return [], {raw.name: str(host.facts)}, least
    return [listing(spec, host.facts, BY_NAME, names)], {}, least


def _read(
    fleet: Fleet, names: Any, records: tuple[Path, ...], timeout: float, inventory: options.InventoryOptions
) -> Any:
    """Return the listings, and by host why it could not be read."""
    from gpuprov.capabilities import BY_NAME
    from gpuprov.core import terminal
    from gpuprov.core.errors import GpuprovError
    from gpuprov.facts.collect import gather
    from gpuprov.facts.probes.base import Facts
    from gpuprov.inventory.names import fold_names
    from gpuprov.verify import recorded
    from gpuprov.verify.listing import listing, probes_of

    if records:
        known = recorded.list_names(fleet.pairs, fleet.left_out)
        readings: Any = recorded.read(
            fleet.pairs, read_records(records, hosts=known), named=True, others=fleet.left_out, note=terminal.progress
        )
        if left := [raw.name for raw, _ in fleet.pairs if raw.name not in readings]:
            if not readings:
                raise GpuprovError(
                    f"--from names no record of {fold_names(left)}", "name its record, or a folder that has it"
                )
            terminal.progress(f"not shown, since no record is of them: {fold_names(left)}")
    else:
        requests = [(raw, probes_of(spec, BY_NAME, names)) for raw, spec in fleet.pairs]
        readings = gather(requests, timeout=timeout, pace=options.pace(inventory))
    read = {name: facts for name, facts in readings.items() if isinstance(facts, Facts)}
    listings = [listing(spec, read[raw.name], BY_NAME, names) for raw, spec in fleet.pairs if raw.name in read]
    return listings, {name: str(why) for name, why in readings.items() if name not in read}
