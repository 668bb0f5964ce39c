"""A host's results and facts -> its plan, as far as the checks can determine. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

from gpuprov.capabilities.mig.partitions import partitions
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import house
from gpuprov.plan.decide import FAILS, Decision
from gpuprov.plan.model import HOST, HostPlan, Item
from gpuprov.plan.no_way_back import no_way_back
from gpuprov.resources.file import ANOTHER_TEXT
from gpuprov.spec.model import HostSpec
from gpuprov.verify.evaluate import IN_SERVICE, SUPPORTED, Result, is_broken
from gpuprov.verify.unmanaged import BY_PACKAGE, Unmanaged, changes_of

UNLOAD = "a loaded driver would be removed: it is unloaded if nothing holds it, else it stays until a reboot"
RELOAD = "a loaded driver would be replaced: it is reloaded if nothing holds it, else a reboot is needed"


def host_plan(
    spec: HostSpec,
    results: Sequence[Result],
    facts: Facts,
    decision: Decision,
    now: datetime,
    *,
    reboot: bool = False,
    unmanaged: Sequence[Unmanaged] = (),
) -> HostPlan:
    """Return the plan of a host that was read. `reboot`: permission for this run. `unmanaged`: what its spec no longer
    declares."""
    concerned = [r for r in results if r.capability in decision.run or r.capability == "host"]
    failing = [r for r in concerned if not r.stops and r.status == "fail"]
    before = [r for r in concerned if r.stops]
    left = tuple(unmanaged) if HOST in decision.run else ()
    changes = _list_changes([*before, *failing], left)
    reboot_needed, reasons = _find_reboot(before, failing, left, facts)
    permission = "if-needed" if reboot else spec.reboot
    lost = no_way_back(
        spec,
        facts,
        decision.run,
        changes,
        reboots=bool(reboot_needed) and permission == "if-needed",
        sets={r.capability for r in failing if any(change.kind == "setting" for change in r.changes)},
    )
    applied, seconds = last_apply(facts, now)
    blocked = choose_obstacles([r for r in before if r.refuses and (decision.run or is_broken(r))])
    return HostPlan(
        host=spec.name,
        blocked=blocked,
        run=decision.run,
        skipped=decision.skipped,
        changes=changes,
        reboot=reboot_needed,
        reboot_reasons=reasons,
        permission=permission,
        last_apply=applied,
        last_apply_seconds=seconds,
        unpredicted=() if any(r.check == SUPPORTED for r in blocked) else (*unpredicted(concerned),),
        no_way_back=tuple(lost),
        out=next((f"{r.found}; {r.fix}" for r in results if r.check == IN_SERVICE and r.status == "skip"), ""),
        differs=any(r.status in ("fail", "error") and r.moment != "preflight" for r in results),
        unmended=tuple(_list_unmended(results, decision)),
        versions={r.capability: r.version for r in results if r.version},
        installed={r.capability: r.installed for r in results if r.installed},
        mig=partitions(spec, facts) if "mig" in decision.run else (),
        unmanaged=tuple(each for each in unmanaged if not _is_removed_with_package(each, changes)),
    )


def _list_unmended(results: Sequence[Result], decision: Decision) -> Iterator[Result]:
    """Yield the failures for which apply has no change: all of an idle host, else those of the capabilities that run
    because checks fail."""
    for result in results:
        if result.status not in ("fail", "error") or result.reboot:
            continue
        fails = decision.run.get(result.capability, "").startswith(FAILS)
        if not decision.run or (fails and result.moment != "preflight" and not result.changes):
            yield result


def _list_changes(results: Iterable[Result], left: Sequence[Unmanaged]) -> tuple[Item, ...]:
    own = (Item.of(result.capability, change) for result in results for change in result.changes)
    return merged([*own, *(Item.of(HOST, change) for change in changes_of(left))])


def _find_reboot(
    before: Sequence[Result], failing: Sequence[Result], left: Sequence[Unmanaged], facts: Facts
) -> tuple[bool | Literal["unknown"], tuple[str, ...]]:
    """Return whether the apply reboots, which a loaded driver decides only then (`unknown`), and the reasons."""
    named = (*(r.reboot for r in [*failing, *before]), *(each.reboot for each in left))
    if reasons := tuple(dict.fromkeys(filter(None, named))):
        return True, reasons
    if any(r.check == "nvidia_absent.loaded" for r in failing):
        return "unknown", (UNLOAD,)
    drivers = [change for r in [*before, *failing] if r.capability == "nvidia_driver" for change in r.changes]
    replaces = any(change.kind == "package" or change.name == "nvidia" for change in drivers)
    return ("unknown", (RELOAD,)) if replaces and _is_loaded(facts) else (False, ())


def choose_obstacles(refusing: Sequence[Result]) -> tuple[Result, ...]:
    """Return what must be fixed before apply: of a host that gpuprov never changes that alone."""
    return tuple(result for result in refusing if result.check == SUPPORTED) or tuple(refusing)


def _is_removed_with_package(leftover: Unmanaged, changes: Iterable[Item]) -> bool:
    """Return whether a unit is among the changes already, since the package that brings it is removed."""
    return leftover.stays == BY_PACKAGE and any(
        (change.kind, change.name, change.after) == ("service", leftover.name, "removed") for change in changes
    )


def merged(changes: Iterable[Item]) -> tuple[Item, ...]:
    """Return each change once; changes of one thing with different values stay separate, except those without
    information: no value at all, or only that a file's text differs."""
    kept: dict[tuple[str, str, str, str], Item] = {}
    for change in changes:
        kept.setdefault((change.kind, change.name, change.before, change.after), change)
    known = {
        (item.kind, item.name) for item in kept.values() if (item.before or item.after) and item.before != ANOTHER_TEXT
    }
    return tuple(
        item
        for item in kept.values()
        if (item.kind, item.name) not in known or ((item.before or item.after) and item.before != ANOTHER_TEXT)
    )


def unpredicted(results: Iterable[Result]) -> Iterable[str]:
    """Yield checks that could not be judged now, each with the fields it proves and why."""
    for result in results:
        if (result.status in ("skip", "error") and result.moment != "preflight") or result.status == "error":
            fields = f" ({', '.join(result.fields)})" if result.fields else ""
            yield f"{result.check}{fields}: {result.found or result.fix}"


def last_apply(facts: Facts, now: datetime) -> tuple[str, int | None]:
    """Return the time of the host's last apply, as text and in seconds before `now`."""
    try:
        receipt = facts.get(house.RECEIPT)
    except ProbeFailed as error:
        return f"unknown: {error}", None
    if receipt is None:
        return "never finished" if facts.known(house.MARKER) else "never", None
    if receipt.damaged:
        return f"unknown: the receipt is damaged ({receipt.damaged})", None
    try:
        then = datetime.fromisoformat(receipt.applied_at.replace("Z", "+00:00"))
    except ValueError:
        return "unknown: the receipt has no time", None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    seconds = int((now - then).total_seconds())
    return f"{span(seconds)} ago ({receipt.applied_at})", seconds


def span(seconds: int) -> str:
    """Format a duration in its largest whole unit."""
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            number = seconds // size
            return f"{number} {unit}{'s' if number != 1 else ''}"
    return f"{max(seconds, 0)} s"


def _is_loaded(facts: Facts) -> bool:
    try:
        return bool(facts.get(nvidia.DRIVER).version)
    except ProbeFailed:
        return False
