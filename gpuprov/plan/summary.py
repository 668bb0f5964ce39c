"""A plan in one sentence and in figures: computed here for the terminal, for JSON and for the page."""

from collections.abc import Iterable, Sequence

from gpuprov.inventory.names import fold_names as names
from gpuprov.plan.items import items, sizes, span
from gpuprov.plan.model import HostPlan
from gpuprov.rules import resolve

DRIVER = "nvidia_driver"
# Maximum number of driver changes that the sentence names individually.
MOVES = 2


def counts(plans: Sequence[HostPlan]) -> dict[str, int]:
    """Return the number of hosts that would be changed, match their spec, are blocked, have jobs running, are
    unreachable, and reboot."""
    changing = [plan for plan in plans if plan.run and not plan.blocked]
    return {
        "to_apply": len(changing),
        "nothing_to_do": sum(plan.idle for plan in plans),
        "blocked": sum(bool(plan.blocked) for plan in plans),
        "jobs_running": sum(bool(plan.jobs) for plan in plans),
        "unreachable": sum(bool(plan.unreachable) for plan in plans),
        "reboot": sum(plan.reboot is True and plan.permission == "if-needed" for plan in changing),
        "reboot_not_permitted": sum(plan.reboot is True and plan.permission == "never" for plan in plans),
    }


def sentence(plans: Sequence[HostPlan]) -> str:
    """Return a sentence: `4 hosts: driver 580.178.04 -> 570.211.01 (downgrade), 15 packages, one reboot each, 2 have
    jobs running`."""
    touched = [plan for plan in plans if plan.run and not plan.unreachable and (plan.jobs or not plan.blocked)]
    others = [*_describe_kept_away(plans), *_describe_idle(plans, whole=not touched), *_describe_unmanaged(plans)]
    if not touched:
        return f"{_count_hosts(len(plans))}: {', '.join(others)}" if plans else "no host"
    part = f"{len(touched):,} of " if len(touched) < len(plans) else ""
    parts = [*_describe_driver(touched), *sizes([items(plan) for plan in touched]), *_describe_reboots(touched)]
    jobs = sum(bool(plan.jobs) for plan in touched)
    parts += [f"{jobs:,} {'has' if jobs == 1 else 'have'} jobs running"] if jobs else []
    parts = parts or ["roles are applied anew"]
    return f"{part}{_count_hosts(len(plans))}: {', '.join(parts)}" + (f"; {', '.join(others)}" if others else "")


def _count_hosts(number: int) -> str:
    return f"{number:,} host{'s' * (number != 1)}"


def _describe_driver(touched: Sequence[HostPlan]) -> Iterable[str]:
    moves: dict[str, int] = {}
    for plan in touched:
        before, after = plan.installed.get(DRIVER, ""), plan.versions.get(DRIVER, "")
        if not after or before == after:
            continue
        way = "downgrade" if resolve.order(after) < resolve.order(before) else "upgrade"
        text = f"driver {before} -> {after} ({way})" if before else f"driver {after} (new)"
        moves[text] = moves.get(text, 0) + 1
    ranked = sorted(moves.items(), key=lambda move: -move[1])
    yield from (text + _format_place(number, touched) for text, number in ranked[:MOVES])
    if rest := sum(number for _, number in ranked[MOVES:]):
        yield f"other driver versions on {rest:,}"


def _format_place(number: int, touched: Sequence[HostPlan]) -> str:
    return f" on {number:,}" if number < len(touched) else ""


def _describe_reboots(touched: Sequence[HostPlan]) -> Iterable[str]:
    each = " each" if len(touched) > 1 else ""
    will = sum(plan.reboot is True and plan.permission == "if-needed" for plan in touched)
    held = sum(plan.reboot is True and plan.permission == "never" for plan in touched)
    perhaps = sum(plan.reboot == "unknown" for plan in touched)
    if will:
        yield f"one reboot{each if will == len(touched) else _format_place(will, touched)}"
    if held:
        yield f"a reboot that needs permission{_format_place(held, touched)}"
    if perhaps:
        yield f"perhaps a reboot{_format_place(perhaps, touched)}"


def _describe_unmanaged(plans: Sequence[HostPlan]) -> Iterable[str]:
    numbers = [number for plan in plans if (number := sum(not resource.stays for resource in plan.left_over))]
    if numbers:
        what = "resource" if max(numbers) == 1 else "resources"
        yield f"{span(numbers)} {what} no longer asked for (--prune){_format_place(len(numbers), plans)}"


def _describe_kept_away(plans: Sequence[HostPlan]) -> Iterable[str]:
    blocked: dict[str, int] = {}
    for plan in plans:
        for result in plan.blocked[:1] if not plan.jobs else ():
            blocked[result.check] = blocked.get(result.check, 0) + 1
    yield from (f"{number:,} blocked by {check}" for check, number in blocked.items())
    away = sum(bool(plan.unreachable) for plan in plans)
    if away:
        yield f"{away:,} cannot be reached"


def _describe_idle(plans: Sequence[HostPlan], *, whole: bool) -> Iterable[str]:
    """Yield the idle hosts' parts of the sentence. whole: no host has anything to do."""
    idle = [plan for plan in plans if plan.idle]
    if not idle:
        return
    if whole and len(idle) == len(plans):
        yield "nothing to do"
    else:
        yield f"{len(idle):,} with nothing to do"
    if waiting := sum(plan.reboot is True for plan in idle):
        yield f"{waiting:,} wait{'s' * (waiting == 1)} for a reboot"
    failing: dict[str, list[str]] = {}
    for plan in idle:
        for result in plan.unmended:
            if result.moment != "preflight":
                failing.setdefault(result.check, []).append(plan.host)
    yield from (f"{check} fails on {names(hosts)}, and apply cannot fix it" for check, hosts in failing.items())
