"""The step of Slurm: it has gres.conf written by the program that runs before each start of slurmd."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.host_code.modules import on_host, step

slurm = on_host("steps.slurm")
Run = Callable[..., dict[str, Any]]


@pytest.fixture(name="run")
def fixture_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The step as Ansible runs it. `program`: what gpuprov's program for slurmd does."""
    monkeypatch.setattr(slurm, "ABOVE", str(tmp_path))
    (tmp_path / "slurm").mkdir()

    def run(program: str = "", *, check: bool = False) -> dict[str, Any]:
        (tmp_path / "slurm/slurm.py").write_text(f"import sys\nassert sys.argv[1:] == ['gres', '60']\n{program}\n")
        return step(capsys, "slurm", check=check, seconds=60)

    return run


@pytest.mark.parametrize("wrote", ["wrote gres.conf", ""])
def test_what_the_program_says_is_what_changed(run: Run, wrote: str) -> None:
    found = run(f"print({wrote!r})")
    assert (found["changed"], found["msg"]) == (bool(wrote), wrote)


def test_check_mode_changes_nothing(run: Run) -> None:
    assert run("raise SystemExit('run')", check=True)["changed"] is False


def test_what_the_program_refuses_fails_with_its_words(run: Run) -> None:
    found = run("sys.exit('slurm: /etc/slurm/gres.conf stays as it is: NVML lists no GPU')")
    assert found["failed"]
    assert found["msg"] == "slurm: /etc/slurm/gres.conf stays as it is: NVML lists no GPU"
