"""Take or release gpuprov's lock on this host; stdin: the request as JSON, stdout: the answer as JSON.

take: `owner` gets the lock if it is free, if it is the owner's already (same `run`), or if `stale` is, byte for byte, the
owner that holds it. release: the lock goes if `owner` holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sys
import tempfile

BASE = "/run/gpuprov"
LOCK = f"{BASE}/lock"


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


def is_run(text: str | None, run: object) -> bool:
    return bool(text) and (owner_in(text or "") or {}).get("run") == run


def take(owner: dict[str, object], stale: str | None) -> dict[str, object]:
    """`taken`, and if not: `text` of the owner file that stands in the way, `owner` as it says (None: damaged)."""
    text = held()
    if is_run(text, owner["run"]):
        return {"taken": True}
    if text is not None:
        if stale is None or text != stale:
            return {"taken": False, "text": text, "owner": owner_in(text)}
        shutil.rmtree(LOCK)
    fresh = tempfile.mkdtemp(prefix=".lock-", dir=BASE)
    with open(f"{fresh}/owner.json", "w", encoding="utf-8") as file:
        json.dump(owner, file)
    os.chmod(fresh, 0o755)
    os.rename(fresh, LOCK)
    return {"taken": True}


def main() -> None:
    request = json.load(sys.stdin)
    os.makedirs(BASE, mode=0o755, exist_ok=True)
    with open(f"{BASE}/.lock.guard", "w", encoding="utf-8") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if request["action"] == "take":
            answer = take(request["owner"], request.get("stale"))
        else:
            mine = is_run(held(), request["owner"]["run"])
            if mine:
                shutil.rmtree(LOCK)
            answer = {"released": mine}
    print(json.dumps(answer))


main()
