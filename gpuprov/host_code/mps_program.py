"""The program of MPS's units on this host, which consists of this code, and its use by a module."""

from __future__ import annotations

import contextlib
import io
import os
from types import ModuleType
from typing import Any, Mapping

from . import mps, reads, units
from .files import Difference, Wanted, bring_about, list_differences, list_foreign_files
from .json_members import Json
from .mps import __main__, control, daemon, devices, environments, modes, program
from .mps.program import Answer
from .systemd import systemctl

FOLDER = "/usr/local/lib/gpuprov/mps"
# Files that a daemon reads at its start, beside what its unit writes.
CONTROL = "/usr/bin/nvidia-cuda-mps-control"
PARTS = (mps, __main__, control, daemon, devices, environments, modes, program)


def list_texts() -> dict[str, str]:
    """The program's files, text by path."""
    return {f"{FOLDER}/{read_file(part)}": read_source(part) for part in PARTS}


def install(*, check: bool) -> list[Difference]:
    """Install the program as it came with the module, and units that systemd has loaded."""
    files = [Wanted(path, text) for path, text in list_texts().items()]
    files += list_foreign_files(files)
    if check:
        return list_differences(files)
    changed = bring_about(files)
    systemctl("daemon-reload")
    return changed


def carry_out(config: Mapping[str, Json], *, check: bool) -> tuple[Answer, list[str]]:
    """Bring the daemons to their desired state; return the answer and warnings about compute modes that a GPU does not
    accept."""
    warnings = io.StringIO()
    before = os.umask(0o022)
    try:
        with contextlib.redirect_stderr(warnings):
            return program.run(config, not check, explain_age), warnings.getvalue().splitlines()
    finally:
        os.umask(before)


def explain_age(pid: str) -> str:
    """Return what a daemon is older than, of what it has read; empty if it has read everything as it is."""
    running = [reads.find_program(int(pid))]
    newer = [path for start in units.find_start(int(pid)) for path in reads.list_newer([CONTROL], start, running)]
    return f"older than {', '.join(newer)}" if newer else ""


def read_file(part: ModuleType) -> str:
    return "__init__.py" if part is mps else f"{part.__name__.rpartition('.')[2]}.py"


def read_source(part: ModuleType) -> str:
    """Return the text of a module, which may be in the archive that Ansible brings."""
    loader: Any = part.__loader__
    return str(loader.get_source(part.__name__))
