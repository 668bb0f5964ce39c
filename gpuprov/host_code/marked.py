"""Processes that a run has started on this host: those with its name in their environment."""

from __future__ import annotations

import contextlib
import os

MARK = "GPUPROV_RUN"
"""The variable with which the playbook marks its processes; it holds the owner's `run`."""


def list_running(run: str) -> list[str]:
    """Describe the processes that the run started here and that have not ended: the last of each chain of processes,
    with its work.

    A mark in another user's process does not count, nor does one in which su asks for a password: anybody can write it,
    and would keep a lock from ever being free.
    """
    parents, lines = {}, {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError, StopIteration):
            with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as status:
                started_by = next(line.split()[1] for line in status if line.startswith("Uid:"))
            if started_by != str(os.getuid()):
                continue
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"{MARK}={run}".encode() not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as status:
                parents[pid] = status.read().rpartition(")")[2].split()[1]
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                lines[pid] = " ".join(file.read().decode(errors="replace").replace("\0", " ").split())
    last = [pid for pid in parents if pid not in parents.values() and lines.get(pid)]
    above = {pid: lines.get(parents[pid], "")[:100] for pid in last}
    shown = {pid: f"{lines[pid][:100]} (pid {pid}{', of ' * bool(above[pid])}{above[pid]})" for pid in last}
    return [shown[pid] for pid in sorted(shown, key=int)][:5]
