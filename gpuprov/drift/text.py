"""Drift as text. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from gpuprov.drift.model import ORDER, Cause, Difference, HostDrift, State
from gpuprov.inventory.names import folded
from gpuprov.report.folded import that_follow
from gpuprov.shown import cleaned, wrapped
from gpuprov.verify.unmanaged import lines

WORDS: dict[State, str] = {
    "unreachable": "unreachable",
    "drifted": "drifted",
    "unknown": "not proven",
    "never applied": "never applied by gpuprov",
    "spec changed": "as applied, but the spec has changed since",
    "as applied": "as applied",
}
MARGIN = 12
MOST = 4
"""Packages of a command that are named."""


def as_text(hosts: Sequence[HostDrift], *, width: int = 100) -> str:
    """Equal hosts once, the worst first; then one line that sums up. Times are the hosts' own."""
    alike: dict[object, list[HostDrift]] = {}
    for one in sorted(hosts, key=_rank):
        alike.setdefault(_key(one), []).append(one)
    rows: list[str] = []
    for group in alike.values():
        rows += [*_group(group, width), ""]
    return "\n".join([*rows, summary(hosts)]) + "\n"


def _state(one: HostDrift) -> str:
    """What differs though its spec changed may be what the spec changed, or not: then the host is not called as applied."""
    words = WORDS[one.state]
    differs = one.state == "spec changed" and any(not each.unread for each in one.differences)
    return words.removeprefix("as applied, but ") if differs else words


def _rank(one: HostDrift) -> tuple[int, int]:
    return ORDER.index(one.state), one.next_boot != "wrong"


def _key(one: HostDrift) -> object:
    """What is told of a host but for the times and numbers of its own."""
    found = tuple((each.check, each.expected, each.found, each.spec_changed) for each in one.differences)
    return (
        one.state,
        one.why,
        one.cut_off,
        one.next_boot,
        tuple(one.spec_changed.items()),
        found,
        one.applied_with,
        one.unmanaged,
    )


def _group(group: Sequence[HostDrift], width: int) -> Iterator[str]:
    first = group[0]
    names = folded(one.host for one in group)
    yield f"{names}{f' ({len(group)} hosts)' if group[1:] else ''}: {_state(first)}"
    if first.why:
        yield from _labelled("why", first.why, width)
    if first.applied_at:
        of = f" ({first.host})" if group[1:] else ""
        yield from _labelled("applied", f"{first.applied_at} with gpuprov {first.applied_with}{of}", width)
    if first.cut_off:
        yield from _labelled("cut off", "the last apply did not end: apply again", width)
    for name, what in first.spec_changed.items():
        yield from _labelled("spec", f"{name}: {what}", width)
    roots = [one for one in first.differences if not one.follows]
    for one in roots:
        yield from _difference(
            one, [each.check for each in first.differences if each.follows == one.check], group, width
        )
    if first.state == "unreachable":
        return
    if first.harmless:
        count = first.harmless
        yield from _labelled(
            "also",
            f"{count} other package{'s' * (count != 1)} changed since; no check minds {'it' if count == 1 else 'them'}",
            width,
        )
    of = f" ({first.host})" if group[1:] else ""
    for cause in first.noted:
        yield from _labelled("noted", cause_in_words(cause) + of, width)
    for line in lines(first.unmanaged):
        yield from _labelled("left", f"{line}: no longer asked for, see gpuprov plan --prune", width)
    verdict = {
        "right": "right: a reboot leaves or makes it as the spec asks",
        "wrong": "WRONG: the host will not come back as the spec asks",
    }.get(first.next_boot, "unknown")
    reasons = (
        f": {'; '.join(first.next_boot_reasons)}" if first.next_boot_reasons and first.next_boot != "right" else ""
    )
    yield from _labelled("next boot", verdict + reasons, width)


def _difference(one: Difference, followers: Sequence[str], group: Sequence[HostDrift], width: int) -> Iterator[str]:
    yield f"  {cleaned(one.check)}"
    yield from _labelled("expected", one.expected, width)
    yield from _labelled("found", one.found, width)
    of = f" ({group[0].host})" if group[1:] else ""
    for cause in one.causes:
        yield from _labelled("by", cause_in_words(cause) + of, width)
    if not one.causes and not one.unread:
        said = (
            "the spec changed; no log and no reading of the host names another cause"
            if one.spec_changed
            else "no log of the host's package managers names it, and no reading of its own"
        )
        yield from _labelled("by", said, width)
    if followers:
        yield from _labelled(
            f"and {len(followers)}", f"{that_follow(len(followers)).partition(' ')[2]}: {', '.join(followers)}", width
        )
    yield from _labelled("fix", one.fix, width)


def cause_in_words(cause: Cause) -> str:
    """`Tue 2026-11-17 14:02 +01:00, by alice (1000): apt upgrade: libnvidia-compute-570 570.1 → 570.2 and 3 more`."""
    at = datetime.fromisoformat(cause.at)
    zone = at.isoformat()[-6:]
    when = f"{at:%a %Y-%m-%d %H:%M} {zone}"
    if cause.after:
        after = datetime.fromisoformat(cause.after)
        told = f"{after:%a %Y-%m-%d %H:%M}"
        when = f"between {told} and {when}" if after <= at else f"after {told} {zone}, when the clock was set back"
        when += ", while gpuprov applied, too" if cause.spans_apply else ""
    more = f" and {len(cause.packages) - MOST} more" if len(cause.packages) > MOST else ""
    user = f", by {cause.user}" if cause.user else ""
    command = f": {cause.command}" if cause.command else ""
    return f"{when}{user}{command}: {', '.join(cause.packages[:MOST])}{more}"


def summary(hosts: Sequence[HostDrift]) -> str:
    """`4 hosts: 1 drifted, 3 as applied`."""
    counts = Counter(_state(one) for one in sorted(hosts, key=_rank))
    parts = [f"{count} {words}" for words, count in counts.items()]
    lost = [one.host for one in hosts if one.is_lost]
    told = f"{len(hosts)} host{'s' * (len(hosts) != 1)}: {', '.join(parts)}"
    return told + (f"; {len(lost)} will not come back from the next boot as the spec asks" if lost else "")


def _labelled(label: str, value: str, width: int) -> Iterator[str]:
    pieces = [piece for line in cleaned(value).splitlines() for piece in wrapped(line, max(width - MARGIN, 30)) or [""]]
    for number, piece in enumerate(pieces):
        yield f"  {label if not number else '':<{MARGIN - 2}}{piece}"
