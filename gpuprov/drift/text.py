"""Drift as text. Pure functions."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from gpuprov.core.sanitize import cleaned
from gpuprov.drift.model import ORDER, Cause, Difference, HostDrift, State
from gpuprov.inventory.names import fold_names
from gpuprov.report.text import following, labelled
from gpuprov.verify.unmanaged import lines

WORDS: dict[State, str] = {
    "unreachable": "unreachable",
    "drifted": "drifted",
    "unknown": "not proven",
    "never applied": "never applied by gpuprov",
    "spec changed": "as applied, but the spec has changed since",
    "as applied": "as applied",
}
# Number of packages of a command that are named.
MOST = 4


def as_text(hosts: Sequence[HostDrift], *, width: int = 100) -> str:
    """Format equal hosts once, the worst first; then one line that sums up. Times are the hosts' own."""
    alike: dict[object, list[HostDrift]] = {}
    for host in sorted(hosts, key=_rank):
        alike.setdefault(_make_key(host), []).append(host)
    rows: list[str] = []
    for group in alike.values():
        rows += [*_format_group(group, width), ""]
    return "\n".join([*rows, format_summary(hosts)]) + "\n"


def _describe_state(host: HostDrift) -> str:
    """Describe the state. A difference of a capability whose spec changed may be due to the spec, or not: such a host
    is not called as applied."""
    if host.state == "never applied" and host.cut_off:
        return "not applied as a whole: the first apply did not end"
    words = WORDS[host.state]
    differs = host.state == "spec changed" and any(not each.unread for each in host.differences)
    return words.removeprefix("as applied, but ") if differs else words


def _rank(host: HostDrift) -> tuple[int, int]:
    return ORDER.index(host.state), host.next_boot != "wrong"


def _make_key(host: HostDrift) -> object:
    """Key of hosts that read the same, except for times and numbers of their own."""
    differences = tuple((each.check, each.expected, each.found, each.spec_changed) for each in host.differences)
    return (
        host.state,
        host.why,
        host.cut_off,
        host.next_boot,
        tuple(host.spec_changed.items()),
        differences,
        host.applied_with,
        host.unmanaged,
    )


def _format_group(group: Sequence[HostDrift], width: int) -> Iterator[str]:
    first = group[0]
    names = fold_names(host.host for host in group)
    yield f"{names}{f' ({len(group)} hosts)' if group[1:] else ''}: {_describe_state(first)}"
    if first.why:
        yield from labelled("why", first.why, width)
    if first.applied_at:
        of = f" ({first.host})" if group[1:] else ""
        yield from labelled("applied", f"{first.applied_at} with gpuprov {first.applied_with}{of}", width)
    if first.cut_off and first.state != "never applied":
        yield from labelled("cut off", "the last apply did not end: apply again", width)
    for name, what in first.spec_changed.items():
        yield from labelled("spec", f"{name}: {what}", width)
    roots = [difference for difference in first.differences if not difference.follows]
    for root in roots:
        yield from _format_difference(
            root, [each.check for each in first.differences if each.follows == root.check], group, width
        )
    if first.state == "unreachable":
        return
    if first.harmless:
        count = first.harmless
        yield from labelled(
            "also",
            f"{count} other package{'s' * (count != 1)} changed since; no check minds {'it' if count == 1 else 'them'}",
            width,
        )
    of = f" ({first.host})" if group[1:] else ""
    for cause in first.noted:
        yield from labelled("noted", format_cause(cause) + of, width)
    for line in lines(first.unmanaged):
        yield from labelled("left", f"{line}: no longer asked for, see gpuprov plan --prune", width)
    verdict = {
        "right": "right: a reboot leaves or makes it as the spec asks",
        "wrong": "NOT right: the host will not come back as the spec asks",
    }.get(first.next_boot, "unknown")
    reasons = (
        f": {'; '.join(first.next_boot_reasons)}" if first.next_boot_reasons and first.next_boot != "right" else ""
    )
    yield from labelled("next boot", verdict + reasons, width)


def _format_difference(
    difference: Difference, followers: Sequence[str], group: Sequence[HostDrift], width: int
) -> Iterator[str]:
    yield f"  {cleaned(difference.check)}"
    yield from labelled("expected", difference.expected, width)
    yield from labelled("found", difference.found, width)
    of = f" ({group[0].host})" if group[1:] else ""
    for cause in difference.causes:
        yield from labelled("by", format_cause(cause) + of, width)
    if not difference.causes and not difference.unread and group[0].state != "never applied":
        reason = (
            "the spec changed; no log and no reading of the host names another cause"
            if difference.spec_changed
            else "no log of the host's package managers names it, and no reading of its own"
        )
        yield from labelled("by", reason, width)
    yield from following(followers, width)
    yield from labelled("fix", difference.fix, width)


def format_cause(cause: Cause) -> str:
    """Format a cause: `Tue 2026-11-17 14:02 +01:00, by alice (1000): apt upgrade: libnvidia-compute-570 570.1 → 570.2
    and 3 more`."""
    at = datetime.fromisoformat(cause.at)
    zone = at.isoformat()[-6:]
    when = f"{at:%a %Y-%m-%d %H:%M} {zone}"
    if cause.after:
        after = datetime.fromisoformat(cause.after)
        start = f"{after:%a %Y-%m-%d %H:%M}"
        when = f"between {start} and {when}" if after <= at else f"after {start} {zone}, when the clock was set back"
        when += ", while gpuprov applied, too" if cause.spans_apply else ""
    more = f" and {len(cause.packages) - MOST} more" if len(cause.packages) > MOST else ""
    user = f", by {cause.user}" if cause.user else ""
    command = f": {cause.command}" if cause.command else ""
    return f"{when}{user}{command}: {', '.join(cause.packages[:MOST])}{more}"


def format_summary(hosts: Sequence[HostDrift]) -> str:
    """Format the summary: `4 hosts: 1 drifted, 3 as applied`."""
    counts = Counter(_describe_state(host) for host in sorted(hosts, key=_rank))
    parts = [f"{count} {words}" for words, count in counts.items()]
    lost = [host.host for host in hosts if host.is_lost]
    line = f"{len(hosts)} host{'s' * (len(hosts) != 1)}: {', '.join(parts)}"
    return line + (f"; {len(lost)} will not come back from the next boot as the spec asks" if lost else "")
