"""An entry in the list of roll-outs, and the reasons why another roll-out may not begin beside it."""

import re

import msgspec

from gpuprov.core.errors import GpuprovError
from gpuprov.inventory.names import fold_names as names

# A roll-out's id is also the run's id, which identifies its locks, drains and results.
ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,40}[A-Za-z0-9])?")
FILE = "rollouts.sqlite"


class Kept(msgspec.Struct, frozen=True):
    """An entry in the list of roll-outs."""

    id: str
    fleet: str
    begun: float
    by: str
    open: bool
    hosts: int
    # Why it can only be ended, if that was checked.
    damaged: str = ""


class Damaged(GpuprovError):
    """The files in a roll-out's folder cannot be used; its recorded events can."""


def chosen(known: list[Kept], rollout: str = "") -> Kept:
    """Return the roll-out with this id; without an id, the only open one. Raises GpuprovError."""
    if rollout:
        if match := next((entry for entry in known if entry.id == rollout), None):
            return match
        latest = ", ".join(entry.id for entry in known[-5:])
        fix = f"the last ones: {latest}" if latest else "begin one: gpuprov rollout start"
        raise GpuprovError(f"there is no roll-out {rollout}", fix)
    is_open = [entry for entry in known if entry.open]
    if len(is_open) != 1:
        listed = ", ".join(entry.id for entry in is_open)
        message = f"{len(is_open)} roll-outs are open: {listed}" if is_open else "no roll-out is open"
        raise GpuprovError(message, "name one; gpuprov rollout status --all lists them")
    return is_open[0]


def is_over(rollout: str) -> GpuprovError:
    """Return the error for commands to a roll-out that has ended."""
    return GpuprovError(f"the roll-out {rollout} is over", f"gpuprov rollout status {rollout} shows it")


def damaged(kept: Kept, why: str, fix: str) -> Damaged:
    """Return the error for commands that need the files of a roll-out if they cannot be used."""
    return Damaged(
        f"the roll-out {kept.id} is damaged: {why}",
        f"{fix}; or end it: gpuprov rollout abort {kept.id}" if kept.open else fix,
    )


def used(rollout: str) -> GpuprovError:
    """Return the error for an id that was used before."""
    fix = f"go on with it: gpuprov rollout resume {rollout}; or take another --id"
    return GpuprovError(f"there is a roll-out {rollout} already", fix)


def overlaps(other: str, hosts: list[str]) -> GpuprovError:
    """Return the error for a roll-out that shares hosts with an open one."""
    fix = f"let it end, or end it: gpuprov rollout abort {other}; or leave these hosts out with --limit"
    return GpuprovError(f"the roll-out {other} is open and has {names(hosts)} too; nothing was started", fix)


def checked_id(rollout: str) -> None:
    """Raise GpuprovError if no roll-out can have this id."""
    if not ID.fullmatch(rollout) or rollout.startswith(FILE):
        allowed = f"allowed: at most 42 letters, digits, dots, - and _, with a letter or digit at both ends; not {FILE}"
        raise GpuprovError(f"a roll-out cannot be called {rollout[:80]!r}", allowed)
