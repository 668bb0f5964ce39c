"""The command `gpuprov show`: parse, call, return the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gpuprov.cli import complete, options
from gpuprov.cli.host_argument import of_host
from gpuprov.cli.sections import Command


@click.command(cls=Command, short_help="List what a host should have, and the text of each file.")
@click.argument("host", metavar="HOST", shell_complete=complete.hosts)
@options.inventory
@options.reaching
@click.option("--file", "path", metavar="PATH", help="Print the text of this file of the host, and nothing else.")
@options.capabilities
@options.read_limit
@options.recorded
@options.json_flag
def show(
    host: str,
    sources: tuple[str, ...],
    path: str | None,
    only: str | None,
    timeout: float,
    records: tuple[Path, ...],
    as_json: bool,
    **reading: Any,
) -> int:
    """List the files, units, settings and kernel modules that a host should have, and how it has them. Changes nothing.

    HOST is a host of the inventory, or a pattern as --limit takes it. What apply would write is worked out from the spec and from
    what the host is, or a record of it with --from; --file prints the text of one file. Exit code 0: all is as it should be; 1: some
    is not, or not known; 4: a host cannot be reached.

    \b
    Example: gpuprov show gpu001 inventory.yaml
             gpuprov show gpu001 inventory.yaml --file /etc/systemd/system/gpuprov-mig.service
    """
    from gpuprov.report import listing as report

    if path is not None and as_json:
        raise click.UsageError("--file prints a text, --json a document: one of them")
    if records:
        options.reaches_nobody("--from", reading)
    fleet = of_host(host, sources, reading, options.load)
    names = options.only(only)
    options.ask_something(fleet, names)
    found, unread = _read(fleet.pairs, names, records, timeout, reading)
    return report.show(found, unread, path=path, as_json=as_json, verbose=reading["verbose"])


def _read(pairs: Any, names: Any, records: tuple[Path, ...], timeout: float, reading: dict[str, Any]) -> Any:
    """Return the listings, and by host why it could not be read."""
    from gpuprov import console
    from gpuprov.capabilities import BY_NAME
    from gpuprov.gather import gather
    from gpuprov.inventory.names import fold_names
    from gpuprov.probe.base import Facts
    from gpuprov.verify import recorded
    from gpuprov.verify.listing import listing, probes_of

    if records:
        found: Any = recorded.read(pairs, options.read_records(records), named=True)
        if left := [raw.name for raw, _ in pairs if raw.name not in found]:
            console.progress(f"not shown, since no record is of them: {fold_names(left)}")
    else:
        asked = [(raw, probes_of(spec, BY_NAME, names)) for raw, spec in pairs]
        found = gather(asked, timeout=timeout, pace=options.pace(reading))
    read = {name: facts for name, facts in found.items() if isinstance(facts, Facts)}
    listings = [listing(spec, read[raw.name], BY_NAME, names) for raw, spec in pairs if raw.name in read]
    return listings, {name: str(why) for name, why in found.items() if name not in read}
