"""The command `gpuprov topology`: parse, call, return the exit code."""

from pathlib import Path

import click

from gpuprov.cli import complete, habits, options
from gpuprov.cli.host_argument import of_host
from gpuprov.cli.sections import Command, Written


@click.command(cls=Command, short_help="Draw a host's topology: GPUs, NVLinks, PCIe, NUMA, HCAs.")
@click.argument("host", metavar="HOST", shell_complete=complete.hosts)
@options.inventory
@options.reaching
@click.option("--svg", type=Written(), help="Also write a picture to this file.")
@habits.refused("--from", why="gpuprov show HOST --html FILE --from draws the topology of a record")
@options.read_limit
@options.json_flag
def topology(host: str, inventory: options.InventoryOptions, svg: Path | None, timeout: float, as_json: bool) -> int:
    """Draw what is wired to what on a host: GPUs, NVLinks, PCIe switches, NUMA nodes, HCAs. Changes nothing.

    HOST is a host of the inventory, or a pattern as --limit takes it. Names each GPU's nearest HCA, and what is wrong:
    rails that do not match, lowered PCIe links, NVLinks that are down, pairs on different sockets.

    \b
    Example: gpuprov topology gpu001 inventory.yaml --svg gpu001.svg
    """
    from gpuprov.facts.collect import gather
    from gpuprov.hardware.topology import command
    from gpuprov.hardware.topology.model import CABLED
    from gpuprov.report.files import check_writable, write_atomic

    hosts = of_host(host, inventory, options.raw_hosts)
    check_writable(svg)
    if svg:
        command.require_one_host([raw.name for raw in hosts])
    gathered = gather([(raw, CABLED) for raw in hosts], timeout=timeout, pace=options.pace(inventory))
    code, picture = command.show(gathered, as_json=as_json)
    if svg and picture:
        write_atomic(svg, picture)
    return code
