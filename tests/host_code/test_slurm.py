"""The step of Slurm: it has gres.conf written, and restarts a slurmd that runs and is older than its files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.host_code.modules import on_host, step

slurm = on_host("steps.slurm")
Run = Callable[..., dict[str, Any]]


@pytest.fixture(name="run")
def fixture_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The step as Ansible runs it. `program`: what gpuprov's program for slurmd does; `pid`: of slurmd, 0 if it is off;
    `age`: of its start, in seconds."""
    files = (tmp_path / "gres.conf", tmp_path / "cgroup.conf")
    files[0].write_text("")
    monkeypatch.setattr(slurm, "FILES", tuple(map(str, files)))
    monkeypatch.setattr(slurm, "ABOVE", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    (tmp_path / "slurm").mkdir()
    (tmp_path / "bin").mkdir()

    def run(
        program: str = "", pid: int = 77, age: float = 60, restart: int = 0, *, check: bool = False
    ) -> dict[str, Any]:
        (tmp_path / "slurm/slurm.py").write_text(f"import sys\nassert sys.argv[1:] == ['gres', '60']\n{program}\n")
        started = int((time.monotonic() - age) * 1e6)
        (tmp_path / "bin/systemctl").write_text(f"""#!/bin/sh
case $1 in
show) echo MainPID={pid}; echo ExecMainStartTimestampMonotonic={started};;
*) echo "$*" >> {tmp_path}/done; echo 'Job failed' >&2; exit {restart};;
esac
""")
        (tmp_path / "bin/systemctl").chmod(0o755)
        return step(capsys, "slurm", check=check, seconds=60) | {"done": (tmp_path / "done").exists()}

    return run


def test_a_running_slurmd_reads_a_new_file(run: Run, tmp_path: Path) -> None:
    found = run("print('wrote gres.conf')")
    assert (found["changed"], found["msg"]) == (True, "wrote gres.conf; restarted slurmd.service")
    assert (tmp_path / "done").read_text() == "try-restart slurmd.service\n", "which never starts one that is off"


def test_one_that_is_newer_than_its_files_is_left(run: Run) -> None:
    found = run(age=-60)
    assert (found["changed"], found["msg"], found["done"]) == (False, "", False)


def test_one_that_is_off_stays_off(run: Run) -> None:
    found = run("print('wrote gres.conf')", pid=0)
    assert (found["msg"], found["done"]) == ("wrote gres.conf", False)


def test_check_mode_changes_nothing(run: Run) -> None:
    found = run("raise SystemExit('run')", check=True)
    assert (found["changed"], found["done"]) == (False, False)


def test_what_the_program_refuses_fails_with_its_words(run: Run) -> None:
    found = run("sys.exit('slurm: /etc/slurm/gres.conf stays as it is: NVML lists no GPU')")
    assert found["failed"]
    assert found["msg"] == "slurm: /etc/slurm/gres.conf stays as it is: NVML lists no GPU"


def test_a_slurmd_that_does_not_come_back_fails(run: Run) -> None:
    found = run(restart=1)
    assert found["failed"]
    assert (
        found["msg"]
        == "slurmd.service does not restart: Job failed. Fix: journalctl -u slurmd.service -n 20, on the host"
    )
