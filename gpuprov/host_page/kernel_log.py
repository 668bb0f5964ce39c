"""Lines of the kernel log that the one judge of lines knows, with what it says of them."""

from typing import NamedTuple

import msgspec

from gpuprov.capabilities.health.log import span
from gpuprov.capabilities.health.nics import judge_nic_lines
from gpuprov.capabilities.health.past import find_endings, moment
from gpuprov.catalog.verdicts import Verdict, fix_of, in_health, judge_line
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.kernel.kernel_log import KERNEL_LOG, KernelLog, Line

# Maximum number of kinds of lines on a page: the latest.
MOST = 60
# Colours of the page, by what the judge makes of a line.
STATES = {"unfit": "fail", "reported": "unproven", "unknown": "error", "recovered": "right", "past": "right"}
LETTERS = {"unfit": "!", "reported": "i", "unknown": "?", "recovered": "✓", "past": "✓"}


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of one kind about one device."""

    state: str
    letter: str
    # The judge's, or past.
    standing: str
    # `first`, `last`: times.
    first: str
    last: str
    times: int
    device: str
    # The last line.
    text: str
    # Which check counts it, and how.
    health: str
    # What is to be done.
    fix: str


def list_lines(facts: Facts) -> tuple[list[Judged], str]:
    """List the judged lines, the latest first; and the time from which the log was read, or why it was not."""
    try:
        log = facts.get(KERNEL_LOG)
    except ProbeFailed as error:
        return [], str(error)
    if not log.source:
        return [], "neither the journal nor dmesg says anything"
    rows = list_kinds(log)
    more = f"; {len(rows) - MOST} earlier kinds are left out" if len(rows) > MOST else ""
    part = ", NVIDIA's lines alone" if log.searched else ""
    return rows[:MOST], f"read from {log.source}{part}, {span(log)}{more}"


class _Kind(NamedTuple):
    verdict: Verdict
    lines: tuple[Line, ...]
    decided: bool
    past: str


def list_kinds(log: KernelLog) -> list[Judged]:
    """List the lines by kind and device, those that something has ended apart from the others; the latest first."""
    alike: dict[tuple[str, str, int, str, bool, bool], _Kind] = {}
    endings, nics = find_endings(log), {line for finding in judge_nic_lines(log).past for line in finding.lines}
    for place, line in enumerate(log.lines):
        if (verdict := judge_line(line.text)) is None:
            continue
        past = str(endings.find(place) or ("it recovered, or the host booted, since" if line in nics else ""))
        decided = endings.is_decided(place)
        key = verdict.key, verdict.device, verdict.number, verdict.action, decided, bool(past)
        before = alike[key].lines if key in alike else ()
        alike[key] = _Kind(verdict, (*before, line), decided, past)
    return [_describe(kind) for kind in sorted(alike.values(), key=lambda kind: -kind.lines[-1].at)]


def _describe(kind: _Kind) -> Judged:
    verdict, standing = kind.verdict, "past" if kind.past else kind.verdict.standing
    ended = standing in ("past", "recovered")
    health = in_health(verdict, decided=kind.decided, past=kind.past)
    return Judged(
        state=STATES[standing],
        letter=LETTERS[standing],
        standing=standing,
        first=moment(kind.lines[0].at),
        last=moment(kind.lines[-1].at),
        times=sum(line.times for line in kind.lines),
        device=verdict.device,
        text=kind.lines[-1].text,
        health="" if standing == "recovered" else health,
        fix="" if ended or kind.decided else fix_of(verdict),
    )
