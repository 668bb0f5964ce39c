"""Decides which capabilities of a host Ansible has to run, and which can safely be skipped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gpuprov.capabilities import BY_NAME
from gpuprov.facts.probes.base import Facts, Probe
from gpuprov.facts.probes.host import house
from gpuprov.plan.model import HOST
from gpuprov.render import digests
from gpuprov.render.spec_digest import SPEC, is_changed, is_comparable
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import Result

PROBES: tuple[Probe[object], ...] = (house.RECEIPT, house.MARKER, house.REBOOT_REASONS)
"""Probes that `decide` needs beside the checks' results."""
NOT_SELECTED = "not selected"


class Decision(msgspec.Struct, frozen=True):
    """Capabilities to run, in apply order, each with the reason; and skipped ones, with the reason."""

    run: dict[str, str]
    skipped: dict[str, str]


def decide(
    pair: tuple[RawHost, HostSpec],
    results: Iterable[Result],
    facts: Facts,
    *,
    full: bool = False,
    reboot: bool = False,
    only: frozenset[str] | None = None,
    foreseen: Mapping[str, str] = {},
    prune: str = "",
) -> Decision:
    """Decide what to run. A capability is skipped only if each of its checks passed or was skipped, nothing of it
    differs, and the same was applied before. foreseen: differences, by capability. prune: removals of what the spec no
    longer declares; empty for nothing.

    reboot: this run permits a reboot even if the spec does not. A reboot that is required and permitted runs the
    capabilities that require it, because the playbook reboots only hosts that it works on.
    """
    _, spec = pair
    receipt = facts.known(house.RECEIPT)
    cut_off = bool(facts.known(house.MARKER))
    waiting = facts.known(house.REBOOT_REASONS) or {}
    permitted = reboot or spec.reboot == "if-needed"
    judged = list(results)
    present = digests(spec)
    run: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for name in spec.capabilities:
        bad = [
            r.check
            for r in judged
            if r.capability == name and r.moment != "preflight" and r.status in ("fail", "error")
        ]
        applied = receipt.capabilities.get(name) if receipt and not receipt.damaged else None
        if only is not None and name not in only:
            skipped[name] = NOT_SELECTED
        elif full:
            run[name] = "--full"
        elif bad:
            run[name] = "fails: " + ", ".join(check.removeprefix(f"{name}.") for check in bad)
        elif cut_off:
            run[name] = "the last apply failed or was cut off"
        elif receipt and receipt.damaged:
            run[name] = "the receipt on the host is damaged"
        elif applied is None:
            run[name] = "never applied"
        elif changed := _changed(applied, present[name]):
            run[name] = changed
        elif name in foreseen:
            run[name] = foreseen[name]
        elif permitted and name in waiting:
            run[name] = f"waits for a reboot: {waiting[name]}"
        else:
            skipped[name] = "every check passes, nothing differs, and the same was applied" + (
                f" {applied.applied_at}" if applied.applied_at else ""
            )
    _follow(run, skipped)
    run = {name: run[name] for name in spec.capabilities if name in run} | ({HOST: prune} if prune else {})
    if permitted and waiting and not run and not full:
        return Decision({name: "a reboot is required" for name in skipped if skipped[name] != NOT_SELECTED}, {})
    return Decision(run, skipped)


def _follow(run: dict[str, str], skipped: dict[str, str]) -> None:
    """Also run capabilities that follow another that runs, whichever comes first in apply order."""
    while led := {
        name: leaders
        for name, why in skipped.items()
        if why != NOT_SELECTED and (leaders := [follow for follow in BY_NAME[name].follows if follow in run])
    }:
        for name, leaders in led.items():
            run[name] = f"follows {', '.join(leaders)}"
            del skipped[name]


def _changed(applied: house.Applied, present: str) -> str:
    """Return why what was applied differs from what would be; empty if it does not."""
    when = applied.applied_at or "unknown when"
    if not is_comparable(applied.digest):
        return f"applied by an earlier gpuprov ({when}), whose receipt says too little: applied once more"
    return f"{SPEC} changed since it was applied ({when})" if is_changed(applied.digest, present) else ""
