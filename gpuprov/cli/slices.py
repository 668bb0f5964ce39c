"""The commands freeze, slice, work and fold: parse, call, print, return the exit code."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from gpuprov.cli import complete, options

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(short_help="Write a resolved inventory to a file, without secrets.")
@options.inventory
@click.option("-o", "--out", required=True, type=FILE, help="File to write.")
@click.option(
    "--domain", "domains", multiple=True, metavar="VARIABLE", help="Keep this host variable, too, to slice by."
)
def freeze(sources: tuple[str, ...], out: Path, domains: tuple[str, ...], **reading: Any) -> int:
    """Write what the inventory asks of its hosts to a file, for gpuprov slice. Touches no host.

    Each spec stands once. Passwords and other secrets are left out, and named. Of variables that say nothing of a connection,
    site and rack are kept, and those that --domain names.

    \b
    Example: gpuprov freeze inventory.yaml --out fleet.json
             gpuprov slice fleet.json --size 50 --by rack --out jobs
    """
    from gpuprov import console
    from gpuprov.report.files import check_writable
    from gpuprov.slices import frozen, stored

    check_writable(out)
    fleet = options.load(sources, reading, also=(*frozen.DOMAINS, *domains))
    made = frozen.freeze(fleet, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    stored.save(made, out)
    if secret := sorted({name for host in made.hosts for name in host.secrets}):
        console.progress(f"left out, because they are secrets: {', '.join(secret)}; gpuprov work takes them again")
    if fleet.unmanaged:
        console.progress(f"left out, because they have no spec: {len(fleet.unmanaged)} hosts")
    console.progress(f"{len(made.hosts)} hosts, {len(made.specs)} specs in {out}; digest {made.digest}")
    return 0


@click.command("slice", short_help="Cut a frozen inventory into jobs.")
@click.argument("fleet", metavar="FILE", type=FILE, shell_complete=complete.files)
@click.option("--size", type=click.IntRange(min=1), default=50, show_default=True, help="Hosts in a job, at most.")
@click.option("--by", metavar="GROUP|VARIABLE", default="", help="No job has hosts of two of its groups, or values.")
@click.option("-o", "--out", required=True, type=FOLDER, help="Folder to write.")
@options.common
def slice_(fleet: Path, size: int, by: str, out: Path, **given: Any) -> int:
    """Cut what gpuprov freeze wrote into jobs, files that gpuprov work does on any machine that reaches their hosts.

    --by GROUP: a job has hosts of one of the groups in GROUP; --by rack: of one rack, where hosts have that variable.

    \b
    Example: gpuprov slice fleet.json --size 50 --by site --out jobs
    """
    from gpuprov import console
    from gpuprov.slices import cut, stored

    jobs = cut.cut(stored.load_fleet(fleet), size, by)
    cut.save(jobs, out)
    if given["verbose"]:
        for line in cut.told(jobs):
            console.progress(line)
    hosts = sum(len(job.hosts) for job in jobs)
    console.progress(f"{hosts} hosts in {len(jobs)} jobs in {out}")
    return 0
