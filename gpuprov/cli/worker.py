"""The command worker: does a site's jobs, for roll-outs on Temporal."""

import sys
from pathlib import Path
from typing import Any

import click

from gpuprov.cli import engine, habits, options
from gpuprov.cli.sections import Command
from gpuprov.rollout.temporal.connect import Connection, check_installed

INSTEAD = "say ansible_become_password in an inventory (--secrets) or a file (-e @FILE), encrypted with ansible-vault"


def _make_absolute(variables: str) -> str:
    """Return -e @FILE with a path that works from another folder."""
    return f"@{Path(variables[1:]).absolute()}" if variables.startswith("@") else variables


@click.command(cls=Command, short_help="Work on one site's jobs of roll-outs on Temporal.")
@click.option("--site", default="default", show_default=True, metavar="NAME", help="The site, as the policy names it.")
@engine.temporal
@options.inventories("secrets", "Take the secrets that jobs name from this inventory; repeatable.", "--secrets")
@click.option("--without-secrets", is_flag=True, help="Work without the secrets: keys or an agent are enough.")
@click.option(
    "--vault-password-file",
    "vault_files",
    multiple=True,
    type=click.Path(),
    help="File with a vault password; may be repeated.",
)
@habits.extra_vars("Override how hosts are reached: NAME=VALUE, YAML, JSON or @FILE.")
@habits.forks
@habits.user
@habits.refused(
    "-i", "--inventory", why="a worker has its hosts from the jobs of roll-outs; --secrets takes an inventory"
)
@habits.refused("-K", "--ask-become-pass", why=f"a worker's processes ask nobody; {INSTEAD}", is_flag=True)
@options.common
def worker(
    site: str, secrets: tuple[str, ...], vault_files: tuple[str, ...], connection: Connection, **given: Any
) -> int:
    """Work on the jobs of one site until SIGTERM or Ctrl-C. Connects to its hosts over ssh, and out to Temporal;
    nothing connects in.

    Each job is a process of its own (gpuprov fleet work). One that is under way when its worker ends goes on, and the
    next worker on this machine waits for it. Needs pip install 'gpuprov[fleet]'.

    \b
    Example: gpuprov fleet worker --site berlin --address temporal.example.com:7233
    """
    from gpuprov.jobs import extra

    check_installed()
    extra.check(given["extra_vars"], vault_files)
    from gpuprov.rollout.temporal import worker as working
    from gpuprov.rollout.temporal.files import default_folder

    words = [sys.executable, "-P", "-m", "gpuprov", "fleet", "work"]
    for option, value in (("--forks", given["forks"]), ("--user", given["user"])):
        words += [option, str(value)] if value else []
    words += ["--without-secrets"] if given["without_secrets"] else []
    words += [word for secret in secrets for word in ("--secrets", str(Path(secret).absolute()))]
    words += [word for value in given["extra_vars"] for word in ("--extra-vars", _make_absolute(value))]
    words += [word for file in vault_files for word in ("--vault-password-file", str(Path(file).absolute()))]
    return working.run(connection, site, connection.folder or default_folder(), words)
