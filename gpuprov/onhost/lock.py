"""The lock of this host: a folder that is there or not, with a file that says whose it is.

Also a program, for hosts that are not reached by Ansible; stdin: the request as JSON, stdout: the answer as JSON.
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
from typing import Any, Collection, Iterator, Mapping

BASE = "/run/gpuprov"
LOCK = f"{BASE}/lock"
MARK = "GPUPROV_RUN"
"""The variable by which the playbook marks what it starts; it holds the owner's `run`."""
NEEDED = frozenset({"controller", "pid", "pid_start", "user", "host", "since", "run"})


@contextlib.contextmanager
def guard() -> Iterator[None]:
    """What is done inside no other process of this program does at the same time."""
    os.makedirs(BASE, mode=0o755, exist_ok=True)
    with open(f"{BASE}/.lock.guard", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
        if isinstance(owner, dict) and set(owner) >= NEEDED:
            return owner
    return None


def name_of(text: str) -> str:
    """The lock's id, which --break-lock wants: the run that holds it; of a lock that names no proper run, a digest of what it says."""
    run = str((owner_in(text) or {}).get("run", ""))
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", run):
        return run
    return f"damaged-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def is_run(text: str | None, run: object) -> bool:
    return bool(text) and (owner_in(text or "") or {}).get("run") == run


def take(owner: Mapping[str, object], broken: Collection[str] = (), stale: str | None = None) -> dict[str, object]:
    """Take the lock for `owner`: `taken` says whether it has it now.

    It gets the lock if it is free, if it is the owner's already (same `run`), if its id is in `broken`, or if it is, byte for
    byte, the `stale` one. `over`: whether it was taken over. A lock in the way, also one that was taken over, is described by its
    `text`, the `holder` as it says (None: damaged), and its `id`.
    """
    with guard():
        text = held()
        if is_run(text, owner["run"]):
            return {"taken": True, "over": False}
        described: dict[str, object] = {}
        if text is not None:
            described = {"text": text, "holder": owner_in(text), "id": name_of(text)}
            if text != stale and described["id"] not in broken:
                return {"taken": False, "over": False, **described}
            shutil.rmtree(LOCK)
        _put(owner)
        return {"taken": True, "over": text is not None, **described}


def release(run: object) -> bool:
    """Give the lock back if the run holds it. Returns whether it did."""
    with guard():
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
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as status:
                parents[pid] = status.read().rpartition(")")[2].split()[1]
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                lines[pid] = " ".join(file.read().decode(errors="replace").replace("\0", " ").split())
    last = [pid for pid in parents if pid not in parents.values() and lines.get(pid)]
    above = {pid: lines.get(parents[pid], "")[:100] for pid in last}
    shown = {pid: f"{lines[pid][:100]} (pid {pid}{', of ' * bool(above[pid])}{above[pid]})" for pid in last}
    return [shown[pid] for pid in sorted(shown, key=int)][:5]


def leave(run: str, wait: float, most: float) -> dict[str, object]:
    """Give the lock back when what the run has started here has ended.

    That gets `wait` seconds here, and then up to `most` seconds more, by a process that nobody waits for. Returns what is still
    `running`, and whether the lock is still `held` for it.
    """
    until = time.monotonic() + wait
    while (left := running(run)) and time.monotonic() < until:
        time.sleep(0.2)
    if not left or not is_run(held(), run):
        release(run)
        return {"held": False, "running": left}
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        until = time.monotonic() + most
        while is_run(held(), run) and running(run) and time.monotonic() < until:
            time.sleep(1)
        release(run)
        os._exit(0)
    return {"held": True, "running": left}


def refusal(answer: Mapping[str, Any], broken: Collection[str], command: str) -> tuple[str, str]:
    """Why the lock cannot be had, and the way out. broken: the ids that --break-lock named. command: what takes --break-lock."""
    holder, name = answer.get("holder"), answer.get("id", "?")
    other = "; that is another lock than --break-lock names" if set(broken) - {""} else ""
    if not isinstance(holder, dict) or not holder:
        return (
            f"locked, and {LOCK}/owner.json is damaged or missing, so nobody can say by whom; lock {name}{other}",
            f"make sure that no gpuprov or ansible-playbook works there, then {command} --break-lock {name}, or remove {LOCK}",
        )
    user, host, since, pid = (holder.get(key, "?") for key in ("user", "host", "since", "pid"))
    return (
        f"locked by {user} on {host} since {since} (pid {pid}), lock {name}{other}",
        f"wait until that run ends, or stop it; if it is gone for good, {command} --break-lock {name}, or remove {LOCK} on the host",
    )


def _put(owner: Mapping[str, object]) -> None:
    for name in os.listdir(BASE):  # a process that was killed here left it: the guard says that there is no other
        if name.startswith(".lock-"):
            shutil.rmtree(f"{BASE}/{name}", ignore_errors=True)
    fresh = tempfile.mkdtemp(prefix=".lock-", dir=BASE)
    with open(f"{fresh}/owner.json", "w", encoding="utf-8") as file:
        json.dump(dict(owner), file)
    os.chmod(fresh, 0o755)
    os.rename(fresh, LOCK)


def main() -> None:
    request = json.load(sys.stdin)
    action, owner = request["action"], request["owner"]
    if action == "take":
        answer = take(owner, request.get("broken", ()), request.get("stale"))
    elif action == "leave":
        answer = leave(owner["run"], request["wait"], request["most"])
    else:
        answer = {"released": release(owner["run"])}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
