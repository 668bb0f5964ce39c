"""Processes that a run has started on this host: those with its name in their environment."""

from __future__ import annotations

import contextlib
import os

# The variable with which the playbook marks its processes; it holds the owner's `run`.
MARK = "GPUPROV_RUN"


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
    return describe(parents, {pid: line for pid, line in lines.items() if line})[:5]


def describe(parents: dict[str, str], lines: dict[str, str]) -> list[str]:
    """Describe processes by what they work on: the last of a chain, and where several have begun under one program, as
    compilers under dkms, that program alone. Ansible's Python has begun all of them, and says nothing.

    `parents`: pid of the parent, by pid. `lines`: command lines by pid.
    """
    chains = [_list_ancestors(pid, parents) for pid in lines if pid not in parents.values()]
    shown: dict[str, str] = {}
    for chain in chains:
        named = next((pid for pid in chain if pid in lines and not _is_python(lines[pid])), chain[-1])
        below = sum(named in other for other in chains)
        pid = named if below > 1 else chain[-1]
        above = lines.get(parents[pid], "")[:100] if below == 1 else ""
        more = f", with {below} programs below it" * (below > 1)
        shown[pid] = f"{lines[pid][:100]} (pid {pid}{', of ' * bool(above)}{above}{more})"
    return [shown[pid] for pid in sorted(shown, key=int)]


def _list_ancestors(pid: str, parents: dict[str, str]) -> list[str]:
    """Return the pids from the run's first process down to this one."""
    chain = [pid]
    while (above := parents[chain[0]]) in parents:
        chain.insert(0, above)
    return chain


def _is_python(line: str) -> bool:
    """Return True for Ansible's modules, and the shells that start them."""
    words = line.split()
    return any("python" in os.path.basename(word) for word in words[:1]) or words[1:2] == ["-c"]
