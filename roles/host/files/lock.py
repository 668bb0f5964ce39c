"""Take or release gpuprov's lock on this host; stdin: the request as JSON, stdout: the answer as JSON.

take: `owner` gets the lock if it is free, if it is the owner's already (same `run`), or if `stale` is, byte for byte, the
owner that holds it. release: the lock goes if `owner` holds it. leave: the same, but not before what the run has started on
this host has ended: that gets `wait` seconds here, and then up to `most` seconds more without anybody who waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
BASE = "/run/gpuprov"
LOCK = f"{BASE}/lock"
MARK = "GPUPROV_RUN"
"""The variable by which the playbook marks what it starts; it holds the owner's `run`."""


def held() -> str | None:
    """The owner file's text; None if nobody holds the lock; empty if the lock has no owner file."""
    try:
        with open(f"{LOCK}/owner.json", encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return "" if os.path.isdir(LOCK) else None


def owner_in(text: str) -> dict[str, object] | None:
    """The owner that the text describes; None if it is damaged."""
    with contextlib.suppress(ValueError):
        owner = json.loads(text)
        if isinstance(owner, dict) and {"controller", "pid", "pid_start", "user", "host", "since", "run"} <= set(owner):
            return owner
    return None


def name_of(text: str) -> str:
    """The lock's id, which --break-lock wants: the run that holds it; of a lock that says no fit one, a digest of what it says."""
    run = str((owner_in(text) or {}).get("run", ""))
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", run):
        return run
    return f"damaged-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def is_run(text: str | None, run: object) -> bool:
    return bool(text) and (owner_in(text or "") or {}).get("run") == run


def take(owner: dict[str, object], stale: str | None) -> dict[str, object]:
    """`taken`, and if not: `text` of the owner file that stands in the way, `owner` as it says (None: damaged), and the lock's `id`."""
    text = held()
    if is_run(text, owner["run"]):
        return {"taken": True}
    if text is not None:
        if stale is None or text != stale:
            return {"taken": False, "text": text, "owner": owner_in(text), "id": name_of(text)}
        shutil.rmtree(LOCK)
    for name in os.listdir(BASE):  # a process that was killed here left it: the guard says that there is no other
        if name.startswith(".lock-"):
            shutil.rmtree(f"{BASE}/{name}", ignore_errors=True)
    fresh = tempfile.mkdtemp(prefix=".lock-", dir=BASE)
    with open(f"{fresh}/owner.json", "w", encoding="utf-8") as file:
        json.dump(owner, file)
    os.chmod(fresh, 0o755)
    os.rename(fresh, LOCK)
    return {"taken": True}


def release(run: object) -> bool:
    mine = is_run(held(), run)
    if mine:
        shutil.rmtree(LOCK)
    return mine


def running(run: str) -> list[str]:
    """What the run started here and has not ended: the last of each chain of processes, with what it works for."""
    parents, lines = {}, {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError):
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"{MARK}={run}".encode() not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                parents[pid] = file.read().rpartition(")")[2].split()[1]
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                lines[pid] = " ".join(file.read().decode(errors="replace").replace("\0", " ").split())
    last = [pid for pid in parents if pid not in parents.values() and lines.get(pid)]
    above = {pid: lines.get(parents[pid], "")[:100] for pid in last}
    told = {pid: f"{lines[pid][:100]} (pid {pid}{', of ' * bool(above[pid])}{above[pid]})" for pid in last}
    return [told[pid] for pid in sorted(told, key=int)][:5]


def leave(run: str, wait: float, most: float) -> dict[str, object]:
    """What is still `running`, and whether the lock is still `held` for it: until that has ended, by a process of its own."""
    until = time.monotonic() + wait
    while (left := running(run)) and time.monotonic() < until:
        time.sleep(0.2)
    if not left or not is_run(held(), run):
        guarded(lambda: release(run))
        return {"held": False, "running": left}
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        until = time.monotonic() + most
        while is_run(held(), run) and running(run) and time.monotonic() < until:
            time.sleep(1)
        guarded(lambda: release(run))
        os._exit(0)
    return {"held": True, "running": left}


def guarded(work: Callable[[], T]) -> T:
    """Work that no other process of this program does at the same time."""
    os.makedirs(BASE, mode=0o755, exist_ok=True)
    with open(f"{BASE}/.lock.guard", "w", encoding="utf-8") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        return work()


def main() -> None:
    request = json.load(sys.stdin)
    action, owner = request["action"], request["owner"]
    if action == "take":
        answer = guarded(lambda: take(owner, request.get("stale")))
    elif action == "leave":
        answer = leave(owner["run"], request["wait"], request["most"])
    else:
        answer = {"released": guarded(lambda: release(owner["run"]))}
    print(json.dumps(answer))


main()
