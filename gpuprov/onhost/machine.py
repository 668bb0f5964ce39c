"""Whether a host is the very machine that this runs on: by what it is, not by how it is reached, as ssh may lead back here."""

from __future__ import annotations

IDENTITY = 'echo "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null) $(readlink /proc/self/ns/pid)"'
"""A shell's answer to which machine, and which container on it."""
MACHINE = "pid:[4026531836]"
"""PROC_PID_INIT_INO: a machine itself. https://github.com/torvalds/linux/blob/master/include/linux/proc_ns.h"""


def same(here: str, there: str) -> bool:
    """By both answers. A container on this machine is another host, unless it is this one; the machine of this container is not."""
    mine, other = here.split(), there.split()
    return bool(mine) and len(other) == 2 and mine[0] == other[0] and other[1] in (mine[-1], MACHINE)
