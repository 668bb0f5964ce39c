"""Choice of the checkpoint that a host goes back to, and of the spec that brings it there. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gpuprov.capabilities import BY_NAME
from gpuprov.core.safe_parse import Tree, TreeView
from gpuprov.facts.probes.host.checkpoints import Checkpoint, Checkpoints
from gpuprov.facts.probes.host.house import Receipt
from gpuprov.host_code.lasting import SETTING, parse_settings
from gpuprov.host_code.restore.kinds import explain_stay
from gpuprov.plan import no_way_back
from gpuprov.render.spec_digest import is_comparable
from gpuprov.spec.model import RawHost
from gpuprov.spec.problem import Path, format_path
from gpuprov.spec.repository import FILES


class Back(msgspec.Struct, frozen=True):
    """A host's way back."""

    checkpoint: Checkpoint
    values: Tree
    # Capabilities that were applied since, and whose resources in the receipt are removed.
    pruned: tuple[str, ...] = ()
    # Those whose settings in the receipt can be put back.
    settings: tuple[str, ...] = ()
    # Those without resources in the receipt, which no spec removes.
    stays: tuple[str, ...] = ()
    # Those of which something may stay until the next boot.
    until_boot: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    """The reason why a host cannot go back, and the fix."""

    message: str
    fix: str


def back(checkpoints: Checkpoints, receipt: Receipt | None, to: str = "", *, last: bool = False) -> Back | Refused:
    """Choose the checkpoint of the run `to`; else the one that an unfinished rollback has begun with, or the newest
    that is older than the last apply. last: the host's state when verify was last green; refused if that is what was
    applied last."""
    if not checkpoints.all:
        more = f"; {checkpoints.damaged} cannot be read" if checkpoints.damaged else ""
        return Refused(
            f"no checkpoint: no apply here has ended with a green verify{more}",
            "name the old versions in the spec, and apply: down works like up",
        )
    chosen = _choose(checkpoints, receipt, to, last)
    if isinstance(chosen, Refused):
        return chosen
    since = {
        name
        for name, capability in (receipt.capabilities if receipt else {}).items()
        if capability.applied_at > chosen.at
    }
    since |= set(checkpoints.half_way)
    added = [name for name in sorted(since) if not _is_requested(chosen.spec, name)]
    taken = {name for name in added if _takes_away(chosen.spec, name)}
    removals = {name: gone for name in added if name not in taken and (gone := _find_removal(name)) is not None}
    values = {**chosen.spec, **removals}
    stays = [name for name in added if name in taken or no_way_back.stays(name)]
    lines = {name: each.resources or () for name, each in (receipt.capabilities if receipt else {}).items()}
    settings = {
        name for name, each in lines.items() if any(not explain_stay(setting) for setting in parse_settings(each))
    }
    listed = {name for name, each in lines.items() if any(not line.startswith(SETTING) for line in each)} | settings
    return Back(
        chosen,
        values,
        tuple(name for name in stays if name in listed),
        tuple(sorted(since & settings)),
        tuple(name for name in stays if name not in listed),
        tuple(name for name in sorted(since) if no_way_back.until_boot(name)),
    )


def _takes_away(spec: TreeView, name: str) -> bool:
    """Return whether a block of the checkpoint, beside which the capability has no place, takes away what it set up."""
    capability = BY_NAME.get(name)
    prunes = any(BY_NAME[other].prunes for other in spec if other in BY_NAME and _is_requested(spec, other))
    return prunes and capability is not None and not capability.driverless


def _find_removal(name: str) -> TreeView | None:
    return capability.taken_away if (capability := BY_NAME.get(name)) else None


def find_current(checkpoints: Checkpoints, receipt: Receipt | None) -> Checkpoint | None:
    """Return the checkpoint that matches the last apply, preferably the one that the host was at. Anything applied
    since then, beside it, rules it out; what a rollback could not remove was applied before the rollback ended."""
    if receipt is None or receipt.damaged or checkpoints.half_way:
        return None
    applied = {name: capability.digest for name, capability in receipt.capabilities.items()}

    def has_all(checkpoint: Checkpoint) -> bool:
        green = max(checkpoint.at, checkpoints.last_at) if checkpoint is checkpoints.last else checkpoint.at
        known = {name for digests in checkpoint.digests for name in digests}
        return all(name in known or each.applied_at <= green for name, each in receipt.capabilities.items())

    matching = [
        checkpoint
        for checkpoint in checkpoints.all
        if any(_has_same_digests(digests, applied) for digests in checkpoint.digests) and has_all(checkpoint)
    ]
    return checkpoints.last if checkpoints.last in matching else matching[-1] if matching else None


def format_known(checkpoints: Checkpoints) -> str:
    """Format the checkpoints: `a1b2c3d4 (2026-11-17 14:02 UTC, driver 535.261.03)`."""
    return ", ".join(describe_checkpoint(checkpoint) for checkpoint in reversed(checkpoints.all))


def describe_checkpoint(checkpoint: Checkpoint) -> str:
    """Format a checkpoint."""
    driver = checkpoint.spec.get("nvidia_driver")
    version = driver.get("version") if isinstance(driver, Mapping) else None
    of_driver = f", driver {version}" if version else ""
    return f"{checkpoint.run} ({checkpoint.at[:16].replace('T', ' ')} UTC{of_driver})"


def _choose(checkpoints: Checkpoints, receipt: Receipt | None, to: str, last: bool) -> Checkpoint | Refused:
    by_run = {checkpoint.run: checkpoint for checkpoint in checkpoints.all}
    if to:
        return by_run.get(to) or Refused(f'no checkpoint "{to}"', f"known here: {format_known(checkpoints)}")
    green, now = checkpoints.last or checkpoints.all[-1], find_current(checkpoints, receipt)
    if last and now is green:
        return Refused(
            f"the last checkpoint, {green.run}, is what was applied", f"known here: {format_known(checkpoints)}"
        )
    if last:
        return green
    if checkpoints.target in by_run:
        return by_run[checkpoints.target]
    if now is None:
        return green
    older = [
        checkpoint for checkpoint in checkpoints.all if checkpoint.at < now.at and checkpoint.digests != now.digests
    ]
    if older:
        return older[-1]
    fix = f"known here: {format_known(checkpoints)}; --to RUN goes to one by its name"
    return Refused(f"nothing to go back to: the oldest checkpoint, {now.run}, is what was applied last", fix)


def _is_requested(spec: TreeView, name: str) -> bool:
    return spec.get(name, False) is not False


def _has_same_digests(digests: Mapping[str, str], applied: Mapping[str, str]) -> bool:
    """Return True if all digests of a checkpoint equal those that were applied."""
    pairs = [(digest, applied.get(name, "")) for name, digest in digests.items()]
    return bool(pairs) and all(is_comparable(digest) and digest == other for digest, other in pairs)


# Fields that name a file of the machine that runs gpuprov, or another host.
BEYOND = frozenset((*FILES, "token_file", "config_file", "build_host"))
# Policies that the inventory decides now, whatever it permitted then.
POLICIES = ("reboot", "on_failure")


def trusted(raw: RawHost, back: Back) -> Back | Refused:
    """Apply the inventory's policies to a checkpoint. Refused if it names a file of this machine, or another host, that
    the inventory does not: a host that lies would get what it names."""
    known = dict(_find_beyond(raw.values, ()))
    for path, value in _find_beyond(back.values, ()):
        if value and known.get(path) != value:
            return Refused(
                f"its checkpoint names {format_path(path)} {value!r}, and the inventory does not; a host's word is "
                "not enough",
                f"name it in the inventory as it was, {format_path(path)}, then roll back again",
            )
    values = {name: value for name, value in back.values.items() if name not in POLICIES}
    values |= {name: raw.values[name] for name in POLICIES if name in raw.values}
    return msgspec.structs.replace(back, values=values)


def _find_beyond(value: object, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in BEYOND:
                yield (*path, str(key)), inner
            else:
                yield from _find_beyond(inner, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _find_beyond(inner, (*path, number))
