"""A clock that is off: what starts reads it, and what ran before, or asks for another clock, does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.campaign import classes

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the clock is compiled")
ASKED = (
    ("date", "+%s"),
    ("bash", "-c", "printf '%(%s)T' -1"),
    ("perl", "-e", "print time"),
    ("python3", "-c", "import time; print(int(time.time()))"),
)


@pytest.fixture(name="off", scope="module")
def _off(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("clock") / "clock.so"
    words = ["gcc", "-shared", "-fPIC", f"-DOFF={classes.seconds_of('-400d')}", "-x", "c", "-o", str(made), "-"]
    subprocess.run(words, input=classes.CLOCK_C, text=True, check=True)
    return made


@pytest.mark.parametrize("words", ASKED, ids=lambda words: words[0])
def test_programs_that_start_read_it(off: Path, words: tuple[str, ...]) -> None:
    told = subprocess.run(words, env={**os.environ, "LD_PRELOAD": str(off)}, text=True, capture_output=True, check=True)
    assert int(told.stdout) == pytest.approx(time.time() - 400 * 86400, abs=20)


def test_it_calls_nothing_that_the_sandbox_of_sshd_forbids(off: Path) -> None:
    """OpenSSH, sandbox-seccomp-filter.c: these are allowed; libfaketime's unlink was not, and each login ended
    there."""
    told = subprocess.run(["nm", "--dynamic", "--undefined-only", off], text=True, capture_output=True, check=True)
    assert {line.split()[-1].partition("@")[0] for line in told.stdout.splitlines()} <= {
        "syscall", "__cxa_finalize", "__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable",
        "__stack_chk_fail",
    }  # fmt: skip
