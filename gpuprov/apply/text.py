"""A run as text. Pure functions."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from gpuprov.apply.fates import fates, in_numbers, timeless, untouched
from gpuprov.apply.model import DONE, AppliedItem, ApplyRun, Became, HostOutcome
from gpuprov.core.sanitize import BOLD, GREEN, RED, YELLOW, cleaned, counted, hanging, paint
from gpuprov.inventory.names import fold_names as names
from gpuprov.plan.items import sizes
from gpuprov.plan.rows import rows
from gpuprov.plan.text import SIGNS
from gpuprov.report.folded import that_follow
from gpuprov.report.text import unproven

WORDS = ("changed", "unchanged", "failed", "blocked", "locked", "unreachable", "not-started", "prepared")
COLOURS: dict[Became, str] = {
    "done": GREEN,
    "unforeseen": GREEN,
    "not needed": GREEN,
    "not done": RED,
    "taken back": YELLOW,
    "unknown": YELLOW,
}


class Line(NamedTuple):
    """A line of the text."""

    text: str
    bold: str = ""
    # That of what follows, up to a comma, a colon or a bracket.
    colour: str = ""
    # Before it all, in this colour.
    sign: str = ""
    # Never broken (a diff).
    whole: bool = False

    def shown(self, width: int, *, colour: bool) -> Iterable[str]:
        text = cleaned(self.sign + self.bold + self.text)
        first, *rest = [text] if self.whole else hanging(text, width)
        if colour and self.sign and self.colour:
            return [paint(self.sign, self.colour) + first[len(self.sign) :], *rest]
        head = cleaned(self.bold)
        if colour and head and first.startswith(head):
            word = re.match(r"\s*[^,:(]*", first[len(head) :])
            label = word[0] if word else ""
            first = f"{paint(head, BOLD)}{paint(label, self.colour)}{first[len(head) + len(label) :]}"
        return [first, *rest]


def as_text(run: ApplyRun, *, verbose: bool = False, width: int = 0, colour: bool = False) -> str:
    """Format a run: a block per host, hosts with the same outcome together; the last line sums up. Broken between words
    at `width`; 0: not at all.

    colour: green for what matches the spec, yellow for what waits or is not proven, red for what is not done.
    """
    folded: dict[bytes, list[HostOutcome]] = {}
    for outcome in run.hosts:
        folded.setdefault(_compute_likeness(outcome, verbose), []).append(outcome)
    lines = [line for group in folded.values() for line in _format_host(group, verbose)]
    all_lines = [line if isinstance(line, Line) else Line(line) for line in (*lines, *_format_end(run))]
    return "\n".join(piece for line in all_lines for piece in line.shown(width, colour=colour))


def _choose_colour(outcome: HostOutcome) -> str:
    if outcome.state in ("failed", "blocked", "unreachable") or (outcome.failing and not outcome.reboot):
        return RED
    if outcome.state in ("locked", "not-started") or outcome.reboot or outcome.unproven:
        return YELLOW
    return GREEN


def _format_host(group: Sequence[HostOutcome], verbose: bool) -> Iterable[str | Line]:
    outcome = group[0]
    title = names(o.host for o in group) + (f" ({len(group)} hosts)" if len(group) > 1 else "")
    yield Line(f" {_format_headline(group)}", f"{title}:", _choose_colour(outcome))
    if outcome.interrupted and not verbose:
        yield f"  {_describe_state(group)}"
        yield f"  {outcome.left or 'nothing of the run is left there, and its lock was given back'}"
        return
    fix = f"fix: {outcome.fix}" if outcome.fix else ""
    warnings = (f"warning: {text}" for text in outcome.warnings)
    yield from (f"  {text}" for text in (outcome.left, fix, outcome.rolled_back, *warnings) if text)
    yield from _list_items(outcome, timeless(outcome.items) if len(group) > 1 else outcome.items, verbose)
    if verbose:
        yield from (f"  changed {task}" for task in outcome.changed)
        yield from (f"  left out {name}: {why}" for name, why in outcome.skipped.items())
    if outcome.state == "prepared":
        yield from (f"  still to do, by apply: {name}: {why}" for name, why in outcome.ran.items())
    if outcome.state in ("blocked", "locked", "unreachable", "not-started", "prepared"):
        return
    for reason in outcome.reboot:
        yield f"  reboot required: {reason}"
    open_questions = outcome.unproven if outcome.state != "failed" else []
    if verbose:
        yield from (f"  not proven {result.check}: {result.found}" for result in open_questions)
    elif open_questions:
        yield f"  not proven: {', '.join(result.check for result in open_questions)} (-v says why)"
    for result in outcome.failing:
        if not result.reboot and not result.follows:
            expected = f"; wanted: {result.expected}" if result.expected else ""
            place = outcome.places.get(result.check, "")
            yield f"  {result.status} {result.check}: {result.found}{expected}{f' ({place})' if place else ''}"
            if result.fix:
                yield f"    fix: {result.fix}"
    if following := [result.check for result in outcome.failing if result.follows]:
        yield f"  and {that_follow(len(following))}: {', '.join(following)}"


def _describe_state(group: Sequence[HostOutcome]) -> str:
    """Describe the state in which an interrupted run left hosts: what was done, and what verify found."""
    first = group[0]
    done = in_numbers(group) or "no change of the plan was made"
    failing = sum(not result.follows for result in first.failing)
    verdict = (
        f"verify: {counted(failing, 'check')} fail{'s' * (failing == 1)} (-v says which)"
        if failing
        else _format_verdict(first)
    )
    return f"{done}; {verdict}"


def _list_items(outcome: HostOutcome, items: Sequence[AppliedItem], verbose: bool) -> Iterable[Line]:
    """Yield the plan's items and their outcomes. For a host that was left alone, only the numbers."""
    if untouched(outcome) and not verbose:
        if items and outcome.state != "prepared":
            listed = ", ".join(sizes([items])) or "the changes of its plan"
            yield Line(f"  not done: {listed} (-v lists them)")
        return
    for fate in fates(items, outcome.ran):
        yield Line(f" {fate.description}", f"  {fate.capability}:", YELLOW if fate.waits else COLOURS[fate.state])
        for row in rows(fate.items):
            yield Line(f" {row.line(verbose=verbose)}", sign=f"    {row.sign}", colour=SIGNS[row.sign])
        for item in fate.items if verbose else ():
            if item.diff:
                yield Line(f"    diff of {item.name}")
                yield from (Line(f"      {line}", whole=True) for line in item.diff.splitlines())


def _format_headline(group: Sequence[HostOutcome]) -> str:
    outcome = group[0]
    took = f" in {max(o.seconds for o in group):.0f} s" if any(o.seconds for o in group) else ""
    verdict = _format_verdict(outcome)
    if outcome.state == "changed":
        most = max(len(o.changed) for o in group)
        return f"changed ({most} task{'s' if most != 1 else ''}{took}), {verdict}"
    if outcome.state == "prepared":
        most = max(len(o.changed) for o in group)
        done = f"changed {most} task{'s' if most != 1 else ''}" if most else "nothing had to be changed"
        return f"prepared ({done}{took}); nothing in service was changed"
    if outcome.state == "unchanged":
        return f"unchanged{took if outcome.ran else ''}, {verdict}"
    place = f"{outcome.task}: " if outcome.task else ""
    origin = f" ({outcome.origin})" if outcome.origin else ""
    return (f"{outcome.state}: {place}{outcome.message}" if outcome.message else outcome.state) + origin


def _format_verdict(outcome: HostOutcome) -> str:
    if outcome.failing:
        return "verify is not green"
    if not outcome.verified:
        return "not verified"
    return (
        f"verify found nothing wrong, but {unproven(len(outcome.unproven))}" if outcome.unproven else "verify is green"
    )


def _format_end(run: ApplyRun) -> Iterable[str | Line]:
    if run.stopped:
        yield f"stopped: {run.stopped}"
    if run.interrupted:
        yield "interrupted: run it again to complete it"
    count, _, rest = summary(run).partition(":")
    worst = next((colour for colour in (RED, YELLOW) if colour in map(_choose_colour, run.hosts)), GREEN)
    if run.hosts:
        yield Line(f"{rest}; {run.seconds:.1f} s", f"{count}:", worst)
    if run.log:
        yield f"log: {run.log}"


def summary(run: ApplyRun) -> str:
    """Return `4 hosts: 3 changed, 1 failed; of these 1 differs ...`: each host once before `of these`, and after it
    only those whose run was completed."""
    states = [outcome.state for outcome in run.hosts]
    state_counts = ", ".join(f"{states.count(word)} {word}" for word in WORDS if word in states)
    back = sum(host.undone for host in run.hosts)
    words = [f"{back} rolled back"] if back else []
    waiting = [outcome.reboot_permitted for outcome in run.hosts if outcome.reboot and outcome.state != "prepared"]
    if held := waiting.count(False):
        again = "rollback --reboot" if run.act == "rollback" else "apply --reboot, or reboot: if-needed"
        words.append(f"{held} waiting for a reboot ({again})")
    if still := waiting.count(True):
        words.append(f"{still} still waiting for a reboot, which this run was permitted (reboot by hand, then verify)")
    failing = sum(host.wrong and not host.reboot for host in run.hosts if host.state in DONE)
    words += [f"{failing} {'differs from its spec' if failing == 1 else 'differ from their specs'}"] if failing else []
    if partly := sum(bool(host.unproven) for host in run.hosts if host.state in DONE and host.state != "prepared"):
        words.append(f"{partly} not fully proven")
    count, made = len(run.hosts), in_numbers([host for host in run.hosts if host.state != "prepared"])
    sentence = f"{count} host{'s' if count != 1 else ''}: {state_counts}"
    return "; ".join(filter(None, (sentence, f"of these {', '.join(words)}" if words else "", made)))


def _compute_likeness(outcome: HostOutcome, verbose: bool) -> bytes:
    results = [[r.check, r.status, r.found, r.expected, r.fix, r.reboot] for r in outcome.failing]
    alike: list[object] = [
        outcome.state,
        outcome.task,
        outcome.message,
        outcome.left,
        outcome.fix,
        outcome.rolled_back,
        outcome.warnings,
        results,
        [[r.check, r.found if verbose else ""] for r in outcome.unproven],
        bool(outcome.results),
        outcome.ran if outcome.state == "prepared" else bool(outcome.ran),
        timeless(outcome.items),
        outcome.origin,
        outcome.places,
    ]
    return msgspec.json.encode([*alike, *([outcome.changed, outcome.skipped] if verbose else [])])
