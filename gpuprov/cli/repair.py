"""The command `gpuprov repair`: parse, call, print, return the exit code."""

from pathlib import Path
from typing import Any

import click

from gpuprov.cli import habits, options
from gpuprov.cli.about import about
from gpuprov.cli.drain import other_scheduler
from gpuprov.cli.sections import Command, Seconds, Written
from gpuprov.core.errors import GpuprovError


@click.command(cls=Command, short_help="Reset the GPUs of unfit hosts, then reboot, then write a ticket.")
@options.inventory
@options.reaching
@click.option("--check", is_flag=True, help="Show the plan, and do nothing.")
@click.option("--reboot", is_flag=True, help="Permit one reboot per host in this run, whatever the spec says.")
@click.option("--no-drain", is_flag=True, help="The hosts are out of service: ask no scheduler.")
@other_scheduler
@click.option(
    "--wait", type=Seconds(0), metavar="SECONDS", help="Wait at most this long for jobs to end; 0 looks once."
)
@click.option(
    "--max-out", metavar="N|N%", default="1", show_default=True, help="Hosts of the inventory that may be out at once."
)
@click.option(
    "--max-fail", metavar="N|N%", default="0", show_default=True, help="Hosts given up or refused before the run stops."
)
@options.break_lock
@click.option("--run", metavar="ID", help="Name of the run, which the scheduler shows as the reason (a new name).")
@click.option("--ticket-dir", type=Written(folder=True), help="Folder for the tickets of hosts that are given up.")
@habits.refused(
    "--from",
    why="a record cannot be repaired; gpuprov health --from says what its host needs, gpuprov show --html makes its "
    "page",
)
@options.read_limit
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@options.json_flag
def repair(
    inventory: options.InventoryOptions,
    ticket_dir: Path | None,
    as_json: bool,
    no_drain: bool,
    run: str | None,
    **given: Any,
) -> int:
    """Repair hosts that health calls unfit until a reset or a reboot: drain, reset the GPUs, reboot if that did not
    help, and give the host back when it is fit. What no software repairs gets a ticket: a page and a JSON file.

    The plan is shown first. Services that hold GPUs are stopped and started again; no job is ended: a host on whose
    GPUs a process runs is refused. Exit code 0: all are fit; 1: some are not, or it is not proven; 3: given up or
    refused; 4: not reached; 5: locked; 130: interrupted.

    \b
    Example: gpuprov repair inventory.yaml --limit gpu017 --check
             gpuprov repair inventory.yaml --max-out 2% --max-fail 3 --yes
    """
    from gpuprov.core import terminal
    from gpuprov.fleet.drain.base import checked_run
    from gpuprov.plan.extra import new_run
    from gpuprov.repair import command
    from gpuprov.repair.document import build_document
    from gpuprov.repair.hosts import ReachedHosts
    from gpuprov.repair.model import Options
    from gpuprov.repair.text import as_text
    from gpuprov.repair.ticket import make_folder, write_tickets
    from gpuprov.report import retry
    from gpuprov.report.results import deliver

    fleet = options.load(inventory)
    if not given["yes"] and not given["check"]:
        options.must_be_able_to_ask("repair asks before it changes anything", "--yes, or --check to see the plan")
    chosen = Options(
        **habits.keep_given(given),
        drain=not no_drain,
        run=checked_run(run or new_run()),
        forks=inventory.forks,
        total=len(fleet.pairs) + len(fleet.left_out),
    )
    if not chosen.check:
        make_folder(ticket_dir)
    done = command.run(fleet.pairs, ReachedHosts(fleet.pairs, chosen), chosen, terminal.progress)
    problem = None
    try:
        if not chosen.check:
            write_tickets(fleet.pairs, done, ticket_dir, about("repair", inventory))
    except GpuprovError as error:  # after what was done on the hosts has been reported
        problem = error
    deliver(build_document(done), None if as_json else lambda: as_text(done, min(terminal.width(), 120)))
    bad = [host.host for host in done.hosts if host.state not in command.GREEN]
    retry.offer("repair", bad, len(done.hosts))
    if problem:
        raise problem
    return done.exit_code
