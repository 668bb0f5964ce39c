"""The role host tells whether a daemon lives with its present program and settings, here of real processes of this machine."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = (Path(__file__).parents[1] / "roles/host/files/daemon.sh").read_text(encoding="utf-8")
SYSTEMCTL = """#!/bin/sh
case "$*" in
*ControlGroup*) echo "{group}" ;;
*MainPID*) echo "{main}" ;;
*is-active*) exit {status} ;;
esac
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    program = tmp_path / "nv-thing"
    program.symlink_to("/bin/sleep")
    (tmp_path / "settings").write_text("before")
    time.sleep(0.05)
    with subprocess.Popen([str(program), "60"]) as started:
        yield started
        started.kill()


def state(root: Path, main: int, *, name: str = "", group: str = "", active: bool = True) -> str:
    folder = root / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "systemctl").write_text(SYSTEMCTL.format(group=group, main=main, status=0 if active else 3))
    (folder / "systemctl").chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}
    script = SCRIPT.replace("/proc/[0-9]*", f"{root}/processes/[0-9]*")
    command = ["sh", "-c", script, "daemon.sh", "thing.service", name, str(root / "settings"), str(root / "nv-thing")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env, timeout=20)
    assert done.stderr == ""
    return done.stdout.strip()


def test_a_main_process(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    assert state(tmp_path, process.pid) == "alive"
    assert state(tmp_path, process.pid, active=False) == "dead"
    time.sleep(0.3)
    (tmp_path / "settings").write_text("after")
    assert state(tmp_path, process.pid) == "old"


def test_one_among_the_processes_of_a_unit(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    mine, stat = "/system.slice/thing.service", Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
    for number, (group, words, shown) in enumerate(
        [
            (mine, "/usr/bin/nv-thing\0-c\0x\0", stat),
            (mine, "/usr/bin/nv-thing-helper\0", stat),
            (f"{mine}/below", "/usr/bin/nv-below\0", stat),
            (mine, "/usr/bin/nv-zombie\0", stat.replace(") S", ") Z").replace(") R", ") Z")),
        ],
        start=70,
    ):
        folder = tmp_path / "processes" / str(number)
        folder.mkdir(parents=True)
        (folder / "cgroup").write_text(f"0::{group}\n")
        (folder / "cmdline").write_text(words)
        (folder / "stat").write_text(shown)
    for name, wanted in (("nv-thing", "alive"), ("nv-thin", "dead"), ("nv-below", "dead"), ("nv-zombie", "dead")):
        assert state(tmp_path, 0, name=name, group=mine) == wanted
    assert state(tmp_path, process.pid, name="nv-thing") == "dead", "a unit without a group has no processes"


def test_no_process(tmp_path: Path) -> None:
    assert state(tmp_path, 0) == "dead"


def test_a_zombie_is_dead(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert state(tmp_path, ended.pid) == "dead"
