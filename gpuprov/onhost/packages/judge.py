"""What a transaction may do: it must be possible, remove nothing that is not ours, and leave alone what is another's, another driver's
before all."""

from __future__ import annotations

import os
import re
from typing import Any, Mapping, Sequence

from . import other_driver
from .model import Done, Manager, Refused, Transaction, Trial

OF_BUNDLE = (
    "this run sees the packages of the bundle alone; make it again, on a host of this release that has none of what the spec asks "
    "for, or install here first what it lacks"
)


def tried(manager: Manager, wanted: Transaction, driver: Mapping[str, Any] = {}) -> Trial:
    """The trial of a transaction that may be done. Raises Refused. `driver`: the module's option, empty for the driver's own."""
    trial = manager.attempt(wanted)
    if trial.problem:
        way_out = OF_BUNDLE if os.environ.get("GPUPROV_BUNDLE") else wanted.hint
        raise Refused(f"{manager.name} cannot install {wanted.of}: {trial.problem.rstrip('.')}. Fix: {way_out}")
    if lost := _lost(trial, wanted):
        raise Refused(
            f"{manager.name} would remove {', '.join(lost)} for {wanted.of}. Fix: remove them yourself, or choose a version that "
            "leaves them"
        )
    if wanted.refusal and (touched := _touched(trial, wanted)):
        raise Refused(
            f"with {wanted.of} {manager.name} would install, move or remove {', '.join(touched)}; {wanted.refusal.why}. "
            f"Nothing was changed or downloaded. Fix: {wanted.refusal.hint}"
        )
    guarded(manager, wanted, trial.rows, driver)
    return trial


def guarded(manager: Manager, wanted: Transaction, rows: Sequence[str], driver: Mapping[str, Any]) -> None:
    """Raise Refused where the rows of a trial have packages of another driver than the host's."""
    if names := other_driver.names_of(driver):
        other_driver.refuse(manager, wanted, rows, names, other_driver.coming_of(driver))


def downloaded(manager: Manager, wanted: Transaction) -> None:
    """Have all its packages on the host. Raises Refused."""
    if problem := manager.download(wanted):
        raise Refused(
            f"the packages of {wanted.of} could not be downloaded, nothing was changed: {problem}. Fix: correct the mirror or the "
            "network, then apply again"
        )


def committed(manager: Manager, wanted: Transaction) -> Done:
    """Do it. Raises Refused with what was in the way."""
    done = manager.commit(wanted)
    if done.problem:
        raise Refused(
            f"{manager.name} could not install {wanted.of}: {done.problem}. Fix: correct what it reports and apply again, which "
            "completes the transaction"
        )
    return done


def _lost(trial: Trial, wanted: Transaction) -> list[str]:
    going = [row.split()[1] for row in trial.rows if row.startswith("Remv ")]
    return sorted(name for name in going if name not in wanted.remove and name not in wanted.may_remove)


def _touched(trial: Trial, wanted: Transaction) -> list[str]:
    assert wanted.refusal
    theirs = re.compile("|".join(wanted.refusal.patterns))
    names = {row.split()[1] for row in trial.rows}
    return sorted(name for name in names if name not in wanted.remove and theirs.fullmatch(name))
