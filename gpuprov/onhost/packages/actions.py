"""What the module gpuprov_packages can be asked for. Each function answers one action; they raise Refused."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Callable, Dict, Mapping

from ..files import Refused as InTheWay
from ..files import Wanted, bring_about, differences
from .commands import both_ends
from .judge import committed, downloaded, guarded, tried
from .model import Manager, Pin, Refusal, Refused, Transaction

Asked = Mapping[str, Any]
Answer = Dict[str, Any]


def prepare(manager: Manager, asked: Asked, check: bool) -> Answer:
    """Have a package database, and lists, by which the rest can be decided."""
    done = manager.prepare(asked["max_age"], check)
    return _answer(done.changed, done.warnings)


def fetch(manager: Manager, asked: Asked, check: bool) -> Answer:
    """Have one source, and its lists; or nothing of it that was not there before."""
    wanted = [Wanted(path, text) for path, text in asked["sources"].items()]
    try:
        changed = differences(wanted) if check else bring_about(wanted)
    except InTheWay as error:
        raise Refused(str(error)) from error
    # Also where nothing changed: a run that was cut off may have left it without lists.
    try:
        if not check:
            manager.fetch(asked["source"])
    except Refused as refused:
        bring_about([Wanted(one.path, one.before) for one in changed])
        left = "taken away again" if changed else "left as it was"
        raise Refused(
            f"{asked['of'] or asked['source']}: the package lists could not be fetched, and the source was {left}: "
            f"{both_ends(str(refused), 900)}. Fix: {asked['hint']}"
        ) from refused
    return _answer([one.path for one in changed])


def read(manager: Manager, asked: Asked, check: bool) -> Answer:
    """What is there."""
    return {**_answer([]), **asdict(manager.read(asked["names"], asked["related"]))}


def attempt(manager: Manager, asked: Asked, check: bool) -> Answer:
    """Refuse a transaction that may not be done; else download its packages."""
    wanted = _lockable(manager, asked)
    if wanted.empty:
        return {**_answer([]), "trial": []}
    trial = tried(manager, wanted, asked.get("driver", {}))
    if not check:
        downloaded(manager, wanted)
    return {**_answer([]), "trial": trial.rows}


def judged(manager: Manager, asked: Asked, check: bool) -> Answer:
    """Refuse packages of another driver than the host's, and nothing else: what else is in the way may be gone when the driver is
    there that this run brings."""
    wanted = _lockable(manager, asked)
    rows = [] if wanted.empty else manager.attempt(wanted).rows
    guarded(manager, wanted, rows, asked.get("driver", {}))
    return {**_answer([]), "trial": rows}


def settle(manager: Manager, asked: Asked, check: bool) -> Answer:
    """Install, remove, hold and release, where it is not so yet."""
    wanted = _lockable(manager, asked)
    rows: list[str] = []
    warnings: list[str] = []
    if not wanted.empty:
        rows, warnings = _foreseen(manager, wanted) if check else _transacted(manager, wanted, asked.get("driver", {}))
    if asked["hold"] or asked["release"]:
        rows = rows + manager.hold(asked["hold"], asked["release"], check)
    return _answer(rows, warnings)


def files(manager: Manager, asked: Asked, check: bool) -> Answer:
    """Where the files of packages are."""
    return {**_answer([]), "files": manager.files(asked["install"])}


ACTIONS: dict[str, Callable[[Manager, Asked, bool], Answer]] = {
    "prepare": prepare,
    "fetch": fetch,
    "read": read,
    "try": attempt,
    "judge": judged,
    "settle": settle,
    "files": files,
}


def _foreseen(manager: Manager, wanted: Transaction) -> tuple[list[str], list[str]]:
    """What it would do. What stands in the way may be gone when it is done in earnest: a source that is still to come."""
    trial = manager.attempt(wanted)
    return trial.rows, [f"{manager.name} cannot install {wanted.of} yet: {trial.problem}"] if trial.problem else []


def _transacted(manager: Manager, wanted: Transaction, driver: Asked) -> tuple[list[str], list[str]]:
    trial = tried(manager, wanted, driver)
    if not trial.rows and not trial.unfinished:
        return [], []
    done = committed(manager, wanted)
    told = [f"{wanted.of}: all packages are in place, but {manager.name} says: {'; '.join(done.warnings)}"]
    return trial.rows or [f"complete {wanted.of}"], told if done.warnings else []


def _lockable(manager: Manager, asked: Asked) -> Transaction:
    """The transaction, with what is needed to hold packages, if some are to be held."""
    wanted = transaction(asked)
    needs = manager.read([]).lock_needs if asked["hold"] else []
    lacking = [name for name in needs if name not in wanted.install]
    return replace(wanted, of=wanted.of or ", ".join(lacking), install=(*lacking, *wanted.install))


def transaction(asked: Asked) -> Transaction:
    """The transaction that a task asks for."""
    pin, refuse = asked["pin"], asked["refuse"]
    return Transaction(
        of=asked["of"] or ", ".join([*asked["install"], *asked["remove"]]),
        install=tuple(asked["install"]),
        remove=tuple(asked["remove"]),
        may_remove=tuple(asked["may_remove"]),
        pin=Pin(str(pin["version"]), tuple(pin["patterns"])) if pin.get("patterns") else None,
        stream=asked["stream"],
        hint=asked["hint"],
        refusal=Refusal(tuple(refuse["patterns"]), refuse["why"], refuse["hint"]) if refuse.get("patterns") else None,
        instead=asked.get("instead", ""),
    )


def _answer(rows: list[str], warnings: Any = ()) -> Answer:
    return {"changed": bool(rows), "changes": rows, "warnings": list(warnings)}
