"""Manual pages: one for each command, clean roff, with every option that --help has."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from gpuprov.cli import cli, manual
from tests.rows import run_each


def shown(path: Path) -> tuple[str, str]:
    """The page as man shows it, and what roff has to say of it."""
    done = subprocess.run(
        ["man", "-l", "--warnings=all", "--encoding=ascii", str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={"MANWIDTH": "100", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": ""},
        timeout=60,
    )
    return re.sub(".\b", "", done.stdout), done.stderr


def test_every_command_has_a_page_that_names_its_options() -> None:
    pages = manual.pages()
    for name, command in cli.commands.items():
        page = pages[f"gpuprov-{name}.1"].replace("\\-", "-")
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert all(f"{option}" in page for option in parameter.opts), f"{name}: {parameter.opts}"
        assert f"gpuprov-{name}" in pages["gpuprov.1"].replace("\\-", "-")


def test_nothing_in_a_help_text_is_roff() -> None:
    assert manual._escape_text(".SH EVIL") == "\\&.SH EVIL"
    assert manual._escape_text("a \\fBb\\fP 'c' --d é") == "a \\efBb\\efP \\(aqc\\(aq \\-\\-d \\[u00E9]"


@pytest.mark.skipif(not (shutil.which("man") and shutil.which("groff")), reason="man and groff are not installed")
@run_each("name", ["gpuprov.1", "gpuprov-init.1", "gpuprov-verify.1", "gpuprov-mig-fit.1"])
def test_man_shows_it_without_a_warning(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(manual.pages()[name], encoding="utf-8")
    text, warnings = shown(tmp_path / name)
    assert warnings == ""
    assert "NAME" in text
    assert re.search(r"EXIT STATUS\s+0\s+success", text)
    assert "\\" not in text
