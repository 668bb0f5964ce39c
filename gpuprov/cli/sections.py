"""How --help is laid out: commands by purpose, and a command's own options before those that many commands share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

PURPOSES = {
    "Everyday commands": ("init", "check", "plan", "apply", "verify", "rehearse"),
    "Hosts in service": ("health", "drift", "rollback", "diff", "show", "export", "topology", "accept", "capture"),
    "Fleets and closed sites": (
        "rollout",
        "worker",
        "drain",
        "undrain",
        "freeze",
        "slice",
        "work",
        "fold",
        "bundle",
        "render",
    ),
    "What gpuprov knows": ("explain", "catalog", "mig", "schema"),
}


READ = ("sources", "inventories", "vault_password_files", "fleet", "records")


class Written(click.Path):
    """A file that a command writes."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)


def _is_same(target: Path, source: str | Path) -> bool:
    return os.path.isfile(target) and os.path.isfile(source) and os.path.samefile(target, source)


class Shared(click.Option):
    """An option of how inventories are read and hosts are reached, the same for every command that has it."""


class Command(click.Command):
    def invoke(self, ctx: click.Context) -> Any:
        """Raise UsageError where a file to be written is one that is read: `-o` is easily typed for `-i`."""
        for parameter in self.params:
            target = ctx.params.get(parameter.name or "")
            if isinstance(parameter.type, Written) and target and any(_is_same(target, one) for one in self._read(ctx)):
                raise click.UsageError(f"{parameter.opts[-1]}: {target} would be overwritten, and is what is read")
        return super().invoke(ctx)

    def _read(self, ctx: click.Context) -> Iterator[str | Path]:
        """Files and folders that the command reads."""
        for name in READ:
            given = ctx.params.get(name) or ()
            yield from given if isinstance(given, tuple) else (given,)
        if "sources" in ctx.params and not any(ctx.params.get(name) for name in ("sources", "inventories")):
            from gpuprov.errors import GpuprovError
            from gpuprov.inventory import default_sources

            with suppress(GpuprovError):
                yield from default_sources()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options of this command, then those it shares with others."""
        for title, shared in (("Options", False), ("Inventory and connection options", True)):
            records = [
                parameter.get_help_record(ctx)
                for parameter in self.get_params(ctx)
                if isinstance(parameter, click.Option) and isinstance(parameter, Shared) is shared
            ]
            if rows := [record for record in records if record]:
                with formatter.section(title):
                    formatter.write_dl(rows)


class Group(click.Group):
    command_class = Command


class Purposes(Group):
    """The commands of gpuprov, in the order of PURPOSES."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return [name for names in PURPOSES.values() for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self.commands)
        for title, names in PURPOSES.items():
            with formatter.section(title):
                limit = formatter.width - 6 - width
                formatter.write_dl(
                    [(name.ljust(width), self.commands[name].get_short_help_str(limit)) for name in names]
                )
