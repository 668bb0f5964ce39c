"""The commands `gpuprov rollout ...`: parse, call, return the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuprov.cli import complete, engine, habits, options
from gpuprov.cli.sections import Group
from gpuprov.rollout.temporal.connect import Connection

if TYPE_CHECKING:
    from gpuprov.jobs.model import Fleet

FILE = click.Path(dir_okay=False, path_type=Path)
C = TypeVar("C", bound=Callable[..., Any])


@click.group(cls=Group)
def rollout() -> None:
    """Roll out over a fleet by a policy; no kill loses its state.

    \b
    Example: gpuprov rollout start inventory.yaml --policy rollout.yaml --id friday
             gpuprov rollout status friday
    """


def known(command: C) -> C:
    """Add the ID of a roll-out; without one, the only one that is open."""
    return click.argument("rollout", metavar="[ID]", required=False, default="")(engine.engine(options.common(command)))


# --why: the reason, for people who look at it later.
why = click.option("--why", default="", metavar="TEXT", help="The reason, for whoever looks at it later.")


@rollout.command(short_help="Start a roll-out and carry it out.")
@options.inventory
@click.option("--policy", required=True, type=FILE, shell_complete=complete.files, help="The policy, a YAML file.")
@click.option("--id", "name", default="", metavar="ID", help="Its name (the date and some letters).")
@habits.forks
@habits.user
@habits.refused(
    "-K",
    "--ask-become-pass",
    why="the processes of a roll-out ask nobody, and outlive this one; say ansible_become_password in the "
    "inventory, encrypted with ansible-vault, and give --vault-password-file",
    is_flag=True,
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@options.json_flag
@engine.engine
def start(
    inventory: options.InventoryOptions,
    connection: Connection,
    policy: Path,
    name: str,
    yes: bool,
    as_json: bool,
) -> int:
    """Freeze the inventory, start a roll-out of it by the policy, and carry it out in this process.

    After a kill, gpuprov rollout resume ID or the same command continues where it was. Ctrl-C pauses it and waits for
    what is under way. Two roll-outs never have a host in common.

    \b
    Example: gpuprov rollout start inventory.yaml --policy rollout.yaml --id friday --limit training
    """
    from datetime import UTC, datetime

    from gpuprov.fleet.policy import policy as policies
    from gpuprov.inventory import load
    from gpuprov.jobs import frozen, secrets
    from gpuprov.rollout import command

    if inventory.ask_vault_pass:
        raise click.UsageError("--ask-vault-pass: the processes of a roll-out ask nobody; give --vault-password-file")
    rules = policies.load(policy)
    carrier = engine.choose_engine(connection)
    also = dict.fromkeys([*frozen.DOMAINS, *(by for by in (rules.domain, rules.site) if by)])
    fleet = options.load(inventory, also=tuple(also))
    made = frozen.freeze(fleet, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    if inventory.extra_vars and any(host.secrets for host in made.hosts):
        known = load(options.all_sources(inventory), vault_password_files=inventory.vault_password_files).hosts
        secrets.refuse_others(
            (raw for raw, _ in fleet.pairs), made.hosts, {raw_host.name: raw_host for raw_host in known}
        )

    def words(run: str, frozen_fleet: Fleet) -> Sequence[str]:
        return _build_work_command(run, frozen_fleet, inventory)

    return command.start(carrier, made, policy, name, words, yes=yes, as_json=as_json)


def _build_work_command(run: str, frozen_fleet: Fleet, inventory: options.InventoryOptions) -> list[str]:
    """Return the command of a process that works on jobs of this roll-out."""
    arguments = [sys.executable, "-P", "-m", "gpuprov", "fleet", "work", "--run", run]
    arguments += ["--forks", str(inventory.forks)] if inventory.forks else []
    if any(host.secrets for host in frozen_fleet.hosts):
        sources = [str(Path(source).absolute()) for source in options.all_sources(inventory)]
        arguments += [word for source in sources for word in ("--secrets", source)]
        arguments += [word for path in inventory.vault_password_files for word in ("--vault-password-file", path)]
    return arguments


@rollout.command(short_help="Show the state of roll-outs.")
@known
@click.option("--all", "everything", is_flag=True, help="List all roll-outs, also those that are over.")
@options.json_flag
def status(rollout: str, everything: bool, as_json: bool, connection: Connection, **_given: Any) -> int:
    """Show the state of a roll-out: its batches, and the hosts that need attention. ID may be left out while only one
    is open.

    \b
    Example: gpuprov rollout status friday --json
    """
    from gpuprov.rollout import command

    carrier = engine.choose_engine(connection)
    return command.listed(carrier, as_json=as_json) if everything else command.show(carrier, rollout, as_json=as_json)


@rollout.command(short_help="Show events as they happen.")
@known
@options.json_flag
def watch(rollout: str, as_json: bool, connection: Connection, **_given: Any) -> int:
    """Show events, past and new, until the roll-out is over or no process carries it out; then its status.

    \b
    Example: gpuprov rollout watch friday
    """
    from gpuprov.rollout import command

    return command.watch(engine.choose_engine(connection), rollout, as_json=as_json)


@rollout.command(short_help="Start nothing new.")
@known
@why
def pause(rollout: str, why: str, connection: Connection, **_given: Any) -> int:
    """Start nothing new. What is under way is finished, and green hosts are returned to their scheduler.

    \b
    Example: gpuprov rollout pause friday --why "storage is slow"
    """
    from gpuprov.rollout import approvals, command
    from gpuprov.rollout.project import user

    command.say(engine.choose_engine(connection), rollout, approvals.Pause(by=user(), why=why))
    return 0


@rollout.command(short_help="Continue a roll-out.")
@known
@click.option("--retry", is_flag=True, help="Try hosts again that failed or wait for a reboot.")
@click.option("--forgive", is_flag=True, help="Leave failed hosts as they are and stop counting them.")
@options.json_flag
def resume(rollout: str, retry: bool, forgive: bool, as_json: bool, connection: Connection, **_given: Any) -> int:
    """Continue a roll-out that was paused, was stopped by its policy, or whose process is gone.

    \b
    Example: gpuprov rollout resume friday --retry
    """
    from gpuprov.rollout import command

    if retry and forgive:
        raise click.UsageError("--retry and --forgive: one of them")
    return command.resume(engine.choose_engine(connection), rollout, retry=retry, forgive=forgive, as_json=as_json)


@rollout.command(short_help="End a roll-out early.")
@known
@why
@options.json_flag
def abort(rollout: str, why: str, as_json: bool, connection: Connection, **_given: Any) -> int:
    """End a roll-out: nothing new starts, what is under way is finished, and drained hosts that were not changed are
    returned.

    \b
    Example: gpuprov rollout abort friday --why "another driver was released"
    """
    from gpuprov.rollout import command

    return command.abort(engine.choose_engine(connection), rollout, why, as_json=as_json)


@rollout.command(short_help="Approve a step that is waiting for approval.")
@click.argument("rollout", metavar="ID")
@click.argument("step", required=False, default="")
@engine.engine
@options.common
def approve(rollout: str, step: str, connection: Connection, **_given: Any) -> int:
    """Approve a step for which the policy names you: "canary", "batches" or "batch 3"; without STEP, the next one.

    \b
    Example: gpuprov rollout approve friday "batch 3"
    """
    from gpuprov.rollout import approvals, command
    from gpuprov.rollout.project import user

    command.say(engine.choose_engine(connection), rollout, approvals.Approve(by=user(), step=step))
    return 0
