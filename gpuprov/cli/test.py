"""The command test: pytest with gpuprov's plugin, in the environment that gpuprov is installed in."""

import click

from gpuprov.cli import complete
from gpuprov.cli.sections import Command

CODES = {0: 0, 1: 1, 2: 130, 4: 2, 5: 1}
"""gpuprov's exit codes by pytest's: https://docs.pytest.org/en/stable/reference/exit-codes.html"""
BROKEN = 70


@click.command("test", cls=Command, short_help="Run the checks, and tests of your own, with pytest.")
@click.argument("inventory", metavar="[INVENTORY]", required=False, shell_complete=complete.files)
@click.argument("words", metavar="[-- PYTEST...]", nargs=-1, type=click.UNPROCESSED)
@click.option("-l", "--limit", metavar="PATTERN", help="Only hosts that match this Ansible host pattern.")
def test(inventory: str | None, words: tuple[str, ...], limit: str | None) -> int:
    """Run each check of each host as a test, and tests of your own beside them, with pytest.

    What follows -- goes to pytest: folders of tests, and its options. Tests may use testinfra's `host`, and `spec` and
    `facts`.

    \b
    Example: gpuprov test inventory.yaml
             gpuprov test inventory.yaml -- tests/ -k driver
    """
    import pytest

    from gpuprov.inventory import find_default_sources

    sources = [inventory] if inventory else find_default_sources()
    given = [word for source in sources for word in ("--gpuprov", str(source))]
    code = pytest.main([*given, *(["--gpuprov-limit", limit] if limit else []), *words])
    return CODES.get(int(code), BROKEN)
