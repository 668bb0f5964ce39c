"""The command `gpuprov rollback`: parse, call, return the exit code."""

from typing import Any

import click

from gpuprov.cli import complete, options
from gpuprov.cli.sections import Command, Written


@click.command(cls=Command, short_help="Take hosts back to the last state that verify called green.")
@click.argument("host", metavar="HOST", shell_complete=complete.hosts)
@options.inventory
@options.reaching
@click.option("--to", metavar="RUN", default="", help="Use the checkpoint of this run instead of the last one.")
@click.option("--reboot", is_flag=True, help="Permit one reboot per host in this run, whatever its spec says.")
@click.option("--serial", metavar="N|N%", default="", help="Hosts in one batch; verify gates the next batch.")
@click.option("--max-fail", metavar="N|N%", default="0", show_default=True, help="Failures tolerated before it stops.")
@click.option(
    "--drain", metavar="COMMAND", help="Run on a host whose GPUs are in use, before its driver changes; as with apply."
)
@options.break_lock
@options.act_limit
@click.option("--log-dir", type=Written(folder=True), help="Folder for the log of the run.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@options.json_flag
def rollback(host: str, inventory: options.InventoryOptions, to: str, **given: Any) -> int:
    """Take hosts back to the last state that verify called green, or to that of a run; then verify.

    HOST is a host of the inventory, or a pattern as --limit takes it. Each apply that ends green leaves a checkpoint on
    its host: the spec that was applied, with exact versions, and the packages as files. That spec is applied again,
    after the same question and checks, and under the same lock; the inventory's own is not read. What cannot be taken
    back is named first. Exit codes: as of apply.

    \b
    Example: gpuprov rollback gpu017 inventory.yaml
             gpuprov rollback 'rack7' inventory.yaml --to 3f9a01bc --serial 4
    """
    from gpuprov import apply as applying

    if inventory.limit:
        raise click.UsageError("rollback takes its hosts as the first argument: leave out --limit")
    hosts = options.raw_hosts(inventory._replace(limit=host))
    settings = applying.Options(**given, act="rollback", forks=inventory.forks, verbose=inventory.verbose)
    if not settings.yes:
        options.must_be_able_to_ask("rollback asks before it changes anything", "--yes")
    return applying.run_rollback(hosts, settings, to)
