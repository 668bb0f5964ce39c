"""The command `gpuprov diff`: parse, call, return the exit code."""

from pathlib import Path

import click

from gpuprov.cli import complete, options
from gpuprov.cli.host_argument import of_host
from gpuprov.cli.login import logged_in
from gpuprov.cli.sections import Command


@click.command(cls=Command, short_help="Show how two hosts differ.")
@click.argument("left", metavar="HOST|FILE", shell_complete=complete.hosts)
@click.argument("right", metavar="HOST|FILE")
@click.argument("sources", metavar="[INVENTORY]...", nargs=-1, shell_complete=complete.files)
@options.inventories("inventories", "An inventory, as with Ansible; the same as the argument.")
@options.reading
@options.reaching
@options.read_limit
@options.json_flag
def diff(left: str, right: str, inventory: options.InventoryOptions, timeout: float, as_json: bool) -> int:
    """Show how two hosts, a host and a file, or two files differ, by capability: their state as export reads it,
    whatever their specs say.

    FILE is what gpuprov export wrote of one host (.yaml), or a record of one: a capture, an nvidia-bug-report.log, an
    sosreport. Two files need no inventory. Changes nothing.

    \b
    Example: gpuprov diff gpu017 gpu018 inventory.yaml
             gpuprov diff gpu017 golden.yaml -i inventory.yaml -u admin -K
             gpuprov diff gpu017.capture.json gpu018.capture.json
    """
    from gpuprov.core.errors import GpuprovError
    from gpuprov.export import difference
    from gpuprov.report import difference as report
    from gpuprov.spec.model import RawHost

    right_is_file = Path(right).exists()
    files = [Path(name) for name in (left, right) if right_is_file and Path(name).exists()]
    names = [name for name in (left, right) if Path(name) not in files]
    hosts: list[RawHost] = []
    for name in names:
        read_only = inventory._replace(limit=None, user=None, ask_become_pass=False)
        raws = of_host(name, read_only, options.raw_hosts)
        if len(raws) != 1:
            raise GpuprovError(f'"{name}" means {len(raws)} hosts, and one can be compared', "name one host")
        hosts += raws
    others = [difference.of_file(file) for file in files]
    hosts = list(
        logged_in(hosts, inventory.user, ask=inventory.ask_become_pass)
    )  # both at once: a password is asked for once
    sides = difference.of_hosts(hosts, timeout=timeout, pace=options.pace(inventory))
    return report.show(difference.compare(*sides, *others), as_json=as_json)
