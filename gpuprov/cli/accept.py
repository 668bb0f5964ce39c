"""The command `gpuprov accept`: parse, call, return the exit code."""

from typing import Any

import click

from gpuprov.cli import complete, options
from gpuprov.cli.about import about
from gpuprov.cli.sections import Command, Seconds, Written

FILE = Written()


@click.command(cls=Command, short_help="Run acceptance tests: do the hosts perform as specified?")
@options.inventory
@options.reaching
@click.option(
    "--only",
    metavar="NAME,...",
    shell_complete=complete.tests,
    help="Only these: rdma, nccl, nvbandwidth, dcgm, stream.",
)
@click.option(
    "--pairs",
    type=click.Choice(["auto", "all", "ring"]),
    default="auto",
    show_default=True,
    help="Which hosts are tested with each other; auto: all pairs of up to 8 hosts, else a ring.",
)
@click.option(
    "--timeout",
    type=Seconds(5),
    default=60.0,
    show_default=True,
    help="Time limit of a test beyond its measurement, in seconds.",
)
@click.option(
    "--in-use", is_flag=True, help="Also test hosts whose GPUs or HCAs are in use; this disturbs their processes."
)
@options.break_lock
@click.option("--junit", type=FILE, help="Write JUnit XML to this file.")
@click.option("--html", type=FILE, help="Write one self-contained HTML page, with the heat maps, to this file.")
@click.option("--svg", type=FILE, help="Write the heat maps of pairs to this file.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@options.json_flag
def accept(inventory: options.InventoryOptions, only: str | None, yes: bool, **given: Any) -> int:
    """Run the acceptance tests, under each host's lock: do the hosts perform as their specs say?

    Loads GPUs and network fully, so it runs on request only, and refuses hosts that are in use.

    \b
    Example: gpuprov accept inventory.yaml --limit training --only rdma --html accept.html
    """
    from gpuprov import accept as accepting

    names = [name.strip() for name in (only or ",".join(accepting.KINDS)).split(",") if name.strip()]
    for name in names:
        if name not in accepting.KINDS:
            raise click.UsageError(f'--only: there is no test "{name}"; allowed: {", ".join(accepting.KINDS)}')
    if not names:
        raise click.UsageError(f"--only names no test; allowed: {', '.join(accepting.KINDS)}")
    fleet = options.load(inventory)
    if not yes:
        options.must_be_able_to_ask("accept asks before it loads the hosts", "--yes")
    chosen = accepting.Options(only=tuple(names), yes=yes, forks=inventory.forks, verbose=inventory.verbose, **given)
    page = about("accept", inventory, names if only else None, {"html": chosen.html}) if chosen.html else None
    return accepting.run(fleet.pairs, chosen, page)
