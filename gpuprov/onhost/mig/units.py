"""The systemd unit that a process belongs to."""

from __future__ import annotations

import os
import re

LINE = re.compile(r"\d+:(?:name=systemd)?:(/.*)")
"""systemd's own tree of control groups, in /proc/PID/cgroup: of version 1 by its name, of version 2 by none.

https://man7.org/linux/man-pages/man7/cgroups.7.html
"""
UNIT = re.compile(r"(?<=/)[^/]*\.(?:service|scope)(?=/|\Z)")


def unit_of(pid: int | str, root: str = "/") -> str:
    """The unit of this host that a process is in, or nothing. A unit that runs below another one, since a user or a container has a
    systemd of its own, stands behind that: `user@1000.service/nvidia-dcgm.service` is not the host's `nvidia-dcgm.service`.

    Raises OSError where the process cannot be looked at.
    """
    try:
        first = _paths("1", root)
    except OSError:
        first = []
    above = next((path[: -len("/init.scope")] for path in first if path.endswith("/init.scope")), "")
    for path in _paths(str(pid), root):
        if units := UNIT.findall(path[len(above) :] if path.startswith(f"{above}/") else path):
            return "/".join(units)
    return ""


def _paths(pid: str, root: str) -> list[str]:
    with open(os.path.join(root, "proc", pid, "cgroup"), encoding="utf-8", errors="replace") as file:
        return LINE.findall(file.read())
