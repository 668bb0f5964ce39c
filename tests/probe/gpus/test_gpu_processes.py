"""Processes on GPUs, of which some have ended: with real zombies, and an nvidia-smi that names them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuprov.probe.base import Output, ProbeFailed
from gpuprov.probe.gpus.gpu_processes import PROCESSES
from tests.capabilities.asking import Row, judge

CHECK = "health.processes"
BUS = "00000000:19:00.0"


def looked(folder: Path, *rows: str, status: int = 0) -> Output:
    """What the probe prints on a host whose nvidia-smi prints these rows."""
    (folder / "rows").write_text("".join(f"{row}\n" for row in rows))
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\ncat {folder}/rows\nexit {status}\n")
    (folder / "nvidia-smi").chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", PROCESSES.script], env=environment, capture_output=True, text=True, check=False)
    return Output(done.stdout, done.returncode, done.stderr)


def test_a_zombie_a_process_that_is_gone_and_one_that_lives(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        mine, gone = os.getpid(), 2**22 + 7
        found = PROCESSES.parse(
            looked(
                tmp_path,
                f"{BUS}, {child.pid}, 81000 MiB",
                f"{BUS}, {gone}, 10151 MiB",
                f"{BUS}, {mine}, 3 MiB",
            )
        )
    assert [(one.pid, one.state) for one in found] == [(child.pid, "Z"), (gone, ""), (mine, found[2].state)]
    assert found[2].state in "RS"
    assert (found[2].memory, found[2].name) == ("3 MiB", Path("/proc/self/comm").read_text().strip())


def test_a_name_forges_no_process(tmp_path: Path) -> None:
    """prctl(PR_SET_NAME) takes a newline, and nvidia-smi prints a program's name as it is."""
    name = f"X) Z|b,7,1|\n{chr(0)}"
    code = f"import ctypes, time; ctypes.CDLL(None).prctl(15, {name!r}.encode()); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout
            child.stdout.readline()
            found = PROCESSES.parse(looked(tmp_path, f"{BUS}, {child.pid}, 3 MiB"))
        finally:
            child.kill()
    assert [(one.gpu, one.pid, one.state) for one in found] == [(BUS, child.pid, "S")]
    assert found[0].name.strip() == "X) Z b,7,1"


def test_no_process_is_an_answer_and_a_failure_is_none(tmp_path: Path) -> None:
    assert PROCESSES.parse(looked(tmp_path)) == ()
    with pytest.raises(ProbeFailed, match="could not be listed: Unable to determine"):
        PROCESSES.parse(looked(tmp_path, "Unable to determine the device handle for GPU0: Unknown Error", status=15))


def said(*lines: str) -> dict[str, Output | str]:
    return {"gpu_processes": "".join(f"{line}\n" for line in lines) + "looked\n"}


ROWS = [
    Row("all there", CHECK, None, {}, "pass", "processes on GPUs: 1"),
    Row("none", CHECK, None, said(), "pass", "no process"),
    Row(
        "a zombie",
        CHECK,
        None,
        said(f"Z|{BUS}, 7, 81000 MiB"),
        "fail",
        f"(pid 7) on {BUS}, 81000 MiB: a zombie",
        "ps -o",
    ),
    Row("gone", CHECK, None, said(f"|{BUS}, 7, 9 MiB|python3"), "fail", "the host has no such process", "restart it"),
    Row("hangs", CHECK, None, said(f"D|{BUS}, 7, 9 MiB|python3"), "fail", "hangs in the kernel", "restart it"),
    Row(
        "in a container",
        CHECK,
        None,
        said(f"|{BUS}, 7, 9 MiB|python3") | {"container": "docker\n"},
        "n/a",
        "cannot be seen",
    ),
]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_processes(row: Row) -> None:
    judge(row)
