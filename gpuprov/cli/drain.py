"""The commands `gpuprov drain` and `gpuprov undrain`: parse, call, print, return the exit code."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from gpuprov.cli import complete, options
from gpuprov.cli.habits import combine
from gpuprov.cli.sections import Command, Seconds

C = TypeVar("C", bound=Callable[..., Any])


def _add_by(about: str, *, required: bool) -> Callable[[C], C]:
    return click.option("--by", required=required, type=click.Choice(["slurm", "kubernetes", "command"]), help=about)


_of_by = combine(
    click.option(
        "--command",
        default="",
        metavar="COMMAND",
        help="With --by command: the site's own command, run on this machine.",
    ),
    click.option("--context", default="", metavar="NAME", help="With --by kubernetes: kubectl's context."),
    click.option(
        "--poll",
        type=Seconds(0.1),
        metavar="SECONDS",
        help="Time between two looks, in seconds (10).",
    ),
)
# Add --by and the options that belong to it.
scheduler = combine(_add_by("What schedules the hosts.", required=True), _of_by)
# The same for a command that goes by the specs.
other_scheduler = combine(
    _add_by("What schedules the hosts, where their specs have neither slurm nor kubernetes.", required=False), _of_by
)


@click.command(cls=Command, short_help="Drain hosts from their scheduler and wait until they are free.")
@click.argument("host", metavar="HOST", shell_complete=complete.hosts)
@options.inventory
@scheduler
@click.option("--run", metavar="ID", help="Name of the run, which the scheduler shows as the reason (a new name).")
@click.option("--wait", type=Seconds(0), metavar="SECONDS", help="Wait at most this long; 0 looks once.")
@click.option(
    "--delete-emptydir-data",
    "empty_dir",
    is_flag=True,
    help="With --by kubernetes: also evict pods with an emptyDir, whose data is lost.",
)
@options.json_flag
def drain(host: str, inventory: options.InventoryOptions, run: str | None, **given: Any) -> int:
    """Take hosts out of their scheduler: nothing new starts there; what runs is waited for, and no job is ended.

    HOST is a host of the inventory, or a pattern as --limit takes it. A node that somebody else has drained, cordoned
    or taken down is left as it is. Done again, it goes on where it was. Exit code 1: jobs still run; 3: refused; 4: no
    answer.

    \b
    Example: gpuprov drain gpu017 inventory.yaml --by slurm --run friday
             gpuprov drain 'rack7' inventory.yaml --by kubernetes --wait 3600
    """
    from gpuprov.core import terminal
    from gpuprov.fleet.drain import adapter, format_undrain, many
    from gpuprov.fleet.drain.base import checked_run
    from gpuprov.fleet.drain.noted import Noted
    from gpuprov.plan.extra import new_run

    run = checked_run(run or new_run())
    hosts = options.raw_hosts(inventory._replace(limit=_join_patterns(host, inventory.limit)))
    chosen = adapter(
        given["by"],
        {raw.name: raw.connection for raw in hosts},
        command=given["command"],
        context=given["context"],
        empty_dir=given["empty_dir"],
    )
    noted = Noted(chosen, {raw.name: raw for raw in hosts})
    names = [raw.name for raw in hosts]
    with terminal.Progress(names, "draining") as progress:
        tell = _make_printer(progress)
        steps = many.take_out(noted, names, run, wait=given["wait"], poll=given["poll"], tell=tell)
    _warn_unrecorded(noted.untold)
    terminal.result(many.as_json(steps, run) if given["as_json"] else many.as_text(steps, "drained"))
    if any(step.state != "refused" for step in steps) and not given["as_json"]:
        undo = format_undrain(given["by"], run, command=given["command"], context=given["context"])
        terminal.fix(f"give them back: {undo}")
    return many.exit_code(steps)


@click.command(cls=Command, short_help="Return drained hosts to their scheduler once verify is green.")
@click.argument("host", metavar="HOST", shell_complete=complete.hosts)
@options.inventory
@options.reaching
@scheduler
@click.option("--run", required=True, metavar="ID", help="The run that drained them.")
@click.option("--unverified", is_flag=True, help="Skip verify: you vouch for the hosts.")
@options.json_flag
def undrain(host: str, inventory: options.InventoryOptions, run: str, **given: Any) -> int:
    """Return hosts that this run drained. Each is verified first; one that is not green stays drained.

    HOST is a host of the inventory, or a pattern as --limit takes it. What somebody else has drained or cordoned, or
    has given another reason since, is left as it is. Exit code 3: a host stays out.

    \b
    Example: gpuprov undrain gpu017 inventory.yaml --by slurm --run friday
    """
    from gpuprov.core import terminal
    from gpuprov.fleet.drain import adapter, many
    from gpuprov.fleet.drain.base import checked_run
    from gpuprov.fleet.drain.green import green
    from gpuprov.fleet.drain.noted import Noted

    run = checked_run(run)
    inventory = inventory._replace(limit=_join_patterns(host, inventory.limit))
    if given["unverified"]:
        options.reaches_nobody("--unverified", inventory)
        judged = {raw.name: (raw, True) for raw in options.raw_hosts(inventory)}
    else:
        pairs = options.load(inventory).pairs
        with terminal.Progress([raw.name for raw, _ in pairs], "verifying", quiet=True) as progress:
            proven = green(pairs, options.pace(inventory), progress.done)
        judged = {raw.name: (raw, proven[raw.name]) for raw, _ in pairs}
    variables = {name: raw.connection for name, (raw, _) in judged.items()}
    chosen = adapter(given["by"], variables, command=given["command"], context=given["context"])
    noted = Noted(chosen, {name: raw for name, (raw, _) in judged.items()})
    names = {name: is_green for name, (_, is_green) in judged.items()}
    with terminal.Progress(list(names), "giving back") as progress:
        steps = many.give_back(noted, names, run, poll=given["poll"], tell=_make_printer(progress))
    _warn_unrecorded(noted.untold)
    terminal.result(many.as_json(steps, run) if given["as_json"] else many.as_text(steps, "in service"))
    return many.exit_code(steps)


def _join_patterns(host: str, limit: str | None) -> str:
    """Return the hosts that are in both patterns."""
    # https://docs.ansible.com/ansible/latest/inventory_guide/intro_patterns.html
    return f"{host}:&{limit}" if limit else host


def _warn_unrecorded(untold: Mapping[str, str]) -> None:
    """Warn about hosts on which it could not be recorded that they are out, or in again."""
    from gpuprov.core import terminal
    from gpuprov.inventory.names import fold_names

    if untold:
        why = next(iter(untold.values()))
        terminal.fix(
            f"what verify says of {fold_names(untold)} will not know of this: no note could be left there ({why})"
        )


def _make_printer(progress: Any) -> Callable[[Any], None]:
    last: dict[str, str] = {}

    def tell(step: Any) -> None:
        if step.state in ("done", "refused"):
            progress.done(step.host, step.state)
            return
        message = ", ".join(step.waits_for[:3]) or step.message or step.state
        if last.get(step.host) != message:
            progress.update(step.host, message)
        last[step.host] = message

    return tell
