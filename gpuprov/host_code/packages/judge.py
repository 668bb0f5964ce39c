"""Rules for a transaction: it must be possible, remove only gpuprov's packages, and leave alone foreign ones, above all
another driver."""

from __future__ import annotations

import os
import re
from typing import Sequence

from . import other_driver
from .model import Done, Manager, Refused, Transaction, Trial

OF_BUNDLE = (
    "this run sees the packages of the bundle alone; make it again, on a host of this release that has none of what "
    "the spec asks for, or install here first what it lacks"
)


def try_transaction(manager: Manager, transaction: Transaction, driver: other_driver.Option | None = None) -> Trial:
    """Return the trial of a permitted transaction. Raises Refused. `driver`: the module's option, empty for the
    driver's own."""
    trial = manager.attempt(transaction)
    if trial.problem:
        fix = OF_BUNDLE if os.environ.get("GPUPROV_BUNDLE") else transaction.fix
        raise Refused(
            f"{manager.name} cannot {transaction.verb} {transaction.of}: {trial.problem.rstrip('.')}. Fix: {fix}"
        )
    if lost := list_lost(trial, transaction):
        other = ", or choose a version that leaves them" if transaction.install else ""
        raise Refused(
            f"{manager.name} would remove {', '.join(lost)} for {transaction.of}. Fix: remove them yourself{other}"
        )
    if transaction.refusal and (touched := list_touched(trial, transaction)):
        raise Refused(
            f"with {transaction.of} {manager.name} would install, move or remove {', '.join(touched)}; "
            f"{transaction.refusal.why}. "
            f"Nothing was changed or downloaded. Fix: {transaction.refusal.fix}"
        )
    refuse_other_driver(manager, transaction, trial.rows, driver or {})
    return trial


def refuse_other_driver(
    manager: Manager, transaction: Transaction, rows: Sequence[str], driver: other_driver.Option
) -> None:
    """Raise Refused if the rows of a trial have packages of another driver than the host's."""
    if names := other_driver.build_names(driver):
        other_driver.refuse(manager, transaction, rows, names, other_driver.read_coming(driver))


def download_packages(manager: Manager, transaction: Transaction) -> None:
    """Download all its packages to the host. Raises Refused."""
    if problem := manager.download(transaction):
        raise Refused(
            f"the packages of {transaction.of} could not be downloaded, nothing was changed: {problem}. Fix: "
            "correct the mirror or the network, then apply again"
        )


def commit_transaction(manager: Manager, transaction: Transaction) -> Done:
    """Execute it. Raises Refused with the problem."""
    done = manager.commit(transaction)
    if done.problem:
        raise Refused(
            f"{manager.name} could not {transaction.verb} {transaction.of}: {done.problem}. Fix: correct what it "
            "reports and apply again, which completes the transaction"
        )
    return done


def list_lost(trial: Trial, transaction: Transaction) -> list[str]:
    going = [row.split()[1] for row in trial.rows if row.startswith("Remv ")]
    return sorted(name for name in going if name not in transaction.remove and name not in transaction.may_remove)


def list_touched(trial: Trial, transaction: Transaction) -> list[str]:
    assert transaction.refusal
    pattern = re.compile("|".join(transaction.refusal.patterns))
    names = {row.split()[1] for row in trial.rows}
    return sorted(name for name in names if name not in transaction.remove and pattern.fullmatch(name))
