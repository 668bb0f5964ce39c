"""The systemd unit that a process belongs to."""

from __future__ import annotations

import os
import re

# systemd's own tree of control groups in /proc/PID/cgroup: named in version 1, unnamed in version 2.
#
# https://man7.org/linux/man-pages/man7/cgroups.7.html
LINE = re.compile(r"\d+:(?:name=systemd)?:(/.*)")
# 0::/system.slice/nvidia-dcgm.service
# 1:name=systemd:/system.slice/nvidia-dcgm.service
UNIT = re.compile(r"(?<=/)[^/]*\.(?:service|scope)(?=/|\Z)")


def find_unit(pid: int | str, root: str = "/") -> str:
    """Return the unit of this host that a process is in, or "".

    Raises OSError if the process cannot be examined.
    """
    # A unit below another one, because a user or a container has its own systemd, is appended to that:
    # `user@1000.service/nvidia-dcgm.service` is not the host's `nvidia-dcgm.service`.
    try:
        first = read_paths("1", root)
    except OSError:
        first = []
    above = next((path[: -len("/init.scope")] for path in first if path.endswith("/init.scope")), "")
    for path in read_paths(str(pid), root):
        if units := UNIT.findall(path[len(above) :] if path.startswith(f"{above}/") else path):
            return "/".join(units)
    return ""


def read_paths(pid: str, root: str) -> list[str]:
    with open(os.path.join(root, "proc", pid, "cgroup"), encoding="utf-8", errors="replace") as file:
        return LINE.findall(file.read())
