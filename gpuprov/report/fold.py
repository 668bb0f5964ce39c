"""Many hosts in few words: `gpu[001-032]`, identical findings once, hosts with equal outcomes in one line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from gpuprov.verify.evaluate import Result, ResultStatus
from gpuprov.verify.verify import NextBoot, next_boot

ORDER: tuple[ResultStatus, ...] = ("unreachable", "fail", "error", "skip", "pass")
"""The statuses that count, the worst first. What asks nothing of a host (n/a) is not among them."""
EVERY: tuple[ResultStatus, ...] = (*ORDER, "n/a")
WORDS = {"unreachable": "unreachable", "fail": "failed", "error": "errors", "skip": "skipped", "pass": "passed"}


class Finding(msgspec.Struct, frozen=True):
    """One result, and every host that has exactly it."""

    result: Result
    hosts: tuple[str, ...]

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
        told = [f"{self.counts[status]} {WORDS[status]}" for status in ORDER if self.counts.get(status)]
        return ", ".join(told) or "nothing to verify"


def findings(results: Iterable[Result], statuses: Sequence[ResultStatus] = ORDER) -> list[Finding]:
    """Equal results of many hosts once; the worst first, else in the order given.

    How to see that a host is unreachable differs from host to host, and is told of the first one.
    """
    hosts: dict[Result, list[Result]] = {}
    for one in results:
        if one.status in statuses:
            same = msgspec.structs.replace(one, host="", changes=())
            key = msgspec.structs.replace(same, evidence="") if one.status == "unreachable" else same
            hosts.setdefault(key, []).append(one)
    merged = [
        Finding(msgspec.structs.replace(key, evidence=rows[0].evidence), tuple(dict.fromkeys(one.host for one in rows)))
        for key, rows in hosts.items()
    ]
    return sorted(merged, key=lambda one: EVERY.index(one.result.status))


def host_lines(results: Sequence[Result], *, fold: bool = True) -> list[HostLine]:
    """A line per host, or per set of hosts with the same outcome; in the order given."""
    counts: dict[str, Counter[str]] = {}
    for one in results:
        counted = counts.setdefault(one.host, Counter())
        if one.status in ORDER:
            counted[one.status] += 1
    verdicts = next_boot(results)
    lines: dict[object, HostLine] = {}
    for host, counted in counts.items():
        key = (tuple(sorted(counted.items())), verdicts[host]) if fold else host
        before = lines[key].hosts if key in lines else ()
        lines[key] = HostLine((*before, host), dict(counted), verdicts[host])
    return list(lines.values())


def totals(results: Iterable[Result]) -> dict[ResultStatus, int]:
    """How many results of each status."""
    counted = Counter(one.status for one in results)
    return {status: counted[status] for status in ORDER}


def names(hosts: Iterable[str]) -> str:
    """`gpu001, gpu002, gpu003, login` as `gpu[001-003], login`. The last number in a name is the one that counts."""
    plain: dict[str, None] = {}
    ranges: dict[tuple[str, int, str], list[int]] = {}
    for host in hosts:
        match = re.fullmatch(r"(.*?)(\d+)(\D*)", host)
        if match and not re.fullmatch(r"[\d.:a-f]+", host):
            key = (match[1], len(match[2]) if match[2].startswith("0") else 0, match[3])
            ranges.setdefault(key, []).append(int(match[2]))
        else:
            plain[host] = None
    # 099 and 100 are one range: a number without leading zeros joins a padded range of its own width.
    for (head, width, tail), numbers in list(ranges.items()):
        if width:
            loose = ranges.get((head, 0, tail), [])
            fitting = [number for number in loose if len(str(number)) == width]
            numbers += fitting
            ranges[head, 0, tail] = [number for number in loose if number not in set(fitting)]
    folded = [_range(head, width, tail, numbers) for (head, width, tail), numbers in ranges.items() if numbers]
    return ", ".join([*folded, *plain])


def brief(hosts: Iterable[str], room: int = 160) -> str:
    """The names, cut at a comma where they are longer than `room`."""
    text = names(hosts)
    if len(text) <= room:
        return text
    head = text[: room + 1].rpartition(",")[0] or text[:room]
    return f"{head},...]" if head.count("[") > head.count("]") else f"{head}, ..."


def _range(head: str, width: int, tail: str, numbers: list[int]) -> str:
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = ",".join(f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in spans)
    return f"{head}{shown}{tail}" if len(numbers) == 1 else f"{head}[{shown}]{tail}"
