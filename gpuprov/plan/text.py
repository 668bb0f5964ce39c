"""Plans as text. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpuprov import shown
from gpuprov.capabilities.base import Change
from gpuprov.inventory.names import folded as names
from gpuprov.plan.fold import (
    Group,
    Set,
    Sign,
    after_cut,
    before_cut,
    by_folder,
    cuts,
    groups,
    sets,
    settings,
    sign,
    told_by_checks,
)
from gpuprov.plan.model import SECTIONS, HostPlan, Item
from gpuprov.plan.summary import sentence
from gpuprov.shown import BOLD, CYAN, GREEN, RED, YELLOW, cleaned, wrapped
from gpuprov.verify.evaluate import Result
from gpuprov.verify.unmanaged import lines

SIGNS = {"+": GREEN, "-": RED, "~": YELLOW}
LATER = ("client", "package", "setting", "hold")
"""Sections with their own format."""
TOGETHER = ("package", "hold", "mig")
"""Kinds whose equal changes share one line."""
NOTHING_HELD = ("", "held", "not held")
LEAST = 30


class Line(NamedTuple):
    """A line of the text. `sign`: printed before it, in its colour; `whole`: the line is in this colour and never wrapped (a diff);
    `bold`: this many characters at its start."""

    text: str
    indent: int = 0
    sign: str = ""
    whole: str | None = None
    bold: int = 0


def as_text(
    plans: Sequence[HostPlan], *, verbose: bool = False, colour: bool = False, width: int = 100, ahead: bool = False
) -> str:
    """Format plans. Hosts with equal plans share one entry; a host with nothing to do is one line; the last line sums up.

    Lines are wrapped between words only, at `width`, or not at all (0); those of a diff never are. colour: + green, - red, ~ yellow,
    as in Terraform and git. ahead: the plan is about to be applied, so that the last line does not say that nothing was changed.
    """
    found = groups(plans)
    lines = [line for group in found for line in _block(group, verbose)]
    lines += [*_versions(plans, found), _verdict(plans, ahead)]
    return "\n".join(piece for line in lines for piece in _written(line, colour, width))


def _written(line: Line, colour: bool, width: int) -> Iterator[str]:
    def paint(text: str, code: str) -> str:
        return shown.paint(text, code) if colour and code and text else text

    margin, text = " " * line.indent, cleaned(line.text)
    if line.whole is not None:
        yield margin + paint(text, line.whole)
        return
    first = f"{margin}{line.sign} " if line.sign else margin
    hang = margin + "  "
    pieces = wrapped(text, max(width, line.indent + LEAST) if width else 0, first, hang)
    left = line.bold
    for number, piece in enumerate(pieces or [first.rstrip()]):
        start = len(piece) - len(piece.lstrip())
        if number == 0 and line.sign:
            yield margin + paint(line.sign, SIGNS[line.sign]) + piece[len(margin) + 1 :]
        else:
            end = start + max(left, 0)
            yield piece[:start] + paint(piece[start:end], BOLD) + piece[end:]
        left -= len(piece) - start + 1


def _block(group: Group, verbose: bool) -> Iterator[Line]:
    plan, title = group.plan, group.where
    bold = len(cleaned(title))
    title += f" ({len(group.hosts):,} hosts)" if len(group.hosts) > 1 else ""
    if plan.unreachable:
        yield Line(f"{title}: cannot be reached: " + plan.unreachable, bold=bold)
        if plan.unreachable_fix:
            yield Line(f"fix: {plan.unreachable_fix}", 2)
        return
    for result in plan.blocked:
        yield Line(f"{title}: blocked by {result.check}: {result.found}; wanted: {result.expected}", bold=bold)
        yield from _fix(result)
    applied = f" (last apply: {plan.last_apply or 'at different times'})"
    if plan.idle:
        yield Line(f"{title}: nothing to do{_but(plan)}{applied}", bold=bold)
        yield from _unmended(plan)
    elif not plan.blocked:
        which = f"{len(plan.run)} of {len(plan.run) + len(plan.skipped)} capabilities to apply"
        yield Line(f"{title}: {which}{applied}", bold=bold)
    if plan.out:
        yield Line(plan.out, 2)
    if not plan.idle:
        yield Line(f"reboot: {_reboot(plan)}", 2)
        yield from _listed("clients", [_change(one) for one in plan.section("client")])
    yield from _listed("run", [Line(f"{name}: {why}", 4) for name, why in plan.run.items()])
    if verbose:
        yield from _listed("left out", [Line(f"{name}: {why}", 4) for name, why in plan.skipped.items()])
    if not plan.idle:
        yield from _details(plan, verbose)
    yield from _unmanaged(plan)


def _fix(result: Result, indent: int = 2) -> Iterator[Line]:
    if result.hint:
        yield Line(f"fix: {result.hint}", indent)


def _details(plan: HostPlan, verbose: bool) -> Iterator[Line]:
    packages = plan.section("package")
    moved = {change.name for change in packages}
    yield from _listed(f"packages ({len(moved)})", [Line(text, 4, mark) for mark, text in described(packages)])
    held = plan.section("hold")
    yield from _listed(f"holds ({len(held)})", [Line(text, 4, mark) for mark, text in described(held)])
    for cut in cuts(plan.mig):
        one = cut.one
        on, then = ("enabled" if state else "disabled" for state in (one.enabled_before, one.enabled_after))
        mode = f"MIG mode {on} -> {then}" if on != then else f"MIG mode {on}"
        yield from _listed(
            f"mig of {cut.gpus}", [Line(mode, 4, "~"), Line(f"{before_cut(one)} -> {after_cut(one)}", 4, "~")]
        )
    yield from _listed("settings", [_change(one) for one in settings(plan)])
    for kind, section in SECTIONS.items():
        if kind not in LATER:
            yield from _listed(section, [_change(one) for one in told_by_checks(plan, kind)])
    for diff in plan.diffs:
        if not diff.diff:
            yield _change(diff, 2)
            continue
        yield Line(f"diff of {diff.name}", 2)
        yield from (Line(line, 4, whole=_diff_colour(line)) for line in diff.diff.splitlines())
    unknown = plan.unpredicted if verbose else _short(plan.unpredicted)
    yield from _listed("rollback could not undo", [Line(line, 4) for line in plan.no_way_back])
    yield from _listed("not predicted", [Line(line, 4) for line in unknown])


def _unmanaged(plan: HostPlan) -> Iterator[Line]:
    """Yield what the spec no longer declares and this run leaves; what it removes is among its changes."""
    fix = " (--prune takes it away)" if any(not one.stays for one in plan.left_over) else ""
    yield from _listed(f"no longer asked for{fix}", [Line(line, 4) for line in lines(plan.left_over)])


def _diff_colour(line: str) -> str:
    if line.startswith(("---", "+++")):
        return BOLD
    return {"+": GREEN, "-": RED, "@": CYAN}.get(line[:1], "")


def _short(lines: Sequence[str]) -> list[str]:
    """Return the checks alone, and statements about a whole capability unchanged."""
    checks = [line.partition(":")[0] for line in lines if "." in line.partition(":")[0]]
    return [line for line in lines if "." not in line.partition(":")[0]] + (
        [", ".join(checks) + " (-v says why)"] if checks else []
    )


def _but(plan: HostPlan) -> str:
    if plan.reboot is True:
        return f", but a reboot is required: {'; '.join(plan.reboot_reasons)}"
    named = [one.check for one in plan.unmended if one.moment != "preflight"]
    return f", but {', '.join(named)} fail{'s' if len(named) == 1 else ''}, and apply cannot fix that" if named else ""


def _unmended(plan: HostPlan) -> Iterator[Line]:
    for one in plan.unmended:
        before = "would stop an apply: " if one.moment == "preflight" else ""
        yield Line(f"{before}{one.check}: {one.found}" + (f"; wanted: {one.expected}" if one.expected else ""), 2)
        yield from _fix(one, 4)


def _reboot(plan: HostPlan) -> str:
    why = "; ".join(plan.reboot_reasons)
    if plan.reboot is False:
        return "no"
    word = "yes" if plan.reboot is True else "unknown"
    if plan.permission == "never":
        word += ", but it needs permission (reboot: if-needed, or apply --reboot)"
    return f"{word}: {why}"


def _change(change: Change, indent: int = 4) -> Line:
    return Line(told(change), indent, sign(change))


def told(change: Change) -> str:
    """Describe a change in words."""
    if change.before and change.after:
        return f"{change.name}: {change.before} -> {change.after}"
    rest = change.after or change.before
    return f"{change.name}: {rest}" if rest else change.name


def described(changes: Iterable[Item]) -> list[tuple[Sign, str]]:
    """Describe changes: packages and layouts with equal changes share a line, as do files of one folder."""
    found = list(changes)
    sets_ = [one for kind in TOGETHER for one in sets(one for one in found if one.kind == kind)]
    rest = by_folder(one for one in found if one.kind not in TOGETHER)
    return [(one.sign, told_together(one)) for one in sets_] + [(sign(one), told(one)) for one in rest]


def told_together(one: Set) -> str:
    """Describe a set in words."""
    before = f"{one.before} -> " if one.before not in NOTHING_HELD else ""
    return f"{before}{one.end}: {', '.join(one.names)}"


def _listed(title: str, lines: Iterable[Line]) -> Iterator[Line]:
    if found := list(lines):
        yield Line(title, 2)
        yield from found


def _versions(plans: Sequence[HostPlan], found: Sequence[Group]) -> Iterator[Line]:
    """Yield the exact version on each host after apply, by capability: only if it takes more than one plan to see."""
    if len(found) < 2:
        return
    having: dict[str, dict[str, list[str]]] = {}
    for plan in plans:
        for capability, version in plan.versions.items():
            having.setdefault(capability, {}).setdefault(version, []).append(plan.host)
    if having:
        yield Line("versions after apply")
    for capability, versions in having.items():
        for version, hosts in sorted(versions.items()):
            count = f" ({len(hosts)} hosts)" if len(hosts) > 1 else ""
            yield Line(f"{capability} {version}: {names(hosts)}{count}", 2)


def _verdict(plans: Sequence[HostPlan], ahead: bool) -> Line:
    text = sentence(plans)
    return Line(text if ahead else f"{text}; nothing was changed", bold=len(text))
