"""The lock of this host: a folder that is there or not, with a file that says whose it is, for how long, and under which number.

Also a program, for hosts that are not reached by Ansible; stdin: the request as JSON, stdout: the answer as JSON.
A lock may have a lease: its holder has to be heard of again and again, or another run may take the lock over. Time is /proc/uptime's,
which no clock that is set can move. After a boot the lease counts from the boot. Each taking gives the host another token, whose
number only grows; what a run does here goes through a program that compares the token (the guard), so that a run that lost its lock
changes nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from typing import Any, Callable, Collection, Iterator, Mapping

from .fence import line, other_name, taker
from .marked import running

BASE = "/run/gpuprov"
LOCK = f"{BASE}/lock"
KEPT = "/var/lib/gpuprov/lock"
"""What outlives a boot: the token (fence), the owner while there is one (held.json), and the guards (guard.py)."""
NEEDED = frozenset({"controller", "pid", "pid_start", "user", "host", "since", "run"})
PERSON = ("run", "controller", "pid", "pid_start")
RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a run may be called."""
TOKEN = re.compile(r"\d+-[0-9a-f]+")
"""By which an owner is known: the run, and the process that leads it. Of a run that works on many hosts, also `name`, which its
inventory has for this one: a machine that has two names there is one host, and would be changed twice at a time."""
SLIPPED = 10.0
"""Seconds that what a run has started gets to end, where its leader is dead, or the lock was taken over while it began."""


@contextlib.contextmanager
def guard() -> Iterator[None]:
    """What is done inside no other process of this program does at the same time."""
    os.umask(0o022)  # whatever root's is: who logs in goes through the guard, too
    os.makedirs(BASE, mode=0o755, exist_ok=True)
    with open(f"{BASE}/.lock.guard", "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)  # who may read it could flock(2) it, too, and keep everybody from this host
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def held() -> str | None:
    """The owner file's text; None if nobody holds the lock; empty if the lock has no owner file.

    /run is empty after a boot: then the lock is the one that was held before it.
    """
    try:
        with open(f"{LOCK}/owner.json", encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        if os.path.isdir(LOCK):
            return ""
    kept = read(f"{KEPT}/held.json")
    if kept is None or (owner_in(kept) or {}).get("boot") == boot():
        return None  # somebody removed the lock by hand, as its message says
    return kept


def owner_in(text: str) -> dict[str, Any] | None:
    """The owner that the text describes; None if it is damaged."""
    with contextlib.suppress(ValueError):
        owner = json.loads(text)
        if isinstance(owner, dict) and set(owner) >= NEEDED:
            return owner
    return None


def name_of(text: str) -> str:
    """The lock's id, which --break-lock wants: the run that holds it; of a lock that names no proper run, a digest of what it says."""
    run = str((owner_in(text) or {}).get("run", ""))
    if RUN.fullmatch(run):
        return run
    return f"damaged-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def is_mine(text: str | None, owner: Mapping[str, object]) -> bool:
    """Whether the lock is this owner's. A run that goes on elsewhere is led by another process, and is another owner."""
    holder = owner_in(text or "") or {}
    name, other = holder.get("name"), owner.get("name")
    same = bool(holder) and all(holder.get(key) == owner[key] for key in PERSON if key in owner)
    return same and (name == other or not name or not other)


def boot() -> str:
    """Which boot this is; a container that was started afresh has the machine's boot id and another first process."""
    return f"{(read('/proc/sys/kernel/random/boot_id') or '').strip()} {_first():.2f}"


def left(text: str) -> float | None:
    """Seconds until the lock's lease ends, 0 where it has; None where it has no lease, as locks of earlier versions."""
    owner = owner_in(text) or {}
    lease, at = owner.get("lease"), owner.get("at")
    if not isinstance(lease, (int, float)) or not isinstance(at, (int, float)):
        return None
    now = _uptime()
    if owner.get("boot") != boot():
        since = now - _first()
        return max(0.0, lease - (since if since >= 0 else now))  # lxcfs makes /proc/uptime the container's own
    heard = [time for time in (float(at), _renewed()) if time <= now + 1]
    return max(0.0, lease - (now - max(heard, default=0.0)))


def take(owner: Mapping[str, Any], broken: Collection[str] = (), stale: str | None = None) -> dict[str, Any]:
    """Take the lock for `owner`: `taken` says whether it has it now, and `token` under which number.

    It gets the lock if it is free, if it is the owner's already, or if its id is in `broken`; and where nothing runs any more that
    its holder started, if its lease has ended, or if it is, byte for byte, the `stale` one, whose leader is known to be dead. An
    owner with a token of another lock gets nothing: it `lost` that. So does one whose `seen` is not the host's token: another run
    has `passed` since it read the host. A run that has the host by another name gets it by that one alone (`twin`). `over`: whether
    it was taken over. A lock in the way, also one that was taken over, is
    described by its `text`, the `holder` as it says (None: damaged), its `id`, and what is `left` of its lease.
    """
    with guard():
        text, token = held(), fence()
        mine = is_mine(text, owner)
        if twin := other_name(_taker() if text is None else owner_in(text) or {}, owner):
            return {"taken": False, "over": False, "twin": twin}
        if owner.get("token") and token != owner["token"]:
            return {"taken": False, "over": False, "lost": _taker()}
        owner, seen = {key: value for key, value in owner.items() if key != "seen"}, owner.get("seen")
        if seen is not None and not mine and not owner.get("token") and token != seen:
            return {"taken": False, "over": False, "passed": _taker()}
        described: dict[str, Any] = {}
        forced = False
        if text is not None and not mine:
            described = {"text": text, "holder": owner_in(text), "id": name_of(text), "left": left(text)}
            forced, ended = described["id"] in broken, described["left"] == 0
            if text == stale and not forced:  # what was cut off with its leader gets a moment
                ended, described["running"] = True, _ending(described["id"])
            else:
                described["running"] = running(described["id"]) if ended and not forced else []
            if not forced and (not ended or described["running"]):
                return {"taken": False, "over": False, **described}
        if not token or (owner.get("token") or (mine and (owner_in(text or "") or {}).get("token"))) != token:
            token = _fence(owner, text)
        if described and not forced and (slipped := _ending(str(described["id"]))):
            return {"taken": False, "over": False, **described, "running": slipped}
        shutil.rmtree(LOCK, ignore_errors=True)
        _put({**owner, "token": token, "boot": boot(), "at": round(_uptime(), 2)})
        return {"taken": True, "over": bool(described), "token": token, **described}


def renew(owner: Mapping[str, object]) -> bool:
    """Have the lease begin anew, if the lock is the owner's, also one from before the boot. Returns whether it is.

    One whose token is not the host's is nobody's: the guard refuses what its run would do.
    """
    with guard():
        text = held()
        mine = is_mine(text, owner) and (owner_in(text or "") or {}).get("token", fence()) == fence()
        with contextlib.suppress(OSError):
            if mine and not os.path.isdir(LOCK):
                _put({**(owner_in(text or "") or {}), "boot": boot(), "at": round(_uptime(), 2)})
            elif mine:
                with open(f"{LOCK}/renewed", "w", encoding="ascii") as file:
                    file.write(f"{int(_uptime())}\n")
        return mine


def release(owner: Mapping[str, object]) -> bool:
    """Give the lock back if it is the owner's. Returns whether it was. The token stays."""
    with guard():
        mine = is_mine(held(), owner)
        if mine:
            shutil.rmtree(LOCK, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{KEPT}/held.json")
        return mine


def fence() -> str:
    """The token of this host: of the lock that is held, or was held last. Empty if there is none, or the file is damaged."""
    return _taker().get("token", "")


def leave(owner: Mapping[str, Any], wait: float, most: float) -> dict[str, object]:
    """Give the lock back when what the run has started here has ended.

    That gets `wait` seconds here, and then up to `most` seconds more, by a process that nobody waits for. Returns what is still
    `running`, and whether the lock is still `held` for it.
    """
    run, until = str(owner["run"]), time.monotonic() + wait
    while (left := running(run)) and time.monotonic() < until:
        time.sleep(0.2)
    if not left or not is_mine(held(), owner):
        release(owner)
        return {"held": False, "running": left}
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        until = time.monotonic() + most
        while renew(owner) and running(run) and time.monotonic() < until:
            time.sleep(1)
        release(owner)
        os._exit(0)
    return {"held": True, "running": left}


def _ending(run: str) -> list[str]:
    """What still runs of what the run started, after it has had some seconds to end."""
    until = time.monotonic() + SLIPPED
    while (found := running(run)) and time.monotonic() < until:
        time.sleep(0.2)
    return found


def _fence(owner: Mapping[str, Any], text: str | None) -> str:
    """Give the host the next token. Without a number to count from, the time is one that no earlier run can have."""
    known = [str((owner_in(text or "") or {}).get("token", "")), fence()]
    numbers = [int(token.partition("-")[0]) for token in known if TOKEN.fullmatch(token)]
    fresh = numbers or not os.path.exists(f"{KEPT}/fence")
    number = max(numbers, default=0) + 1 if fresh else int(time.time())
    token = f"{number}-{secrets.token_hex(4)}"
    whole(f"{KEPT}/fence", line(token, owner))
    return token


def _taker() -> dict[str, str]:
    return taker(read(f"{KEPT}/fence") or "")


def _put(owner: Mapping[str, object]) -> None:
    for name in os.listdir(BASE):  # a process that was killed here left it: the guard says that there is no other
        if name.startswith(".lock-"):
            shutil.rmtree(f"{BASE}/{name}", ignore_errors=True)
    text = json.dumps(dict(owner))
    whole(f"{KEPT}/held.json", text)
    fresh = tempfile.mkdtemp(prefix=".lock-", dir=BASE)
    with open(f"{fresh}/owner.json", "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(fresh, 0o755)
    os.rename(fresh, LOCK)


def whole(path: str, text: str, mode: int = 0o644) -> None:
    """Put a file into its place, whole also after a loss of power."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    fresh = f"{path}.new"  # under the guard nobody else writes
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    os.rename(fresh, path)


def read(path: str) -> str | None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), open(
        path, encoding="utf-8", errors="replace"
    ) as file:
        return file.read()
    return None


def _uptime() -> float:
    return float((read("/proc/uptime") or "").split()[0])


def _first() -> float:
    """When the first process started, in seconds after the kernel: proc_pid_stat(5), field 22."""
    return int((read("/proc/1/stat") or "").rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


def _renewed() -> float:
    """When the run was heard of last. The guard writes without a lock: an empty file is read again."""
    for _ in range(3):
        if (text := (read(f"{LOCK}/renewed") or "0").strip()).isdecimal():
            return float(text)
        time.sleep(0.02)
    return 0.0


def main() -> None:
    owner = (request := json.load(sys.stdin))["owner"]
    actions: dict[str, Callable[[], object]] = {
        "take": lambda: take(owner, request.get("broken", ()), request.get("stale")),
        "leave": lambda: leave(owner, request["wait"], request["most"]),
        "renew": lambda: {"held": renew(owner)},
        "release": lambda: {"released": release(owner)},
    }
    print(json.dumps(actions[request["action"]]()))


if __name__ == "__main__":
    main()
