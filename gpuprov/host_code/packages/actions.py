"""Actions of the module gpuprov_packages, one function each; they raise Refused."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Callable, Dict, Mapping

from ..files import Refused as InTheWay
from ..files import Wanted, bring_about, list_differences
from .commands import shorten_middle
from .judge import commit_transaction, download_packages, refuse_other_driver, try_transaction
from .model import Manager, Pin, Refusal, Refused, Transaction
from .other_driver import Option

Asked = Mapping[str, Any]
Answer = Dict[str, Any]


def prepare(manager: Manager, params: Asked, check: bool) -> Answer:
    """Prepare a package database, and lists, that decisions can rely on."""
    done = manager.prepare(params["max_age"], check)
    return make_answer(done.changed, done.warnings)


def fetch(manager: Manager, params: Asked, check: bool) -> Answer:
    """Add one source, and its lists; or leave nothing of it that did not exist before."""
    lists = [Wanted(path, text) for path, text in params["sources"].items()]
    try:
        changed = list_differences(lists) if check else bring_about(lists)
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
            f"{params['of'] or params['source']}: the package lists could not be fetched, and the source was "
            f"{outcome}: "
            f"{shorten_middle(str(refused), 900)}. Fix: {params['fix']}"
        ) from refused
    return make_answer([change.path for change in changed])


def read(manager: Manager, params: Asked, check: bool) -> Answer:
    """Return the packages on the host."""
    return {**make_answer([]), **asdict(manager.read(params["names"], params["related"]))}


def prepare_transaction(manager: Manager, params: Asked, check: bool) -> Answer:
    """Refuse a forbidden transaction; else download its packages."""
    transaction = complete_for_holds(manager, params)
    if transaction.empty:
        return {**make_answer([]), "trial": []}
    trial = try_transaction(manager, transaction, params.get("driver", {}))
    if not check:
        download_packages(manager, transaction)
    return {**make_answer([]), "trial": trial.rows}


def judge_transaction(manager: Manager, params: Asked, check: bool) -> Answer:
    """Refuse packages of another driver than the host's, and nothing else: other problems may be solved by the driver
    that this run installs."""
    transaction = complete_for_holds(manager, params)
    rows = [] if transaction.empty else manager.attempt(transaction).rows
    refuse_other_driver(manager, transaction, rows, params.get("driver", {}))
    return {**make_answer([]), "trial": rows}


def settle(manager: Manager, params: Asked, check: bool) -> Answer:
    """Install, remove, hold and release, as far as necessary."""
    transaction = complete_for_holds(manager, params)
    rows: list[str] = []
    warnings: list[str] = []
    if not transaction.empty:
        rows, warnings = (
            foresee_transaction(manager, transaction)
            if check
            else run_transaction(manager, transaction, params.get("driver", {}))
        )
    if params["hold"] or params["release"]:
        rows = rows + manager.hold(params["hold"], params["release"], check)
    return make_answer(rows, warnings)


def find_files(manager: Manager, params: Asked, check: bool) -> Answer:
    """Return the paths of the files of packages."""
    return {**make_answer([]), "files": manager.files(params["install"])}


ACTIONS: dict[str, Callable[[Manager, Asked, bool], Answer]] = {
    "prepare": prepare,
    "fetch": fetch,
    "read": read,
    "try": prepare_transaction,
    "judge": judge_transaction,
    "settle": settle,
    "files": find_files,
}


def foresee_transaction(manager: Manager, desired: Transaction) -> tuple[list[str], list[str]]:
    """Return the changes and problems of a trial run. Problems may be gone by the real run, for instance when a source
    is still to be added."""
    trial = manager.attempt(desired)
    return trial.rows, [f"{manager.name} cannot install {desired.of} yet: {trial.problem}"] if trial.problem else []


def run_transaction(manager: Manager, desired: Transaction, driver: Option) -> tuple[list[str], list[str]]:
    trial = try_transaction(manager, desired, driver)
    if not trial.rows and not trial.unfinished:
        return [], []
    done = commit_transaction(manager, desired)
    notes = [f"{desired.of}: all packages are in place, but {manager.name} says: {'; '.join(done.warnings)}"]
    return trial.rows or [f"complete {desired.of}"], notes if done.warnings else []


def complete_for_holds(manager: Manager, params: Asked) -> Transaction:
    """Return the transaction, with the packages needed for holds, if there are any."""
    transaction = build_transaction(params)
    needs = manager.read([]).lock_needs if params["hold"] else []
    lacking = [name for name in needs if name not in transaction.install]
    return replace(transaction, of=transaction.of or ", ".join(lacking), install=(*lacking, *transaction.install))


def build_transaction(params: Asked) -> Transaction:
    """Return the transaction that a task requests."""
    pin, refuse = params["pin"], params["refuse"]
    return Transaction(
        of=params["of"] or ", ".join([*params["install"], *params["remove"]]),
        install=tuple(params["install"]),
        remove=tuple(params["remove"]),
        may_remove=tuple(params["may_remove"]),
        pin=Pin(str(pin["version"]), tuple(pin["patterns"])) if pin.get("patterns") else None,
        stream=params["stream"],
        fix=params["fix"],
        refusal=Refusal(tuple(refuse["patterns"]), refuse["why"], refuse["fix"]) if refuse.get("patterns") else None,
        instead=params.get("instead", ""),
    )


def make_answer(rows: list[str], warnings: Any = ()) -> Answer:
    return {"changed": bool(rows), "changes": rows, "warnings": list(warnings)}
