"""The program of checkpoints as hosts get it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gpuprov.host_code import checkpoints
from gpuprov.plan.host_code import program


def test_it_brings_all_that_it_imports(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program(checkpoints.__name__), encoding="utf-8")
    # -I and -S: without gpuprov itself, as on a host.
    done = subprocess.run(
        [sys.executable, "-I", "-S", tmp_path / "program.py"],
        input='{"action": "none"}', cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"problem": "\'none\'"}\n', "")


def test_it_fits_into_an_argument() -> None:
    """Linux takes 128 KiB in one: MAX_ARG_STRLEN, https://man7.org/linux/man-pages/man2/execve.2.html"""
    assert len(program(checkpoints.__name__)) < 96 << 10
