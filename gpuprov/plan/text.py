"""Plans as text and as JSON. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gpuprov.capabilities.base import Change
from gpuprov.inventory.names import folded as names
from gpuprov.plan.model import SECTIONS, HostPlan


def as_json(plans: Sequence[HostPlan]) -> str:
    """`{"hosts": [...], "summary": {...}}`; each host with one list per kind of change."""
    hosts = [_plain(plan) for plan in plans]
    return msgspec.json.format(msgspec.json.encode({"hosts": hosts, "summary": counts(plans)}), indent=2).decode()


def as_text(plans: Sequence[HostPlan], *, verbose: bool = False) -> str:
    """Hosts with equal plans are told once; a host with nothing to do is one line; the last line sums up."""
    folded: dict[bytes, list[HostPlan]] = {}
    for plan in plans:
        folded.setdefault(_likeness(plan), []).append(plan)
    blocks = ["\n".join(_block(group, verbose)) for group in folded.values()]
    return "\n".join([*blocks, *_versions(plans), _summary(plans)])


def exit_code(plans: Sequence[HostPlan]) -> int:
    """4 if a host could not be reached, 1 if a host differs from its spec or would be changed, else 0."""
    if any(plan.unreachable for plan in plans):
        return 4
    return int(any(plan.differs or not plan.idle for plan in plans))


def counts(plans: Sequence[HostPlan]) -> dict[str, int]:
    """How many hosts would be changed, are as wanted, are blocked, cannot be reached, and reboot."""
    changing = [plan for plan in plans if plan.run and not plan.blocked]
    return {
        "hosts": len(plans),
        "to_apply": len(changing),
        "nothing_to_do": sum(plan.idle for plan in plans),
        "blocked": sum(bool(plan.blocked) for plan in plans),
        "unreachable": sum(bool(plan.unreachable) for plan in plans),
        "reboot": sum(plan.reboot is True and plan.permission == "if-needed" for plan in changing),
        "reboot_not_permitted": sum(plan.reboot is True and plan.permission == "never" for plan in plans),
    }


def _block(group: Sequence[HostPlan], verbose: bool) -> Iterable[str]:
    plan, title = group[0], names(plan.host for plan in group)
    title += f" ({len(group)} hosts)" if len(group) > 1 else ""
    applied = plan.last_apply if len({p.last_apply for p in group}) == 1 else "see --json"
    if plan.unreachable:
        yield f"{title}: cannot be reached: " + plan.unreachable
        return
    for result in plan.blocked:
        yield f"{title}: blocked by {result.check}: {result.found}; wanted: {result.expected}"
        if result.hint:
            yield f"  fix: {result.hint}"
    if plan.idle:
        yield f"{title}: nothing to do{_but(plan)} (last apply: {applied})"
        yield from _unmended(plan)
    elif not plan.blocked:
        yield f"{title}: {len(plan.run)} of {len(plan.run) + len(plan.skipped)} capabilities to apply (last apply: {applied})"
    yield from _listed("run", [f"{name}: {why}" for name, why in plan.run.items()])
    if verbose:
        yield from _listed("left out", [f"{name}: {why}" for name, why in plan.skipped.items()])
    if not plan.idle:
        yield from _details(plan, verbose)


def _details(plan: HostPlan, verbose: bool) -> Iterable[str]:
    for kind, section in SECTIONS.items():
        yield from _listed(section, [_change(change) for change in plan.section(kind)])
    for diff in plan.diffs:
        yield f"  diff of {diff.name}" if diff.diff else f"  {_change(diff)}"
        yield from (f"    {line}" for line in diff.diff.splitlines())
    if plan.tasks and verbose:
        yield from _listed("tasks that change something", list(plan.tasks))
    elif plan.tasks:
        yield f"  {len(plan.tasks)} more tasks change something (-v lists them)"
    yield from _listed("not predicted", list(plan.unpredicted) if verbose else _short(plan.unpredicted))
    yield f"  reboot: {_reboot(plan)}"


def _short(lines: Sequence[str]) -> list[str]:
    ansible = [line for line in lines if line.startswith("Ansible ")]
    rest = [line.partition(":")[0] for line in lines if line not in ansible]
    return ansible + ([", ".join(rest) + " (-v says why)"] if rest else [])


def _but(plan: HostPlan) -> str:
    if plan.reboot is True:
        return f", but a reboot is required: {'; '.join(plan.reboot_reasons)}"
    names = [one.check for one in plan.unmended if one.moment != "preflight"]
    return f", but {', '.join(names)} fail{'s' if len(names) == 1 else ''}, and apply cannot fix that" if names else ""


def _unmended(plan: HostPlan) -> Iterable[str]:
    for one in plan.unmended:
        before = "would stop an apply: " if one.moment == "preflight" else ""
        yield f"  {before}{one.check}: {one.found}" + (f"; wanted: {one.expected}" if one.expected else "")
        if one.hint:
            yield f"    fix: {one.hint}"


def _reboot(plan: HostPlan) -> str:
    why = "; ".join(plan.reboot_reasons)
    if plan.reboot is False:
        return "no"
    word = "yes" if plan.reboot is True else "unknown"
    if plan.permission == "never":
        word += ", but it needs permission (reboot: if-needed, or apply --reboot)"
    return f"{word}: {why}"


def _change(change: Change) -> str:
    if change.before and change.after:
        return f"{change.name}: {change.before} -> {change.after}"
    return (
        f"{change.name}: {change.after}"
        if change.after
        else change.name + (f": {change.before}" if change.before else "")
    )


def _listed(title: str, lines: Sequence[str]) -> Iterable[str]:
    if lines:
        yield f"  {title}"
        yield from (f"    {line}" for line in lines)


def _versions(plans: Sequence[HostPlan]) -> Iterable[str]:
    """Which hosts have which exact version after apply, by capability: told where it takes more than one plan to see it."""
    if len({_likeness(plan) for plan in plans}) < 2:
        return
    having: dict[str, dict[str, list[str]]] = {}
    for plan in plans:
        for capability, version in plan.versions.items():
            having.setdefault(capability, {}).setdefault(version, []).append(plan.host)
    if having:
        yield "versions after apply"
    for capability, versions in having.items():
        for version, hosts in sorted(versions.items()):
            count = f" ({len(hosts)} hosts)" if len(hosts) > 1 else ""
            yield f"  {capability} {version}: {names(hosts)}{count}"


def _summary(plans: Sequence[HostPlan]) -> str:
    count = counts(plans)
    words = [f"{count['hosts']} host{'s' if count['hosts'] != 1 else ''}: {count['to_apply']} to apply"]
    words.append(f"{count['nothing_to_do']} with nothing to do")
    words += [f"{count[key]} {key}" for key in ("blocked", "unreachable") if count[key]]
    words += [f"{count['reboot']} will reboot"] if count["reboot"] else []
    words += [f"{count['reboot_not_permitted']} need permission to reboot"] if count["reboot_not_permitted"] else []
    return ", ".join(words) + "; nothing was changed"


def _likeness(plan: HostPlan) -> bytes:
    alike = msgspec.structs.replace(plan, host="", last_apply="", last_apply_seconds=None, blocked=(), unmended=())
    blocked = [[r.check, r.found, r.expected, r.hint] for r in (*plan.blocked, *plan.unmended)]
    return msgspec.json.encode([alike, blocked, plan.host if plan.unreachable else ""])


def _plain(plan: HostPlan) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(plan)
    del plain["changes"]
    return plain | {section: [msgspec.to_builtins(c) for c in plan.section(kind)] for kind, section in SECTIONS.items()}
