"""How --help is laid out: commands by purpose, and a command's own options before those that many commands share."""

from __future__ import annotations

import click

PURPOSES = {
    "Everyday commands": ("init", "check", "plan", "apply", "verify", "rehearse"),
    "Hosts in service": ("health", "drift", "rollback", "diff", "export", "topology", "accept", "capture"),
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


class Shared(click.Option):
    """An option of how inventories are read and hosts are reached, the same for every command that has it."""


class Command(click.Command):
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
