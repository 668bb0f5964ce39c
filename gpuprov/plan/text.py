"""Plans as text. Pure functions."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpuprov.capabilities.answers import APPLY
from gpuprov.core import sanitize as shown
from gpuprov.core.sanitize import BOLD, CYAN, GREEN, RED, YELLOW, cleaned, wrapped
from gpuprov.inventory.names import fold_names as names
from gpuprov.plan.fold import DIFF_HEAD, Group, groups, sign
from gpuprov.plan.items import by_capability
from gpuprov.plan.model import HostPlan, Item
from gpuprov.plan.rows import describe, is_long, rows, size
from gpuprov.plan.summary import sentence
from gpuprov.verify.evaluate import Result
from gpuprov.verify.unmanaged import lines

SIGNS = {"+": GREEN, "-": RED, "~": YELLOW}
LEAST = 30
NO_CHANGE = "apply has no change to make for it; "


class Line(NamedTuple):
    """A line of the text."""

    text: str
    indent: int = 0
    # Printed before it, in its colour.
    sign: str = ""
    # The line is in this colour and never wrapped (a diff).
    whole: str | None = None
    # This many characters at its start.
    bold: int = 0


def as_text(
    plans: Sequence[HostPlan], *, verbose: bool = False, colour: bool = False, width: int = 100, ahead: bool = False
) -> str:
    """Format plans: reboot and clients of the GPUs first, then the changes by capability. Hosts with equal plans share
    one entry, and what is the same on a later host names the first; a host with nothing to do is one line; the last
    line sums up.

    Lines are wrapped between words only, at `width`, or not at all (0); those of a diff never are. colour: + green, -
    red, ~ yellow, as in Terraform and git. ahead: the plan is about to be applied, so that the last line does not say
    that nothing was changed.
    """
    folded = groups(plans)
    printed: dict[tuple[Line, ...], str] = {}
    lines = [line for group in folded for line in _format_host(group, printed, verbose)]
    lines += [*_format_versions(plans, folded), _format_verdict(plans, ahead)]
    return "\n".join(piece for line in lines for piece in _format_written(line, colour, width))


def _format_written(line: Line, colour: bool, width: int) -> Iterator[str]:
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


def _format_host(group: Group, printed: dict[tuple[Line, ...], str], verbose: bool) -> Iterator[Line]:
    plan, title = group.plan, group.where
    bold = len(cleaned(title))
    title += f" ({len(group.hosts):,} hosts)" if len(group.hosts) > 1 else ""
    if plan.unreachable:
        yield Line(f"{title}: cannot be reached: " + plan.unreachable, bold=bold)
        if plan.unreachable_fix:
            yield Line(f"fix: {plan.unreachable_fix}", 2)
        return
    for result in plan.blocked:
        expected = f"; wanted: {result.expected}" if result.expected else ""
        place = f" ({plan.places[result.check]})" if result.check in plan.places else ""
        yield Line(f"{title}: blocked by {result.check}: {result.found}{expected}{place}", bold=bold)
        yield from _fix(result)
    applied = f" (last apply: {plan.last_apply or 'at different times'})"
    if plan.idle:
        yield Line(f"{title}: nothing to do{_format_exception(plan)}{applied}", bold=bold)
        yield from _format_unmended(plan)
    elif not plan.blocked:
        of = f" of {len(plan.run) + len(plan.skipped)}" if plan.skipped else ""
        which = f"{len(plan.run)}{of} {'capabilities' if of or len(plan.run) > 1 else 'capability'} to apply"
        yield Line(f"{title}: {which}{applied}", bold=bold)
    if plan.out:
        yield Line(plan.out, 2)
    if not plan.idle:
        yield Line(f"reboot: {_reboot(plan)}", 2)
        yield from _format_list(
            "clients", [Line(describe(client), 4, sign(client)) for client in plan.section("client")]
        )
    yield from _format_capabilities(plan, title, printed, verbose)
    if not plan.idle:
        unknown = plan.unpredicted if verbose else _shorten_checks(plan.unpredicted)
        yield from _format_list("rollback could not undo", [Line(line, 4) for line in plan.no_way_back])
        yield from _format_list("not predicted", [Line(line, 4) for line in unknown])
    if verbose:
        yield from _format_list("left out", [Line(f"{name}: {why}", 4) for name, why in plan.skipped.items()])
    yield from _format_unmanaged(plan)


def _fix(result: Result, indent: int = 2) -> Iterator[Line]:
    if result.fix:
        yield Line(f"fix: {result.fix}", indent)


def _format_capabilities(
    plan: HostPlan, title: str, printed: dict[tuple[Line, ...], str], verbose: bool
) -> Iterator[Line]:
    """Yield each capability with its reason and its changes. printed: what earlier hosts have shown, and which; added
    to here."""
    same: dict[str, list[str]] = {}
    for name, items in by_capability(plan).items():
        why = plan.run.get(name, "")
        head = Line(f"{name}: {why}" if why else name, 2, bold=len(name))
        lines = (head, *_format_changes(items, verbose), *(() if items else _format_unchanged(plan, name)))
        first = printed.setdefault(lines, title)
        if first == title:
            yield from lines
        else:
            same.setdefault(first, []).append(name)
    yield from (Line(f"{', '.join(each)}: as on {first}", 2) for first, each in same.items())


def _format_changes(items: Sequence[Item], verbose: bool) -> Iterator[Line]:
    for row in rows(item for item in items if not item.diff):
        yield Line(row.line(verbose=verbose), 4, row.sign)
    for item in items:
        if item.diff and is_long(item.diff) and not verbose:
            yield Line(f"{item.name}: {size(item.diff)} (-v shows them)", 4, sign(item))
        elif item.diff:
            yield Line(f"{item.name}: {size(item.diff)}", 4, sign(item))
            shown = (line for line in item.diff.splitlines() if line not in DIFF_HEAD)
            yield from (Line(line, 6, whole=_choose_diff_colour(line)) for line in shown)


def _format_unchanged(plan: HostPlan, capability: str) -> Iterator[Line]:
    """Yield what fails of a capability that runs without a change, and what mends it."""
    for result in plan.unmended:
        if result.capability == capability:
            yield Line(f"{result.check}: {result.found}", 4)
            by_hand = result.fix and APPLY not in result.fix and not result.fix.startswith("see ")
            yield Line(f"{NO_CHANGE if by_hand else ''}fix: {result.fix or 'see what fails'}", 6)


def _format_unmanaged(plan: HostPlan) -> Iterator[Line]:
    """Yield what the spec no longer declares and this run leaves; what it removes is among its changes."""
    fix = " (--prune takes it away)" if any(not resource.stays for resource in plan.left_over) else ""
    yield from _format_list(f"no longer asked for{fix}", [Line(line, 4) for line in lines(plan.left_over)])


def _choose_diff_colour(line: str) -> str:
    return {"+": GREEN, "-": RED, "@": CYAN}.get(line[:1], "")


def _shorten_checks(lines: Sequence[str]) -> list[str]:
    """Return the checks alone, and statements about a whole capability unchanged."""
    checks = [line.partition(":")[0] for line in lines if "." in line.partition(":")[0]]
    return [line for line in lines if "." not in line.partition(":")[0]] + (
        [", ".join(checks) + " (-v says why)"] if checks else []
    )


def _format_exception(plan: HostPlan) -> str:
    if plan.reboot is True:
        return f", but a reboot is required: {'; '.join(plan.reboot_reasons)}"
    named = [result.check for result in plan.unmended if result.moment != "preflight"]
    return f", but {', '.join(named)} fail{'s' if len(named) == 1 else ''}, and apply cannot fix that" if named else ""


def _format_unmended(plan: HostPlan) -> Iterator[Line]:
    for result in plan.unmended:
        before = "would stop an apply: " if result.moment == "preflight" and result.refuses else ""
        yield Line(
            f"{before}{result.check}: {result.found}" + (f"; wanted: {result.expected}" if result.expected else ""), 2
        )
        yield from _fix(result, 4)


def _reboot(plan: HostPlan) -> str:
    why = "; ".join(plan.reboot_reasons)
    if plan.reboot is False:
        return "no"
    word = "yes" if plan.reboot is True else "unknown"
    if plan.permission == "never":
        word += ", but it needs permission (reboot: if-needed, or apply --reboot)"
    return f"{word}: {why}"


def _format_list(title: str, lines: Iterable[Line]) -> Iterator[Line]:
    if listed := list(lines):
        yield Line(title, 2)
        yield from listed


def _format_versions(plans: Sequence[HostPlan], folded: Sequence[Group]) -> Iterator[Line]:
    """Yield the exact version on each host after apply, by capability: only if it takes more than one plan to see."""
    if len(folded) < 2:
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


def _format_verdict(plans: Sequence[HostPlan], ahead: bool) -> Line:
    text = sentence(plans)
    return Line(text if ahead else f"{text}; nothing was changed", bold=len(text))
