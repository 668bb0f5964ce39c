"""Options by other tools' names are answered with the one of this command."""

from __future__ import annotations

from click.testing import CliRunner

from gpuprov.cli import cli
from tests.rows import run_each


@run_each(
    ("words", "fix"),
    [
        ("apply x --dry-run", "gpuprov plan shows what apply would change"),
        ("apply x --check", "gpuprov plan shows what apply would change"),
        ("plan x --dry-run", "leave it out: this command changes nothing on hosts"),
        ("apply --plan x", "a saved plan stands in place of the inventory"),
        ("plan x --tags mig", "--only NAME,... chooses capabilities"),
        ("verify x --format json", "--json prints JSON"),
        ("verify x --hosts a", "--limit PATTERN chooses hosts"),
        ("apply x --auto-approve", "-y answers its question"),
        ("check x --capability mig", "No such option '--capability'."),
        ("version", "gpuprov --version"),
        ("status", "gpuprov verify says whether hosts are as wanted"),
        ("frobnicate", "No such command 'frobnicate'."),
    ],
)
def test_an_option_by_another_name(words: str, fix: str) -> None:
    done = CliRunner().invoke(cli, words.split())
    assert done.exit_code == 2
    assert fix in done.output
