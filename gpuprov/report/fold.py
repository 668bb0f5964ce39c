"""Many hosts in few words: `gpu[001:032]`, identical findings once, hosts with equal outcomes in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from gpuprov.inventory.names import folded as names
from gpuprov.report.many import Many
from gpuprov.verify.evaluate import FAILING, Result, ResultStatus
from gpuprov.verify.verify import NextBoot, Verdict, next_boot, verdict

ORDER: tuple[ResultStatus, ...] = ("unreachable", "fail", "error", "skip", "pass")
"""The statuses that count, the worst first. What asks nothing of a host (n/a) is not among them."""
EVERY: tuple[ResultStatus, ...] = (*ORDER, "n/a")
FOLLOW = "follow"
"""Where results are counted: those that only follow from another failure, which are not counted among the failures."""
WORDS = {
    "unreachable": "unreachable",
    "fail": "failed",
    "error": "in error",
    "skip": "skipped",
    "pass": "passed",
}


def that_follow(count: int) -> str:
    """`1 that follows`, `8 that follow`."""
    return f"{count:,} that follow{'s' * (count == 1)}"


class Finding(msgspec.Struct, frozen=True):
    """One result, every host that has exactly it, and what failed on them only because of it: each check once."""

    result: Result
    hosts: tuple[str, ...]
    followers: tuple[Result, ...] = ()

    @property
    def where(self) -> str:
        return names(self.hosts)


class HostLine(msgspec.Struct, frozen=True):
    """Hosts whose counts and next-boot verdict are equal."""

    hosts: tuple[str, ...]
    counts: dict[str, int]
    next_boot: NextBoot

    @property
    def where(self) -> str:
        return names(self.hosts)

    @property
    def worst(self) -> ResultStatus:
        return next((status for status in ORDER if self.counts.get(status)), "skip")

    @property
    def summary(self) -> str:
        if self.worst == "unreachable":
            return WORDS["unreachable"]
        told = [
            that_follow(self.counts[status]) if status == FOLLOW else f"{self.counts[status]:,} {WORDS[status]}"
            for status in (*ORDER[:3], FOLLOW, *ORDER[3:])
            if self.counts.get(status)
        ]
        return ", ".join(told) or "nothing to verify"


class Summed(msgspec.Struct, frozen=True):
    """All results in numbers. `bad`: hosts that are not as wanted; `counts`: without those that `follow` from another failure."""

    hosts: int
    bad: int
    counts: dict[ResultStatus, int]
    follow: int
    verdict: Verdict


def summed(results: Sequence[Result] | Many) -> Summed:
    """The numbers."""
    if isinstance(results, Many):
        return results.summed()
    return Summed(
        hosts=len({one.host for one in results}),
        bad=len({one.host for one in results if one.status in ("unreachable", "fail", "error")}),
        counts=totals(results),
        follow=sum(bool(one.follows) for one in results),
        verdict=verdict(results),
    )


def findings(results: Iterable[Result] | Many, statuses: Sequence[ResultStatus] = ORDER) -> list[Finding]:
    """Equal results of many hosts once; the worst first, then those of most hosts, else in the order given.

    What only follows from another failure stands with that one. How to see that a host is unreachable differs from host to host,
    and is told of the first one.
    """
    if isinstance(results, Many):
        return _worst_first(results.findings(statuses))
    hosts: dict[Result, list[Result]] = {}
    following: dict[tuple[str, str], list[Result]] = {}
    for one in results:
        if one.follows:
            following.setdefault((one.host, one.follows), []).append(one)
        elif one.status in statuses:
            same = msgspec.structs.replace(one, host="", changes=())
            key = msgspec.structs.replace(same, evidence="") if one.status == "unreachable" else same
            hosts.setdefault(key, []).append(one)
    merged = []
    for key, rows in hosts.items():
        followers: dict[str, Result] = {}
        for row in rows:
            for one in following.get((row.host, row.check), ()) if row.status in FAILING else ():
                followers.setdefault(one.check, one)
        first = msgspec.structs.replace(key, evidence=rows[0].evidence)
        merged.append(Finding(first, tuple(dict.fromkeys(one.host for one in rows)), tuple(followers.values())))
    return _worst_first(merged)


def _worst_first(found: Iterable[Finding]) -> list[Finding]:
    return sorted(found, key=lambda one: (EVERY.index(one.result.status), -len(one.hosts)))


def host_lines(results: Sequence[Result] | Many, *, fold: bool = True) -> list[HostLine]:
    """A line per host, or per set of hosts with the same outcome; in the order given."""
    if isinstance(results, Many):
        return results.lines(fold=fold)
    counts: dict[str, Counter[str]] = {}
    for one in results:
        counted = counts.setdefault(one.host, Counter())
        if one.follows:
            counted[FOLLOW] += 1
        elif one.status in ORDER:
            counted[one.status] += 1
    verdicts = next_boot(results)
    lines: dict[object, HostLine] = {}
    for host, counted in counts.items():
        key = (tuple(sorted(counted.items())), verdicts[host]) if fold else host
        before = lines[key].hosts if key in lines else ()
        lines[key] = HostLine((*before, host), dict(counted), verdicts[host])
    return list(lines.values())


def totals(results: Iterable[Result]) -> dict[ResultStatus, int]:
    """How many results of each status, without those that only follow from another failure."""
    counted = Counter(one.status for one in results if not one.follows)
    return {status: counted[status] for status in ORDER}


def brief(hosts: Iterable[str], room: int = 160) -> str:
    """The names, cut at a comma where they are longer than `room`."""
    text = names(hosts)
    return text if len(text) <= room else f"{text[: room + 1].rpartition(',')[0] or text[:room]}, ..."
