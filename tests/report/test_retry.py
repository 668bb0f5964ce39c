"""The file of hosts to do again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from gpuprov.cli import cli
from gpuprov.inventory.limit import select
from gpuprov.report import retry
from gpuprov.spec.model import RawHost


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "gpuprov" / "retry"


def test_limit_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    path = retry.offer("verify", ["gpu2", "gpu3"], 4)
    assert path
    assert path.stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr().err == f"2 of 4 hosts to do again: --limit @{path}\n"
    hosts = [RawHost(name=f"gpu{number}") for number in range(1, 5)]
    assert [host.name for host in select(hosts, [], f"@{path}")[0]] == ["gpu2", "gpu3"]


@pytest.mark.install
def test_export_and_capture_name_those_that_they_did_not_reach(tmp_path: Path, state: Path) -> None:
    gone = {"ansible_connection": "podman", "ansible_host": "gpuprov-nobody"}
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {"here": here, "gone": gone}}}))
    for command, option in ((["export"], "--limit @"), (["capture", "all", "-o", str(tmp_path / "out")], ": @")):
        done = CliRunner().invoke(cli, [*command, "-i", str(inventory)], standalone_mode=False)
        assert done.return_value == 4, done.output
        (line,) = (line for line in done.stderr.splitlines() if "hosts to do again" in line)
        assert line.startswith(f"1 of 2 hosts to do again{option if option == ': @' else ': ' + option}")
        (file,) = state.glob(f"{command[0]}-*.retry")
        assert file.read_text() == "gone\n"


@pytest.mark.parametrize("again", [[], ["gpu1", "gpu2"]])
def test_there_is_none_for_nobody_or_for_all(again: list[str], state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert retry.offer("verify", again, 2) is None
    assert not state.exists()
    assert capsys.readouterr().err == ""


def test_old_ones_go(state: Path) -> None:
    state.mkdir(parents=True)
    for number in range(40):
        (state / f"old{number}.retry").write_text("gpu1\n")
        os.utime(state / f"old{number}.retry", (number, number))
    path = retry.offer("apply", ["gpu1"], 2)
    assert path
    assert path in state.iterdir()
    assert len(list(state.iterdir())) == retry.KEPT
    assert not (state / "old0.retry").exists()


def test_a_folder_that_cannot_be_is_a_warning(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state.parent.write_text("")
    assert retry.offer("apply", ["gpu1"], 2) is None
    assert capsys.readouterr().err.startswith("warning: no retry file: ")
