"""Lines of the kernel log that the one judge of lines knows, with what it says of them."""

from __future__ import annotations

import msgspec

from gpuprov.capabilities.health.log import span
from gpuprov.capabilities.health.past import moment
from gpuprov.catalog.verdicts import Verdict, fix_of, in_health, judge_line
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.kernel.kernel_log import KERNEL_LOG

MOST = 60
"""Maximum number of kinds of lines on a page: the latest."""
STATES = {"unfit": "fail", "reported": "unproven", "unknown": "error", "recovered": "right"}
"""Colours of the page, by what the judge makes of a line."""
LETTERS = {"unfit": "!", "reported": "i", "unknown": "?", "recovered": "✓"}


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of one kind about one device. `first`, `last`: times; `text`: the last line; `health`: which check counts it, and how;
    `fix`: what is to be done."""

    state: str
    letter: str
    standing: str
    first: str
    last: str
    times: int
    device: str
    text: str
    health: str
    fix: str


def list_lines(facts: Facts) -> tuple[list[Judged], str]:
    """List the judged lines, the latest first; and the time from which the log was read, or why it was not."""
    try:
        log = facts.get(KERNEL_LOG)
    except ProbeFailed as error:
        return [], str(error)
    if not log.source:
        return [], "neither the journal nor dmesg says anything"
    alike: dict[tuple[str, str, int, str], tuple[Verdict, float, float, int, str]] = {}
    for line in log.lines:
        if (verdict := judge_line(line.text)) is None:
            continue
        key = verdict.key, verdict.device, verdict.number, verdict.action
        _, first, _, times, _ = alike.get(key, (verdict, line.at, line.at, 0, ""))
        alike[key] = verdict, first, line.at, times + line.times, line.text
    latest = sorted(alike.values(), key=lambda found: -found[2])
    rows = [
        Judged(
            state=STATES[verdict.standing],
            letter=LETTERS[verdict.standing],
            standing=verdict.standing,
            first=moment(first),
            last=moment(last),
            times=times,
            device=verdict.device,
            text=text,
            health="" if verdict.standing == "recovered" else in_health(verdict),
            fix="" if verdict.standing == "recovered" else fix_of(verdict),
        )
        for verdict, first, last, times, text in latest[:MOST]
    ]
    more = f"; {len(latest) - MOST} earlier kinds are left out" if len(latest) > MOST else ""
    part = ", NVIDIA's lines alone" if log.searched else ""
    return rows, f"read from {log.source}{part}, {span(log)}{more}"
