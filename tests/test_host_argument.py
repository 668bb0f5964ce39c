"""HOST before INVENTORY: the same places in every verb."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gpuprov.cli import cli
from tests.rows import run_each


def verbs() -> list[tuple[str, list[str]]]:
    """Commands that take an inventory, with their arguments in order."""
    found = []
    for name, command in cli.commands.items():
        arguments = [one.human_readable_name for one in command.params if isinstance(one, click.Argument)]
        if any("INVENTORY" in one for one in arguments) and name != "test":  # whose last words are pytest's
            found.append((name, arguments))
    return found


@run_each(("name", "arguments"), verbs())
def test_the_inventory_is_last_and_hosts_are_before_it(name: str, arguments: list[str]) -> None:
    assert [one for one in arguments if "INVENTORY" in one] == arguments[-1:]
    assert set(arguments[:-1]) <= {"HOST", "HOST|FILE"}, name


@pytest.mark.parametrize(("words", "right"), [(["gpu1"], "gpu1 site.yaml"), ([], "HOST site.yaml")])
@pytest.mark.parametrize("name", [name for name, arguments in verbs() if arguments[0] == "HOST"])
def test_an_inventory_before_the_host_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: list[str], right: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.yaml").touch()
    needed = {"diff": ["gpu2"], "drain": ["--by", "slurm"], "undrain": ["--by", "slurm", "--run", "a"]}.get(name, [])
    needed += ["--out", "made"] if name == "capture" else []
    done = CliRunner().invoke(cli, [name, "site.yaml", *words, *needed], prog_name="gpuprov")
    assert done.exit_code == 2
    assert f"HOST comes first, and site.yaml is an inventory: gpuprov {name} " in done.stderr
    assert name == "diff" or right in done.stderr
