"""A process as the owner of a lock: the machine it runs on, its number and its start time, which show whether it is
dead."""

from __future__ import annotations

import contextlib
import datetime
import getpass
import os
import platform
from typing import Mapping

from .fence import Owner


def identify_machine() -> str:
    """Return the identity of the machine for process ids: machine id, host name and pid namespace, since containers may
    share the first two."""
    parts: list[str] = []
    with contextlib.suppress(OSError, UnicodeDecodeError), open("/etc/machine-id", encoding="ascii") as file:
        parts.append(file.read().strip())
    parts.append(platform.node())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(part for part in parts if part)


def read_stat(pid: int) -> list[str]:
    """Return proc_pid_stat(5) from its third field on; empty if there is no such process, or no /proc."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()
    return []


def read_start_time(pid: int) -> str:
    """The start time of a process, which tells it from a later one with the same number; "" if there is none."""
    fields = read_stat(pid)
    return fields[19] if fields else ""


def find_topmost(word: str) -> int:
    """Return the topmost of this process and its ancestors, without a gap, whose command lines contain the word; or
    this one."""
    pid = top = os.getpid()
    while (fields := read_stat(pid)) and (pid := int(fields[1])) > 1:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if word.encode() in file.read():
                top = pid
                continue
        break
    return top


def describe(run: str, version: str, pid: int = 0) -> Owner:
    """Describe a process of this machine, by default this one, as the owner of a lock. Without `run` its start time
    names the run."""
    now = datetime.datetime.now(datetime.timezone.utc)
    pid = pid or os.getpid()
    return {
        "controller": identify_machine(),
        "pid": pid,
        "pid_start": read_start_time(pid),
        "user": find_user(),
        "host": platform.node(),
        "since": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "run": run or f"{now:%Y%m%dT%H%M%SZ}-{pid}",
        "version": version,
    }


def is_dead(owner: Mapping[str, object], current: Mapping[str, object]) -> bool:
    """Return whether an owner was a process of this machine, which `current` describes, and is gone."""
    pid = owner.get("pid")
    same = owner.get("controller") == current.get("controller") and bool(current.get("pid_start"))
    return same and isinstance(pid, int) and read_start_time(pid) != str(owner.get("pid_start"))


def find_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())
