"""A part is one thing that makes a Debian host look like a GPU host; every part says on the host that it is simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

CONFIGURATION = "/etc/gpuprov-sim"
PROGRAMS = "/usr/lib/gpuprov-sim"
STATE = "/var/lib/gpuprov-sim"
"""What survives a reboot of the simulated host."""
RUN = "/run/gpuprov-sim"
"""What does not."""
FAULTS = f"{STATE}/faults"
"""A file here is a fault that is switched on; its name is the fault's, its content the fault's parameter."""


@dataclass(frozen=True)
class File:
    """A file to put on the host: its bytes, or a file of this machine; `mode` as chmod takes it."""

    content: bytes | Path
    mode: int = 0o644


@dataclass(frozen=True)
class Part:
    """`files` by path on the host; `script` is run as root after the files are there and may run again; `units` are then
    enabled and started, in order."""

    files: Mapping[str, File] = field(default_factory=dict)
    script: str = ""
    units: tuple[str, ...] = ()


def text(content: str, mode: int = 0o644) -> File:
    """A text file."""
    return File(content.encode(), mode)
