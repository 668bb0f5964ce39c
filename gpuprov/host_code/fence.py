"""The fence of a host: one line with the last run that took its lock, its name for the host, and its number."""

from __future__ import annotations

import re
import time
from typing import Mapping, TypedDict


class Owner(TypedDict, total=False):
    """A run as the owner of a lock: the process that leads it, and `name`, this host's in its inventory."""

    run: str
    controller: str
    pid: int
    pid_start: str
    user: str
    host: str
    since: str
    version: str
    name: str
    # `lease`, `token`, `boot`, `at`: of the lock it has.
    lease: float
    token: str
    boot: str
    at: float
    # The token that the host had when the run read it.
    seen: str


class Taken(TypedDict, total=False):
    """The answer to a run that wants a lock: `lock.take`."""

    taken: bool
    over: bool
    token: str
    twin: str
    lost: Mapping[str, str]
    passed: Mapping[str, str]
    text: str
    holder: Owner | None
    id: str
    left: float | None
    running: list[str]


class Left(TypedDict):
    """The answer to a run that leaves: whether the lock is still held for the processes that it started."""

    held: bool
    running: list[str]


def format_fence(token: str, owner: Owner) -> str:
    """Return the text of the fence for an owner who takes the lock now."""
    who = [format_word(owner.get(key)) for key in ("run", "user", "host")]
    return (
        " ".join([token, *who, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), format_word(owner.get("name"))])
        + "\n"
    )


def format_word(value: object) -> str:
    """Return a value as one word of the fence; "-" for an empty one."""
    return re.sub(r"[^A-Za-z0-9._:@+-]", "_", str(value or "")) or "-"


def parse_taker(text: str) -> dict[str, str]:
    """Return who took the lock last, from the fence's text; empty if that is damaged. Earlier versions recorded no
    name."""
    words = text.split()
    whole = len(words) in (5, 6) and re.fullmatch(r"\d+-[0-9a-f]{8}", words[0])
    return dict(zip(("token", "run", "user", "host", "since", "name"), words)) if whole else {}


def find_other_name(holder: Owner | Mapping[str, str], owner: Owner) -> str:
    """Return the other name under which the owner's run has the host or had it last; "" if none.

    `holder`: of the lock, or of the fence, which records the run and no process.
    """
    names = format_word(holder.get("name")), format_word(owner.get("name"))
    of_run = holder.get("run") == owner.get("run")
    of_process = "pid" in holder and all(
        holder.get(key) == owner.get(key) for key in ("controller", "pid", "pid_start")
    )
    return names[0] if (of_run or of_process) and "-" not in names and names[0] != names[1] else ""
