"""A stand-in for systemctl over the unit files below a folder: the units that start at boot and those that run are kept
as JSON beside them.

It knows the calls that gpuprov makes, and fails on any other. It does not know what units do when they are started, and
how they depend on each other.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import io
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(os.environ.get("UNITS_BELOW", "/nowhere"))
PLACES = ("etc/systemd/system", "usr/lib/systemd/system")


def list_names(name: str) -> list[str]:
    """Return the unit, then its template."""
    return [name, f"{name.partition('@')[0]}@.{name.rpartition('.')[2]}"] if "@" in name else [name]


def fragment(name: str) -> str:
    paths = (f"{ROOT}/{place}/{one}" for place in PLACES for one in list_names(name))
    return next((path for path in paths if os.path.isfile(path)), "")


def drop_ins(name: str) -> list[str]:
    found: dict[str, str] = {}
    for folder in (f"{ROOT}/{place}/{one}.d" for place in PLACES for one in list_names(name)):
        if os.path.isdir(folder):
            for file in os.listdir(folder):
                if file.endswith(".conf"):
                    found.setdefault(file, f"{folder}/{file}")
    return [found[one] for one in sorted(found)]


def show(name: str, state: dict[str, Any]) -> dict[str, str]:
    found, beside = fragment(name), drop_ins(name)
    read = [path for path in (found, *beside) if path]
    digest = hashlib.sha256(b"\0".join(path.encode() + Path(path).read_bytes() for path in read)).hexdigest()
    known = state["read"].setdefault(name, digest)
    return {
        "Id": name,
        "LoadState": "loaded" if found else "not-found",
        "FragmentPath": found,
        "DropInPaths": " ".join(beside),
        "NeedDaemonReload": "no" if known == digest else "yes",
        "ActiveState": state["active"].get(name, "inactive"),
        "UnitFileState": state["file"].get(name, "disabled") if found else "",
        "WantedBy": "multi-user.target" if state["file"].get(name) == "enabled" else "",
        "Result": "exit-code" if state["active"].get(name) == "failed" else "success",
        "MainPID": "0",
        "Conflicts": "shutdown.target",
        "ConflictedBy": "",
        "ExecMainStartTimestampMonotonic": str(int(state.get("started", {}).get(name, 0) * 1e6)),
    }


def main(words: Sequence[str]) -> int:
    file = ROOT / "systemctl.json"
    state = json.loads(file.read_text()) if file.exists() else {"active": {}, "file": {}, "read": {}}
    options = [one for one in words if one.startswith("-")]
    verb, *names = [
        one for before, one in zip(["", *words], words, strict=False) if not one.startswith("-") and before != "-p"
    ]
    wanted = [one for before, one in zip(["", *words], words, strict=False) if before == "-p"]
    status = 0
    if verb == "show":
        names = [one for name in names for one in (fnmatch.filter(state["active"], name) if "*" in name else [name])]
        for name in names:
            values = show(name, state)
            shown = [values[key] if "--value" in options else f"{key}={values[key]}" for key in wanted]
            print("\n".join(shown) + "\n")
    elif verb == "daemon-reload":
        state["read"] = {}
    elif verb in ("is-enabled", "is-active"):
        value = show(names[0], state)["UnitFileState" if verb == "is-enabled" else "ActiveState"]
        print(value or "not-found")
        status = 0 if value in ("enabled", "enabled-runtime", "active") else 1
    elif verb in ("enable", "disable", "restart", "start", "stop", "reload-or-restart"):
        for name in names:
            if not fragment(name) and (verb != "stop" or state["active"].get(name) != "active"):
                print(f"Unit {name} not found.", file=sys.stderr)
                return 5
            if verb in ("enable", "disable"):
                state["file"][name] = f"{verb}d"
            if verb == "stop" or (verb == "disable" and "--now" in options):
                state["active"][name] = "inactive"
            elif verb not in ("enable", "disable"):
                state["active"][name] = "active"
                state.setdefault("started", {})[name] = time.monotonic()
    else:
        print(f"the stand-in does not know {words}", file=sys.stderr)
        return 64
    file.write_text(json.dumps(state))
    if verb in ("enable", "disable", "restart", "start", "stop", "reload-or-restart"):
        with (ROOT / "systemctl.log").open("a") as log:
            log.write("".join(f"{verb} {name}\n" for name in names))
    return status


def answer(*words: str) -> tuple[int, str, str]:
    """Return exit status, output and errors, without a process."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        status = main(words)
    return status, out.getvalue().strip(), errors.getvalue().strip()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
