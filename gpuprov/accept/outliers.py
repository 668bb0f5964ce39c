"""What stands out of an acceptance, a sentence each: a host that is slow with all, one slow path, a GPU below what is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

import msgspec

from gpuprov.accept.maps import MUCH, Cell, Level, Map, figure, maps
from gpuprov.accept.model import ORDER, Finding, Outcome, Status
from gpuprov.inventory.names import folded as names
from gpuprov.probe.acceptance import Measurement
from gpuprov.shown import counted

BAD: tuple[Level, ...] = ("far", "none", "missed", "slow")
"""Levels that stand out, the worst first."""
MOST_OF = 0.75
"""The part of a host's pairs from which it, and not its peers, is the one that stands out."""
STATUS: dict[Level, Status] = {"far": "fail", "missed": "fail", "none": "error", "slow": "pass"}
Pair = tuple[str, str]


class Outlier(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that stands out. `status` pass: not missed, and much worse than the others. `test`: empty where it is of none."""

    status: Status
    sentence: str
    hosts: tuple[str, ...]
    test: str = ""
    wanted: str = ""
    evidence: str = ""
    hint: str = ""


def outliers(outcome: Outcome) -> list[Outlier]:
    """The worst first. Every finding that fails is in one of them."""
    drawn = maps(outcome)
    shown = {id(one) for of in drawn for cell in of.cells.values() for one in cell.findings}
    found = [one for of in drawn for one in _of_map(of)]
    found += _of_hosts([one for one in outcome.findings if id(one) not in shown])
    return sorted(found, key=lambda one: ORDER.index(one.status))


def _of_map(chart: Map) -> Iterator[Outlier]:
    levels = {pair: chart.level(cell) for pair, cell in chart.cells.items()}
    left = {pair: level for pair, level in levels.items() if level in BAD}
    if len(levels) > 2 and all(level in ("far", "missed", "none") for level in levels.values()):
        yield _told(chart, "no pair of hosts is as wanted", tuple(left), levels, chart.hosts)
        return
    while left:
        found = max((_of_host(chart, name, levels, left) for name in chart.hosts), key=lambda host: len(host.pairs))
        if len(found.peers) < 2:
            break
        yield _told(
            chart,
            f"{found.name} {found.doing} {_many(len(found.peers), found.met)}",
            found.pairs,
            levels,
            (found.name,),
        )
        left = {pair: level for pair, level in left.items() if pair not in found.pairs}
    place = {name: number for number, name in enumerate(chart.hosts)}
    while left:
        pair = min(left, key=lambda pair: (place[pair[0]], place[pair[1]]))
        back = (pair[1], pair[0])
        both = back in left
        pairs = (pair, back) if both and not chart.less else (pair,)
        way = "with" if chart.less else "to and from" if both else "to"
        then = "" if chart.less or both or back not in chart.cells else f"; back: {_figure(chart, chart.cells[back])}"
        yield _told(chart, f"{pair[0]} {way} {pair[1]}", pairs, levels, pair, then)
        left = {other: level for other, level in left.items() if other not in {pair, back if both else pair}}


class _Host(msgspec.Struct, frozen=True):
    """A host, what it does badly in words, and the pairs that this explains."""

    name: str
    doing: str = ""
    pairs: tuple[Pair, ...] = ()
    peers: frozenset[str] = frozenset()
    met: int = 0


def _of_host(chart: Map, name: str, levels: dict[Pair, Level], left: dict[Pair, Level]) -> _Host:
    ways: list[tuple[str, tuple[Pair, ...]]] = []
    met: set[str] = set()
    for way, place in (("sends", 0), ("receives", 1)):
        every = [pair for pair in levels if pair[place] == name and levels[pair] != "skipped"]
        bad = tuple(pair for pair in every if pair in left)
        if len(every) > 1 and len(bad) >= MOST_OF * len(every) and len(bad) > 1:
            ways.append((way, bad))
            met |= {pair[1 - place] for pair in every}
    pairs = tuple(pair for _, bad in ways for pair in bad)
    peers = frozenset(end for pair in pairs for end in pair if end != name)
    nothing = bool(pairs) and all(left[pair] == "none" for pair in pairs)
    doing = "gives no figure with" if nothing else "is slow with"
    if len(ways) == 1 and not chart.less:
        doing = f"{ways[0][0]} {'nothing' if nothing else 'slowly'} {'to' if ways[0][0] == 'sends' else 'from'}"
    return _Host(name, doing, pairs, peers, len(met))


def _many(count: int, of: int) -> str:
    if count < of:
        return f"{count} of the {of} hosts that it was tested with"
    return f"{'both' if count == 2 else f'all {count}'} hosts that it was tested with"


def _told(
    chart: Map, who: str, pairs: Sequence[Pair], levels: dict[Pair, Level], hosts: Sequence[str], then: str = ""
) -> Outlier:
    worst = min((levels[pair] for pair in pairs), key=BAD.index)
    cells = [chart.cells[pair] for pair in pairs]
    values = [cell.value for cell in cells if cell.value is not None]
    every = [finding for cell in cells for finding in cell.findings]
    first = next((finding for finding in every if finding.status == STATUS[worst]), every[0] if every else None)
    if not values:
        told = first.found if first else cells[0].told
        return _outlier(chart.test, "error", f"{who}: no figure: {told}", hosts, first)
    unit, shown = chart.unit, f"{figure(median(values))} {chart.unit}"
    shown = f"{shown} at the median" if len(values) > 1 else shown
    less = len(cells) - len(values)
    shown += f" ({less} of {len(cells)} without a figure)" if less else ""
    wanted = next((cell.wanted for cell in cells if cell.wanted), chart.threshold)
    part = f"{chart.worse(median(values), wanted or chart.median):.0%}".replace("%", " %")
    if worst == "slow":
        held = "not missed" if wanted else "no threshold is known"
        part = f"{chart.worse(median(values), chart.median):.0%}".replace("%", " %")
        sentence = (
            f"{who}: {shown}; {held}, but {part} worse than the median of all, {figure(chart.median)} {unit}{then}"
        )
    elif wanted:
        bound = f"{'at most' if chart.less else 'at least'} {figure(wanted)} {unit}"
        others = f"; the median of those as wanted is {figure(chart.median)} {unit}" if _any_met(chart) else ""
        sentence = f"{who}: {shown}, {part} {'over' if chart.less else 'under'} what is wanted, {bound}{then or others}"
    else:
        sentence = f"{who}: {shown}{then}"
    return _outlier(chart.test, STATUS[worst], sentence, hosts, first)


def _any_met(chart: Map) -> bool:
    return any(chart.level(cell) == "met" for cell in chart.cells.values())


def _figure(chart: Map, cell: Cell) -> str:
    return "no figure" if cell.value is None else f"{figure(cell.value)} {chart.unit}".strip()


def _outlier(test: str, status: Status, sentence: str, hosts: Iterable[str], first: Finding | None) -> Outlier:
    return Outlier(
        status=status,
        sentence=sentence,
        hosts=tuple(dict.fromkeys(hosts)),
        test=test,
        wanted=first.wanted if first and status != "pass" else "",
        evidence=first.evidence if first else "",
        hint=(first.hint if first else "") or "gpuprov topology HOST says what is wired, or trained, another way",
    )


def _of_hosts(found: Sequence[Finding]) -> Iterator[Outlier]:
    """Of tests within a host, and of hosts that were left out: equal ones once."""
    bad = [one for one in found if one.status in ("fail", "error", "unreachable")]
    for group in _alike(
        bad, lambda one: (one.check, one.status, one.wanted, "" if _value(one) else one.found)
    ).values():
        first = group[0]
        hosts = tuple(dict.fromkeys(one.host for one in group))
        values = [one.measurement.value for one in group if one.measurement and _value(one)]
        told = first.found
        if len(group) > 1 and values and first.measurement:
            spread = dict.fromkeys(figure(one) for one in (min(values), max(values)))
            told = f"{' to '.join(spread)} {first.measurement.unit}"
        test = first.check.removeprefix("acceptance.")
        wanted = f"; wanted: {first.wanted}" if first.status == "fail" and first.wanted else ""
        without = "no figure: " if first.status == "error" else ""
        sentence = f"{names(hosts)}: {without}{told}{wanted}"
        yield _outlier(test if first.measurement else "", first.status, sentence, hosts, first)
    yield from _slower([one for one in found if one.status == "pass" and _value(one)])


def _slower(found: Sequence[Finding]) -> Iterator[Outlier]:
    """Hosts that passed, and are much worse than the others with the same GPUs."""
    for group in _alike(found, lambda one: (one.check, *_same(one.measurement))).values():
        values = [one.measurement.value for one in group if one.measurement]
        unit = group[0].measurement.unit if group[0].measurement else ""
        usual = median(values)
        for one, value in zip(group, values, strict=True):
            by = (value / usual - 1) * (1 if unit in ("us", "ns") else -1)
            if len(group) > 2 and by >= MUCH:
                test, part = one.check.removeprefix("acceptance."), f"{by:.0%}".replace("%", " %")
                others = f"{part} worse than the median of {counted(len(group), 'host')}, {figure(usual)} {unit}"
                told = f"{one.host}: {figure(value)} {unit}; not missed, but {others}"
                yield _outlier(test, "pass", told, (one.host,), one)


def _same(measurement: Measurement | None) -> tuple[object, ...]:
    """What figures must have in common to be compared."""
    return (measurement.model, measurement.gpus, measurement.size) if measurement else ()


def _value(finding: Finding) -> bool:
    return bool(
        finding.measurement
        and finding.measurement.unit
        and not finding.measurement.problem
        and finding.measurement.value
    )


def _alike(found: Iterable[Finding], key: Callable[[Finding], object]) -> dict[object, list[Finding]]:
    groups: dict[object, list[Finding]] = {}
    for one in found:
        groups.setdefault(key(one), []).append(one)
    return groups
