"""A part makes a Debian host look like a GPU host in one respect; every part states on the host that it is
simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

CONFIGURATION = "/etc/gpuprov-sim"
PROGRAMS = "/usr/lib/gpuprov-sim"
# State that survives a reboot of the simulated host.
STATE = "/var/lib/gpuprov-sim"
# State that does not survive a reboot.
RUN = "/run/gpuprov-sim"
# Each file here is an active fault; its name is the fault's, its content the fault's parameter.
FAULTS = f"{STATE}/faults"


@dataclass(frozen=True)
class File:
    """A file to put on the host: its bytes, or a file of this machine; `mode` in chmod's form."""

    content: bytes | Path
    mode: int = 0o644


@dataclass(frozen=True)
class Part:
    """`files` by path on the host; `script` runs as root after the files are there and may run again."""

    files: Mapping[str, File] = field(default_factory=dict)
    script: str = ""
    # Then enabled and started, in order.
    units: tuple[str, ...] = ()


def text(content: str, mode: int = 0o644) -> File:
    """Return a text file."""
    return File(content.encode(), mode)
