"""The command test: pytest with gpuprov's plugin, in the environment that gpuprov is installed in."""

import click

from gpuprov.cli import complete
from gpuprov.cli.sections import Command

# gpuprov's exit codes by pytest's: https://docs.pytest.org/en/stable/reference/exit-codes.html
CODES = {0: 0, 1: 1, 2: 130, 4: 2, 5: 1}
BROKEN = 70


class Split(Command):
    """A command that hands what follows -- to another program; click alone would forget where it stood."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.obj = tuple(args[end + 1 :])
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PYTEST...]"]


@click.command("test", cls=Split, short_help="Run the checks, and tests of your own, with pytest.")
@click.argument("sources", metavar="[INVENTORY]...", nargs=-1, shell_complete=complete.files)
@click.option("-l", "--limit", metavar="PATTERN", help="Only hosts that match this Ansible host pattern.")
@click.pass_obj
def test(words: tuple[str, ...], sources: tuple[str, ...], limit: str | None) -> int:
    """Run each check of each host as a test, and tests of your own beside them, with pytest.

    What follows -- goes to pytest: folders of tests, and its options. Tests may use testinfra's `host`, and `spec` and
    `facts`.

    \b
    Example: gpuprov test inventory.yaml
             gpuprov test inventory.yaml -- tests/ -k driver
    """
    import pytest

    from gpuprov.inventory import find_default_sources

    given = [word for source in sources or find_default_sources() for word in ("--gpuprov", str(source))]
    code = pytest.main([*given, *(["--gpuprov-limit", limit] if limit else []), *words])
    return CODES.get(int(code), BROKEN)
