"""Actions of the module gpuprov_packages, one function each; they raise Refused."""

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


def prepare(manager: Manager, params: Asked, check: bool) -> Answer:
    """Prepare a package database, and lists, that decisions can rely on."""
    done = manager.prepare(params["max_age"], check)
    return _answer(done.changed, done.warnings)


def fetch(manager: Manager, params: Asked, check: bool) -> Answer:
    """Add one source, and its lists; or leave nothing of it that did not exist before."""
    lists = [Wanted(path, text) for path, text in params["sources"].items()]
    try:
        changed = differences(lists) if check else bring_about(lists)
    except InTheWay as error:
        raise Refused(str(error)) from error
    # Also where nothing changed: a run that was cut off may have left it without lists.
    try:
        if not check:
            manager.fetch(params["source"])
    except Refused as refused:
        bring_about([Wanted(change.path, change.before) for change in changed])
        outcome = "taken away again" if changed else "left as it was"
        raise Refused(
            f"{params['of'] or params['source']}: the package lists could not be fetched, and the source was {outcome}: "
            f"{both_ends(str(refused), 900)}. Fix: {params['hint']}"
        ) from refused
    return _answer([change.path for change in changed])


def read(manager: Manager, params: Asked, check: bool) -> Answer:
    """Return the packages on the host."""
    return {**_answer([]), **asdict(manager.read(params["names"], params["related"]))}


def attempt(manager: Manager, params: Asked, check: bool) -> Answer:
    """Refuse a forbidden transaction; else download its packages."""
    wanted = _lockable(manager, params)
    if wanted.empty:
        return {**_answer([]), "trial": []}
    trial = tried(manager, wanted, params.get("driver", {}))
    if not check:
        downloaded(manager, wanted)
    return {**_answer([]), "trial": trial.rows}


def judged(manager: Manager, params: Asked, check: bool) -> Answer:
    """Refuse packages of another driver than the host's, and nothing else: other problems may be solved by the driver that this run
    installs."""
    wanted = _lockable(manager, params)
    rows = [] if wanted.empty else manager.attempt(wanted).rows
    guarded(manager, wanted, rows, params.get("driver", {}))
    return {**_answer([]), "trial": rows}


def settle(manager: Manager, params: Asked, check: bool) -> Answer:
    """Install, remove, hold and release, as far as necessary."""
    wanted = _lockable(manager, params)
    rows: list[str] = []
    warnings: list[str] = []
    if not wanted.empty:
        rows, warnings = _foreseen(manager, wanted) if check else _transacted(manager, wanted, params.get("driver", {}))
    if params["hold"] or params["release"]:
        rows = rows + manager.hold(params["hold"], params["release"], check)
    return _answer(rows, warnings)


def files(manager: Manager, params: Asked, check: bool) -> Answer:
    """Return the paths of the files of packages."""
    return {**_answer([]), "files": manager.files(params["install"])}


ACTIONS: dict[str, Callable[[Manager, Asked, bool], Answer]] = {
    "prepare": prepare,
    "fetch": fetch,
    "read": read,
    "try": attempt,
    "judge": judged,
    "settle": settle,
    "files": files,
}


def _foreseen(manager: Manager, desired: Transaction) -> tuple[list[str], list[str]]:
    """Return the changes and problems of a trial run. Problems may be gone by the real run, for instance when a source
    is still to be added."""
    trial = manager.attempt(desired)
    return trial.rows, [f"{manager.name} cannot install {desired.of} yet: {trial.problem}"] if trial.problem else []


def _transacted(manager: Manager, desired: Transaction, driver: Asked) -> tuple[list[str], list[str]]:
    trial = tried(manager, desired, driver)
    if not trial.rows and not trial.unfinished:
        return [], []
    done = committed(manager, desired)
    notes = [f"{desired.of}: all packages are in place, but {manager.name} says: {'; '.join(done.warnings)}"]
    return trial.rows or [f"complete {desired.of}"], notes if done.warnings else []


def _lockable(manager: Manager, params: Asked) -> Transaction:
    """Return the transaction, with the packages needed for holds, if there are any."""
    wanted = transaction(params)
    needs = manager.read([]).lock_needs if params["hold"] else []
    lacking = [name for name in needs if name not in wanted.install]
    return replace(wanted, of=wanted.of or ", ".join(lacking), install=(*lacking, *wanted.install))


def transaction(params: Asked) -> Transaction:
    """Return the transaction that a task requests."""
    pin, refuse = params["pin"], params["refuse"]
    return Transaction(
        of=params["of"] or ", ".join([*params["install"], *params["remove"]]),
        install=tuple(params["install"]),
        remove=tuple(params["remove"]),
        may_remove=tuple(params["may_remove"]),
        pin=Pin(str(pin["version"]), tuple(pin["patterns"])) if pin.get("patterns") else None,
        stream=params["stream"],
        hint=params["hint"],
        refusal=Refusal(tuple(refuse["patterns"]), refuse["why"], refuse["hint"]) if refuse.get("patterns") else None,
        instead=params.get("instead", ""),
    )


def _answer(rows: list[str], warnings: Any = ()) -> Answer:
    return {"changed": bool(rows), "changes": rows, "warnings": list(warnings)}
