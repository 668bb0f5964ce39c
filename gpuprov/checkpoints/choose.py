"""Which checkpoint a host goes back to, and the spec that brings it there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gpuprov.capabilities import BY_NAME
from gpuprov.plan import no_way_back
from gpuprov.probe.host.checkpoints import Checkpoint, Checkpoints
from gpuprov.probe.host.house import Receipt
from gpuprov.render.spec_digest import is_comparable


class Back(msgspec.Struct, frozen=True):
    """Where a host goes back to. `pruned`: capabilities that were applied since, and of which what the receipt lists is taken away;
    `stays`: those of which it lists nothing, and that no spec takes away; `until_boot`: those of which something stays until the next
    boot."""

    checkpoint: Checkpoint
    values: dict[str, Any]
    pruned: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()
    until_boot: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    """Why a host cannot go back, and the fix."""

    message: str
    hint: str


def back(checkpoints: Checkpoints, receipt: Receipt | None, to: str = "", *, last: bool = False) -> Back | Refused:
    """The checkpoint of the run `to`; else the one that an unfinished rollback has begun with, or the newest that is older than what
    was applied last. last: where the host was when verify was last green, or nowhere if that is what was applied last."""
    if not checkpoints.all:
        more = f"; {checkpoints.damaged} cannot be read" if checkpoints.damaged else ""
        return Refused(
            f"no checkpoint: no apply here has ended with a green verify{more}",
            "name the old versions in the spec, and apply: down works like up",
        )
    chosen = _chosen(checkpoints, receipt, to, last)
    if isinstance(chosen, Refused):
        return chosen
    since = {name for name, one in (receipt.capabilities if receipt else {}).items() if one.applied_at > chosen.at}
    since |= set(checkpoints.half_way)
    added = [name for name in sorted(since) if not _asks(chosen.spec, name)]
    values = {**chosen.spec, **{name: gone for name in added if (gone := _taken_away(name)) is not None}}
    stays = [name for name in added if no_way_back.stays(name)]
    listed = {name for name, one in (receipt.capabilities if receipt else {}).items() if one.resources}
    return Back(
        chosen,
        values,
        tuple(name for name in stays if name in listed),
        tuple(name for name in stays if name not in listed),
        tuple(name for name in sorted(since) if no_way_back.until_boot(name)),
    )


def _taken_away(name: str) -> Mapping[str, Any] | None:
    return one.taken_away if (one := BY_NAME.get(name)) else None


def current(checkpoints: Checkpoints, receipt: Receipt | None) -> Checkpoint | None:
    """The checkpoint that has what was applied last: the one that the host was at, before others. What was applied beside it since
    makes it none; what a rollback could not take away was applied before that came to its end."""
    if receipt is None or receipt.damaged or checkpoints.half_way:
        return None
    applied = {name: one.digest for name, one in receipt.capabilities.items()}

    def has_all(one: Checkpoint) -> bool:
        green = max(one.at, checkpoints.last_at) if one is checkpoints.last else one.at
        known = {name for digests in one.digests for name in digests}
        return all(name in known or each.applied_at <= green for name, each in receipt.capabilities.items())

    mine = [one for one in checkpoints.all if any(_same(digests, applied) for digests in one.digests) and has_all(one)]
    return checkpoints.last if checkpoints.last in mine else mine[-1] if mine else None


def known(checkpoints: Checkpoints) -> str:
    """The checkpoints in words: `a1b2c3d4 (2026-11-17 14:02 UTC, driver 535.261.03)`."""
    return ", ".join(told(one) for one in reversed(checkpoints.all))


def told(checkpoint: Checkpoint) -> str:
    """A checkpoint in words."""
    driver = checkpoint.spec.get("nvidia_driver")
    version = driver.get("version") if isinstance(driver, Mapping) else None
    of_driver = f", driver {version}" if version else ""
    return f"{checkpoint.run} ({checkpoint.at[:16].replace('T', ' ')} UTC{of_driver})"


def _chosen(checkpoints: Checkpoints, receipt: Receipt | None, to: str, last: bool) -> Checkpoint | Refused:
    by_run = {one.run: one for one in checkpoints.all}
    if to:
        return by_run.get(to) or Refused(f'no checkpoint "{to}"', f"known here: {known(checkpoints)}")
    green, now = checkpoints.last or checkpoints.all[-1], current(checkpoints, receipt)
    if last and now is green:
        return Refused(f"the last checkpoint, {green.run}, is what was applied", f"known here: {known(checkpoints)}")
    if last:
        return green
    if checkpoints.target in by_run:
        return by_run[checkpoints.target]
    if now is None:
        return green
    older = [one for one in checkpoints.all if one.at < now.at and one.digests != now.digests]
    if older:
        return older[-1]
    hint = f"known here: {known(checkpoints)}; --to RUN goes to one by its name"
    return Refused(f"nothing to go back to: the oldest checkpoint, {now.run}, is what was applied last", hint)


def _asks(spec: Mapping[str, Any], name: str) -> bool:
    return spec.get(name, False) is not False


def _same(digests: Mapping[str, str], applied: Mapping[str, str]) -> bool:
    """Return True if all digests of a checkpoint equal those that were applied."""
    pairs = [(one, applied.get(name, "")) for name, one in digests.items()]
    return bool(pairs) and all(is_comparable(one) and one == other for one, other in pairs)
