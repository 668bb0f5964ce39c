"""A roll-out as the list of them has it, and why another one may not begin beside it."""

from __future__ import annotations

import re

import msgspec

from gpuprov.errors import GpuprovError
from gpuprov.inventory.names import folded as names

ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,40}[A-Za-z0-9])?")
"""A roll-out's id is also the run's, by which locks, drains and results know what is theirs."""
FILE = "rollouts.sqlite"


class Kept(msgspec.Struct, frozen=True):
    """A roll-out as the list of them has it. `damaged`: why it can only be ended, where that was looked at."""

    id: str
    fleet: str
    begun: float
    by: str
    open: bool
    hosts: int
    damaged: str = ""


class Damaged(GpuprovError):
    """What was kept in a roll-out's folder cannot be used; what was recorded of it can."""


def chosen(known: list[Kept], rollout: str = "") -> Kept:
    """The one of this id; without one, the only one that is open. Raises GpuprovError."""
    if rollout:
        if found := next((one for one in known if one.id == rollout), None):
            return found
        there = ", ".join(one.id for one in known[-5:])
        hint = f"the last ones: {there}" if there else "begin one: gpuprov rollout start"
        raise GpuprovError(f"there is no roll-out {rollout}", hint)
    is_open = [one for one in known if one.open]
    if len(is_open) != 1:
        listed = ", ".join(one.id for one in is_open)
        told = f"{len(is_open)} roll-outs are open: {listed}" if is_open else "no roll-out is open"
        raise GpuprovError(told, "name one; gpuprov rollout status --all lists them")
    return is_open[0]


def is_over(rollout: str) -> GpuprovError:
    """The refusal of what is said of a roll-out that has ended."""
    return GpuprovError(f"the roll-out {rollout} is over", f"gpuprov rollout status {rollout} shows it")


def damaged(kept: Kept, why: str, cure: str) -> Damaged:
    """The refusal of what needs the files of a roll-out that cannot be used."""
    return Damaged(
        f"the roll-out {kept.id} is damaged: {why}",
        f"{cure}; or end it: gpuprov rollout abort {kept.id}" if kept.open else cure,
    )


def used(rollout: str) -> GpuprovError:
    """The refusal of an id that there was already."""
    hint = f"go on with it: gpuprov rollout resume {rollout}; or take another --id"
    return GpuprovError(f"there is a roll-out {rollout} already", hint)


def overlaps(other: str, hosts: list[str]) -> GpuprovError:
    """The refusal of a roll-out that has hosts of one that is open."""
    hint = f"let it end, or end it: gpuprov rollout abort {other}; or leave these hosts out with --limit"
    return GpuprovError(f"the roll-out {other} is open and has {names(hosts)} too; nothing was started", hint)


def checked_id(rollout: str) -> None:
    """Raise GpuprovError where no roll-out can be called so."""
    if not ID.fullmatch(rollout) or rollout.startswith(FILE):
        told = f"allowed: at most 42 letters, digits, dots, - and _, with a letter or digit at both ends; not {FILE}"
        raise GpuprovError(f"a roll-out cannot be called {rollout[:80]!r}", told)
