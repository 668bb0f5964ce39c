"""Layout of --help: commands by purpose, and a command's own options before those that many commands share; and types
of options."""

import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from gpuprov.cli.other_options import OTHER_COMMANDS, suggest_option

PURPOSES = {
    "Everyday commands": ("init", "check", "plan", "apply", "verify", "rehearse"),
    "Hosts in service": (
        *("health", "repair", "drift", "rollback", "diff", "show", "export", "topology", "accept", "capture"),
    ),
    "Fleets, closed sites": ("rollout", "fleet", "drain", "undrain", "enroll", "bundle", "bake", "render"),
    "Tests": ("test", "simulate"),
    "What gpuprov knows": ("explain", "catalog", "mig", "schema"),
}

EVERYDAY = next(iter(PURPOSES))
# Commands that change nothing on hosts.
READING = {"check", "plan", "verify", "health", "drift", "diff", "show", "export", "topology", "capture"}
# Ends of files that are an inventory, and no host's name.
INVENTORIES = (".yaml", ".yml", ".ini", ".json", ".toml")
READ = ("sources", "inventories", "vault_password_files", "fleet", "records")


class Named(click.Path):
    """A file to write, or a folder. A `-`, standard output to other programs, is neither."""

    def __init__(self, *, folder: bool = False) -> None:
        super().__init__(dir_okay=folder, file_okay=not folder, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "-":
            kind = "folder" if self.dir_okay else "file"
            other = "" if self.dir_okay else ", or /dev/stdout for standard output"
            self.fail(f"- is not a name of a {kind}: give it one{other}", param, ctx)
        return super().convert(value, param, ctx)


class Written(Named):
    """A file, or a folder, that must not be what the command reads."""


def describe_interrupt(command: str, work: str) -> str:
    """Describe an interrupt: what was going on, the state of the hosts, what still runs and how it ends, and what to
    do.

    command: its name; of one that may change hosts, which reports that itself, only the work is described.
    """
    first = f"interrupted: {work}" if work else "interrupted"
    if command not in READING:
        return first
    runs = "what was started on hosts only reads, and ends by itself within its time limit"
    return (
        "\n".join((first, "no host was changed", runs, "run the same command again: it begins anew")) if work else first
    )


def _is_same(target: Path, source: str | Path) -> bool:
    return os.path.isfile(target) and os.path.isfile(source) and os.path.samefile(target, source)


class Shared(click.Option):
    """An option for reading inventories and connecting to hosts, the same for every command that has it."""


_EXAMPLE = re.compile(r"(\s+(?:Example: )?)\S.*\Z")
_BREAK = re.compile(r" (?=-|&& )")
HYPHEN, UNBROKEN = "-", "\N{NON-BREAKING HYPHEN}"


def continue_command(line: str, width: int) -> list[str]:
    """Return the lines of an example that is wider than `width`: they end with a backslash, and can be pasted."""
    example = _EXAMPLE.match(line)
    lines, hang = [line], " " * (len(example[1]) + 4) if example else ""
    while example and len(lines[-1]) > width:
        last = lines.pop()
        at = max((seen.start() for seen in _BREAK.finditer(last) if len(hang) < seen.start() < width - 1), default=0)
        if not at:
            return [*lines, last]
        lines += [f"{last[:at]} \\", hang + last[at + 1 :]]
    return lines


class Formatter(click.HelpFormatter):
    """Wraps text between words, never at a hyphen, so that --log-dir, /etc/allowed_signers and roll-out stay whole."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args.replace(HYPHEN, UNBROKEN), prefix)

    def write_text(self, text: str) -> None:
        super().write_text(text.replace(HYPHEN, UNBROKEN))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(term, text.replace(HYPHEN, UNBROKEN)) for term, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        lines = super().getvalue().replace(UNBROKEN, HYPHEN).split("\n")
        return "\n".join(piece for line in lines for piece in continue_command(line, self.width))


class Context(click.Context):
    formatter_class = Formatter


class Command(click.Command):
    context_class = Context

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; an option by another tool's name is answered with the one of this command."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            fix = suggest_option(error.option_name, self, reads=ctx.info_name in READING)
            if not fix:
                raise
            raise click.UsageError(f"No such option '{error.option_name}': {fix}", ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Raise UsageError if a file to be written is one that is read: `-o` is easily typed for `-i`; or if the
        inventory stands before the host."""
        for name in ("host", "left"):
            if os.path.exists(ctx.params.get("right") or ""):
                continue  # two files to compare
            if os.path.isfile(given := str(ctx.params.get(name) or "")) and given.endswith(INVENTORIES):
                words = (ctx.params.get("right") or "", *ctx.params.get("sources", ()))
                hosts = [word for word in words if word and not os.path.exists(word)]
                right = f"{ctx.command_path} {' '.join(hosts) or 'HOST'} {given}"
                raise click.UsageError(f"HOST comes first, and {given} is an inventory: {right}")
        for parameter in self.params:
            target = ctx.params.get(parameter.name or "")
            if (
                isinstance(parameter.type, Written)
                and target
                and any(_is_same(target, source) for source in self._read(ctx))
            ):
                raise click.UsageError(f"{parameter.opts[-1]}: {target} would be overwritten, and is what is read")
        return super().invoke(ctx)

    def _read(self, ctx: click.Context) -> Iterator[str | Path]:
        """Yield files and folders that the command reads."""
        for name in READ:
            given = ctx.params.get(name) or ()
            yield from given if isinstance(given, tuple) else (given,)
        if "sources" in ctx.params and not any(ctx.params.get(name) for name in ("sources", "inventories")):
            from gpuprov.core.errors import GpuprovError
            from gpuprov.inventory import find_default_sources

            with suppress(GpuprovError):
                yield from find_default_sources()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write options of this command, then those it shares with others."""
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
    context_class = Context


class Ordered(Group):
    """Commands in the order in which they are used."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self.commands)


class Purposes(Group):
    """The commands of gpuprov, in the order of PURPOSES."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return [name for names in PURPOSES.values() for name in names]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; one that another tool has is named with what does the same here."""
        if args and args[0] in OTHER_COMMANDS and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command '{args[0]}': {OTHER_COMMANDS[args[0]]}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write everyday commands with a line each, the others by name: all fits on one screen."""
        with formatter.section(EVERYDAY):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(100)) for name in PURPOSES[EVERYDAY]])
        with formatter.section("More commands"):
            formatter.write_dl([(title, " ".join(names)) for title, names in PURPOSES.items() if title != EVERYDAY])


WEEK = 7 * 24 * 3600


class Seconds(click.FloatRange):
    """A time that ends: no infinity, no NaN, and no more than a week."""

    name = "number of seconds"

    def __init__(self, least: float) -> None:
        super().__init__(min=least, max=WEEK)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number of seconds", param, ctx)
        return number
