"""Decides which capabilities of a host Ansible has to run, and which can safely be skipped."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from gpuprov.capabilities import BY_NAME
from gpuprov.facts.probes.base import Facts, Probe
from gpuprov.facts.probes.host import house
from gpuprov.plan.model import HOST
from gpuprov.render import digests
from gpuprov.render.spec_digest import SPEC, is_changed, is_comparable
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import Result

# Probes that `decide` needs beside the checks' results.
PROBES: tuple[Probe[object], ...] = (house.RECEIPT, house.MARKER, house.BOOT, house.REBOOT_REASONS)
NOT_SELECTED = "not selected"


class Decision(msgspec.Struct, frozen=True):
    """Capabilities to run, in apply order, each with the reason; and skipped ones, with the reason."""

    run: dict[str, str]
    skipped: dict[str, str]


READ_ONLY = "apply sets up nothing of it; what fails is mended otherwise"
# The reason of a capability that runs because checks of it fail.
FAILS = "fails: "


class PlanOptions(NamedTuple):
    """The options of plan and apply that decide what runs. only: these capabilities. reboot: this run permits a reboot
    even if the spec does not. prune: remove what the spec no longer declares; a capability may ask for it, too
    (`prunes`). exact: ask the hosts again for what the checks do not say."""

    only: frozenset[str] | None = None
    full: bool = False
    reboot: bool = False
    prune: bool = False
    exact: bool = True


DEFAULT = PlanOptions()


def decide(
    pair: tuple[RawHost, HostSpec],
    results: Iterable[Result],
    facts: Facts,
    options: PlanOptions = DEFAULT,
    *,
    foreseen: Mapping[str, str] = {},
    prune: str = "",
) -> Decision:
    """Decide what to run. A capability is skipped only if each of its checks passed or was skipped (or it has no task,
    as health), nothing of it differs, and the same was applied before. foreseen: differences; prune: removals.

    A reboot that is required and permitted runs the capabilities that require it, because the playbook reboots only
    hosts that it works on.
    """
    (_, spec), only = pair, options.only
    waiting = facts.known(house.REBOOT_REASONS) or {}
    permitted = options.reboot or spec.reboot == "if-needed"
    bad, present = _list_failing(results), digests(spec)
    run, skipped = dict[str, str](), dict[str, str]()
    for name in spec.capabilities:
        if only is not None and name not in only:
            skipped[name] = NOT_SELECTED
        elif options.full:
            run[name] = "--full"
        elif name in bad and BY_NAME[name].tasks:
            run[name] = f"{FAILS}{', '.join(bad[name])}"
        elif reason := _find_reason_of_receipt(name, facts, present[name]) or foreseen.get(name):
            run[name] = reason
        elif permitted and name in waiting:
            run[name] = f"waits for a reboot: {waiting[name]}"
        else:
            skipped[name] = READ_ONLY if name in bad else _describe_applied(name, facts)
    _follow(run, skipped)
    run = {name: run[name] for name in spec.capabilities if name in run}
    if prune and (options.prune or any(BY_NAME[name].prunes for name in run)):
        run[HOST] = prune
    if permitted and waiting and not run and not options.full:
        return Decision({name: "a reboot is required" for name in skipped if skipped[name] != NOT_SELECTED}, {})
    return Decision(run, skipped)


def _list_failing(results: Iterable[Result]) -> dict[str, list[str]]:
    """Return the names of the failing checks, by capability."""
    failing: dict[str, list[str]] = {}
    for result in results:
        if result.moment != "preflight" and result.status in ("fail", "error"):
            failing.setdefault(result.capability, []).append(result.check.removeprefix(f"{result.capability}."))
    return failing


def _find_reason_of_receipt(name: str, facts: Facts, present: str) -> str:
    """Return why what the host notes of the last apply asks for another; empty if it does not."""
    receipt = facts.known(house.RECEIPT)
    if facts.known(house.MARKER):
        return "the last apply failed or was cut off"
    if receipt and receipt.damaged:
        return "the receipt on the host is damaged"
    applied = receipt.capabilities.get(name) if receipt else None
    return _explain_change(applied, present) if applied else "never applied"


def _describe_applied(name: str, facts: Facts) -> str:
    receipt = facts.known(house.RECEIPT)
    when = receipt.capabilities[name].applied_at if receipt else ""
    return "every check passes, nothing differs, and the same was applied" + (f" {when}" if when else "")


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


def _explain_change(applied: house.Applied, present: str) -> str:
    """Return why what was applied differs from what would be; empty if it does not."""
    when = applied.applied_at or "unknown when"
    if not is_comparable(applied.digest):
        return f"applied by an earlier gpuprov ({when}), whose receipt says too little: applied once more"
    return f"{SPEC} changed since it was applied ({when})" if is_changed(applied.digest, present) else ""
