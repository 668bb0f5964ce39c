"""What a plan asks a host once it is known what is wanted there: what its package manager would do, which sources it can use, and
what stands in files that would be written.

Run on a host as a program, by root: a request as JSON on standard input, the answer as one line of JSON. It changes nothing.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from typing import Any, Mapping

from . import family, repository
from .packages import actions, choice, other_driver
from .packages.model import LISTS_MAX_AGE, Manager, Refused, Settings

LONGEST = 64 << 10
"""Bytes of a file whose text is told."""
TRY = {
    "judge": False,
    "stream": "",
    "instead": "",
    "hint": "correct what it reports",
    "pin": {},
    "refuse": {},
    "driver": {},
}
LISTS = ("install", "remove", "may_remove", "hold", "release")


def answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    """`problem`: why its package manager cannot be asked. `transactions`, `sources`: for each that was asked for, what would be done,
    or why it is refused. `installed`: versions of what moves. `texts`: of the files that are asked for."""
    told: dict[str, Any] = {"problem": "", "transactions": [], "sources": [], "installed": {}}
    told["texts"] = {path: text for path in asked["texts"] if (text := read(path)) is not None}
    try:
        manager = choice.manager(Settings(asked.get("lock_timeout", Settings.lock_timeout), tuple(asked["without"])))
        told["sources"] = [_source(manager, one) for one in asked["sources"]]
        if asked["transactions"]:
            manager.prepare(asked.get("max_age", LISTS_MAX_AGE), True)
            told["transactions"] = [_transaction(manager, one) for one in asked["transactions"]]
            moved = {row.split()[1].partition(":")[0] for one in told["transactions"] for row in one["rows"]}
            there = manager.read([]).installed
            told["installed"] = {name: there[name] for name in sorted(moved) if name in there}
    except Refused as refused:
        told["problem"] = str(refused)
    return told


def read(path: str) -> str | None:
    """The text of a file, bytes that are no UTF-8 as \\x80; None where there is none, or a long one."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode) or state.st_size > LONGEST:
                return None
            return file.read(LONGEST).decode("utf-8", "backslashreplace")
    except OSError:
        return None


def _transaction(manager: Manager, given: Mapping[str, Any]) -> dict[str, Any]:
    asked = {**TRY, **{name: [] for name in LISTS}, **given}
    action = actions.judged if asked["judge"] else actions.attempt
    try:
        rows = [*action(manager, asked, True)["trial"]]
        rows += manager.hold(asked["hold"], asked["release"], True) if asked["hold"] or asked["release"] else []
    except Refused as refused:
        return {"rows": [], "refused": str(refused), "another_driver": isinstance(refused, other_driver.AnotherDriver)}
    return {"rows": rows, "refused": "", "another_driver": False}


def _source(manager: Manager, wanted: Mapping[str, Any]) -> dict[str, Any]:
    try:
        found = repository.settle(manager, wanted, family.here(), True)
    except (Refused, ValueError) as refused:
        return {"refused": str(refused), "files": []}
    return {"refused": "", "files": [one for one in found.get("diff", []) if "before_header" in one]}


def main() -> None:
    """The program."""
    asked = json.load(sys.stdin)
    try:
        told = answer(asked)
    except (OSError, ValueError, KeyError, TypeError) as error:
        told = {"problem": f"{type(error).__name__}: {error}"}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
