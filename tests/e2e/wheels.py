"""The wheel of this checkout with wheels that it needs, built once in a test run."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.here import PLUGINS

PIP = (sys.executable, "-m", "pip")
BUILD = (*PIP, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir")
LOAD = (*PIP, "download", "--quiet", "--only-binary", ":all:", "--dest")


def collect_wheels(temporary: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheels of gpuprov and of all that it requires; workers of one run share it."""
    base = temporary.getbasetemp()
    folder = (base.parent if base.name.startswith("popen-") else base) / "wheels"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            subprocess.run([*BUILD, str(folder), str(PLUGINS.parent)], check=True)
            (own,) = folder.glob("gpuprov-*.whl")
            subprocess.run([*LOAD, str(folder), str(own)], check=True)
            (folder / "complete").touch()
    return folder
