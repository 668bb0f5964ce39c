"""The lock of this host: a folder that exists or not, with a file that names its owner, its lease and its number.

Also a program, for hosts that are not reached by Ansible; stdin: the request as JSON, stdout: the answer as JSON. A
lock may have a lease: its holder has to renew it again and again, or another run may take the lock over. Time is that
of /proc/uptime, which setting a clock does not change. After a boot the lease counts from the boot. Each taking gives
the host another token, whose number only grows; actions of a run here go through a program that compares the token (the
guard), so that a run that lost its lock changes nothing.
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
from typing import Callable, Collection, Iterator

from .fence import Left, Owner, Taken, find_other_name, format_fence, parse_taker
from .marked import list_running

BASE = "/run/gpuprov"
LOCK = f"{BASE}/lock"
# The folder that outlives a boot: the token (fence), the current owner (held.json), and the guards (guard.py).
KEPT = "/var/lib/gpuprov/lock"
NEEDED = frozenset({"controller", "pid", "pid_start", "user", "host", "since", "run"})
PERSON = ("run", "controller", "pid", "pid_start")
# Permitted names of a run.
RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# The fields that identify an owner: the run, and the process that leads it. For a run that works on many hosts, also
# `name`, this host's name in its inventory: a machine with two names would be changed twice at a time.
TOKEN = re.compile(r"\d+-[0-9a-f]+")
# Seconds that processes of a run have to end, if its leader is dead, or the lock was taken over while it began.
SLIPPED = 10.0


@contextlib.contextmanager
def guard() -> Iterator[None]:
    """Exclude all other processes of this program for the duration of the context."""
    os.umask(0o022)  # whatever root's is: who logs in goes through the guard, too
    os.makedirs(BASE, mode=0o755, exist_ok=True)
    with open(f"{BASE}/.lock.guard", "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)  # who may read it could flock(2) it, too, and keep everybody from this host
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read_owner_file() -> str | None:
    """Return the text of the owner file; None if nobody holds the lock, "" if the lock has no owner file.

    /run is empty after a boot: the lock is then the one that was held before the boot.
    """
    try:
        with open(f"{LOCK}/owner.json", encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        if os.path.isdir(LOCK):
            return ""
    kept = read(f"{KEPT}/held.json")
    if kept is None or (parse_owner(kept) or {}).get("boot") == identify_boot():
        return None  # somebody removed the lock by hand, as its message says
    return kept


def parse_owner(text: str) -> Owner | None:
    """Return the owner that the text describes; None if it is damaged."""
    with contextlib.suppress(ValueError):
        owner: Owner = json.loads(text)
        return owner if isinstance(owner, dict) and set(owner) >= NEEDED else None
    return None


def name_of(text: str) -> str:
    """Return the lock's ID, which --break-lock takes: the run that holds it, or else a digest of the text."""
    run = str((parse_owner(text) or {}).get("run", ""))
    if RUN.fullmatch(run):
        return run
    return f"damaged-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def is_mine(text: str | None, owner: Owner) -> bool:
    """Return whether the lock is this owner's. A resumed run is led by another process, and is another owner."""
    holder = parse_owner(text or "") or {}
    name, other = holder.get("name"), owner.get("name")
    same = bool(holder) and all(holder.get(key) == owner.get(key) for key in PERSON if key in owner)
    return same and (name == other or not name or not other)


def identify_boot() -> str:
    """Return an identifier of this boot. A restarted container has the machine's, and another first process."""
    return f"{(read('/proc/sys/kernel/random/boot_id') or '').strip()} {read_first_start():.2f}"


def count_left(text: str) -> float | None:
    """Return the seconds until the lock's lease ends, 0 if it has ended; None for a lock without a lease."""
    owner = parse_owner(text) or {}
    lease, at = owner.get("lease"), owner.get("at")
    if not isinstance(lease, (int, float)) or not isinstance(at, (int, float)):
        return None
    now = read_uptime()
    if owner.get("boot") != identify_boot():
        since = now - read_first_start()
        return max(0.0, lease - (since if since >= 0 else now))  # lxcfs makes /proc/uptime the container's own
    heard = [time for time in (float(at), read_renewal()) if time <= now + 1]
    return max(0.0, lease - (now - max(heard, default=0.0)))


def take(owner: Owner, broken: Collection[str] = (), stale: str | None = None) -> Taken:
    """Take the lock for `owner`; in the answer, `taken` is whether it now has the lock, and `token` its number.

    The owner gets the lock if it is free, if it already has it, or if the lock's ID is in `broken`. If none of the
    processes that the holder started runs any more, it also gets the lock if the lease has ended, or if the lock is,
    byte for byte, the `stale` one, whose leader is known to be dead. An owner with the token of another lock gets
    nothing: it has `lost` its lock. Nor does one whose `seen` differs from the host's token: another run has `passed`
    since it read the host. A run that has the host under another name gets the lock under that name only (`twin`).
    `over`: whether the lock was taken over. A lock that is in the way, or was taken over, is described by its `text`,
    its `holder` (None if damaged), its `id`, and what is `left` of its lease.
    """
    with guard():
        text, token = read_owner_file(), read_token()
        is_own = is_mine(text, owner)
        if twin := find_other_name(read_taker() if text is None else parse_owner(text) or {}, owner):
            return {"taken": False, "over": False, "twin": twin}
        if owner.get("token") and token != owner["token"]:
            return {"taken": False, "over": False, "lost": read_taker()}
        owner = owner.copy()
        seen = owner.pop("seen", None)
        if seen is not None and not is_own and not owner.get("token") and token != seen:
            return {"taken": False, "over": False, "passed": read_taker()}
        described: Taken = {}
        forced = False
        if text is not None and not is_own:
            described = {"text": text, "holder": parse_owner(text), "id": name_of(text), "left": count_left(text)}
            forced, ended = described["id"] in broken, described["left"] == 0
            if text == stale and not forced:  # what was cut off with its leader gets a moment
                ended, described["running"] = True, wait_for_processes(described["id"])
            else:
                described["running"] = list_running(described["id"]) if ended and not forced else []
            if not forced and (not ended or described["running"]):
                return {"taken": False, "over": False, **described}
        if not token or (owner.get("token") or (is_own and (parse_owner(text or "") or {}).get("token"))) != token:
            token = give_token(owner, text)
        if described and not forced and (slipped := wait_for_processes(str(described["id"]))):
            return {"taken": False, "over": False, **described, "running": slipped}
        shutil.rmtree(LOCK, ignore_errors=True)
        _put({**owner, "token": token, "boot": identify_boot(), "at": round(read_uptime(), 2)})
        return {"taken": True, "over": bool(described), "token": token, **described}


def renew_lease(owner: Owner) -> bool:
    """Restart the lease if the lock is the owner's, even one from before the boot. Return whether it is.

    A lock whose token is not the host's belongs to nobody: the guard refuses its run.
    """
    with guard():
        text = read_owner_file()
        is_own = is_mine(text, owner) and (parse_owner(text or "") or {}).get("token", read_token()) == read_token()
        with contextlib.suppress(OSError):
            if is_own and not os.path.isdir(LOCK):
                _put({**(parse_owner(text or "") or {}), "boot": identify_boot(), "at": round(read_uptime(), 2)})
            elif is_own:
                with open(f"{LOCK}/renewed", "w", encoding="ascii") as file:
                    file.write(f"{int(read_uptime())}\n")
        return is_own


def release_lock(owner: Owner) -> bool:
    """Release the lock if it is the owner's. Return whether it was. The token stays."""
    with guard():
        is_own = is_mine(read_owner_file(), owner)
        if is_own:
            shutil.rmtree(LOCK, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{KEPT}/held.json")
        return is_own


def read_token() -> str:
    """Return the token of the current or most recent lock of this host; "" if there is none or the file is damaged."""
    return read_taker().get("token", "")


def leave(owner: Owner, wait: float, most: float) -> Left:
    """Release the lock once everything that the run started here has ended.

    Wait `wait` seconds in this process, then up to `most` seconds in a detached one. Return what is still `running`,
    and whether the lock is still `held` for it.
    """
    run, until = str(owner["run"]), time.monotonic() + wait
    while (processes := list_running(run)) and time.monotonic() < until:
        time.sleep(0.2)
    if not processes or not is_mine(read_owner_file(), owner):
        release_lock(owner)
        return {"held": False, "running": processes}
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        until = time.monotonic() + most
        while renew_lease(owner) and list_running(run) and time.monotonic() < until:
            time.sleep(1)
        release_lock(owner)
        os._exit(0)
    return {"held": True, "running": processes}


def wait_for_processes(run: str) -> list[str]:
    """Wait some seconds for the processes that the run started; return those that are still running."""
    until = time.monotonic() + SLIPPED
    while (processes := list_running(run)) and time.monotonic() < until:
        time.sleep(0.2)
    return processes


def give_token(owner: Owner, text: str | None) -> str:
    """Give the host the next token. Without a number to count from, use the time, which no earlier run can have had."""
    known = [str((parse_owner(text or "") or {}).get("token", "")), read_token()]
    numbers = [int(token.partition("-")[0]) for token in known if TOKEN.fullmatch(token)]
    fresh = numbers or not os.path.exists(f"{KEPT}/fence")
    number = max(numbers, default=0) + 1 if fresh else int(time.time())
    token = f"{number}-{secrets.token_hex(4)}"
    write_whole(f"{KEPT}/fence", format_fence(token, owner))
    return token


def read_taker() -> dict[str, str]:
    return parse_taker(read(f"{KEPT}/fence") or "")


def _put(owner: Owner) -> None:
    for name in os.listdir(BASE):  # a process that was killed here left it: the guard says that there is no other
        if name.startswith(".lock-"):
            shutil.rmtree(f"{BASE}/{name}", ignore_errors=True)
    text = json.dumps(dict(owner))
    write_whole(f"{KEPT}/held.json", text)
    fresh = tempfile.mkdtemp(prefix=".lock-", dir=BASE)
    with open(f"{fresh}/owner.json", "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(fresh, 0o755)
    os.rename(fresh, LOCK)


def write_whole(path: str, text: str, mode: int = 0o644) -> None:
    """Write a file atomically, so that it is complete even after a power loss."""
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


def read_uptime() -> float:
    return float((read("/proc/uptime") or "").split()[0])


def read_first_start() -> float:
    """Return when the first process started, in seconds after the kernel: proc_pid_stat(5), field 22."""
    return int((read("/proc/1/stat") or "").rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


def read_renewal() -> float:
    """Return when the lease was last renewed. The guard writes without a lock: an empty file is read again."""
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
        "renew": lambda: {"held": renew_lease(owner)},
        "release": lambda: {"released": release_lock(owner)},
    }
    print(json.dumps(actions[request["action"]]()))


if __name__ == "__main__":
    main()
