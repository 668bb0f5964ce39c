"""What make says on a machine that lacks what README names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.rows import run_each

pytestmark = pytest.mark.install
ROOT = Path(__file__).parents[2]


@run_each("python", ["no-such-python", "old-python"])
def test_a_python_that_does_not_serve_is_told_before_anything_begins(python: str, tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n")  # no ensurepip, or before 3.11
    old.chmod(0o755)
    interpreter = python if python == "no-such-python" else str(old)
    command = ["make", "demo", f"PYTHON={interpreter}", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Python 3.11 or newer with venv is needed: apt-get install python3-venv" in done.stderr
    assert not (tmp_path / "venv").exists()
