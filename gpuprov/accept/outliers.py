"""Outliers of an acceptance, a sentence each: a host that is slow with all others, one slow path, a GPU below its
threshold."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

import msgspec

from gpuprov.accept.maps import MUCH, Cell, Level, Map, format_figure, maps
from gpuprov.accept.model import ORDER, Finding, Outcome, Status
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.acceptance import Measurement
from gpuprov.inventory.names import fold_names as names

# Levels that stand out, the worst first.
BAD: tuple[Level, ...] = ("far", "none", "missed", "slow")
# The part of a host's pairs from which this host, rather than its peers, is the outlier.
MOST_OF = 0.75
STATUS: dict[Level, Status] = {"far": "fail", "missed": "fail", "none": "error", "slow": "pass"}
Pair = tuple[str, str]


class Outlier(msgspec.Struct, frozen=True, kw_only=True):
    """One outlier. `status` pass: not missed, but much worse than the others. `test`: empty if it belongs to none."""

    status: Status
    sentence: str
    hosts: tuple[str, ...]
    test: str = ""
    wanted: str = ""
    evidence: str = ""
    fix: str = ""


def find_outliers(outcome: Outcome) -> list[Outlier]:
    """Find all outliers, the worst first. Every finding that fails is in one of them."""
    drawn = maps(outcome)
    shown = {id(finding) for of in drawn for cell in of.cells.values() for finding in cell.findings}
    result = [outlier for of in drawn for outlier in _find_in_map(of)]
    result += _find_in_hosts([finding for finding in outcome.findings if id(finding) not in shown])
    return sorted(result, key=lambda outlier: ORDER.index(outlier.status))


def _find_in_map(chart: Map) -> Iterator[Outlier]:
    levels = {pair: chart.level(cell) for pair, cell in chart.cells.items()}
    left = {pair: level for pair, level in levels.items() if level in BAD}
    if len(levels) > 2 and all(level in ("far", "missed", "none") for level in levels.values()):
        yield _describe_outlier(chart, "no pair of hosts meets its threshold", tuple(left), levels, chart.hosts)
        return
    while left:
        worst = max(
            (_explain_by_host(chart, name, levels, left) for name in chart.hosts), key=lambda host: len(host.pairs)
        )
        if len(worst.peers) < 2:
            break
        yield _describe_outlier(
            chart,
            f"{worst.name} {worst.doing} {_count_peers(len(worst.peers), worst.met)}",
            worst.pairs,
            levels,
            (worst.name,),
        )
        left = {pair: level for pair, level in left.items() if pair not in worst.pairs}
    place = {name: number for number, name in enumerate(chart.hosts)}
    while left:
        pair = min(left, key=lambda pair: (place[pair[0]], place[pair[1]]))
        back = (pair[1], pair[0])
        both = back in left
        pairs = (pair, back) if both and not chart.less else (pair,)
        way = "with" if chart.less else "to and from" if both else "to"
        then = (
            "" if chart.less or both or back not in chart.cells else f"; back: {_format_cell(chart, chart.cells[back])}"
        )
        yield _describe_outlier(chart, f"{pair[0]} {way} {pair[1]}", pairs, levels, pair, then)
        left = {other: level for other, level in left.items() if other not in {pair, back if both else pair}}


class _Host(msgspec.Struct, frozen=True):
    """A host, a text for what it does badly, and the pairs that this explains."""

    name: str
    doing: str = ""
    pairs: tuple[Pair, ...] = ()
    peers: frozenset[str] = frozenset()
    met: int = 0


def _explain_by_host(chart: Map, name: str, levels: dict[Pair, Level], left: dict[Pair, Level]) -> _Host:
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


def _count_peers(count: int, of: int) -> str:
    if count < of:
        return f"{count} of the {of} hosts that it was tested with"
    return f"{'both' if count == 2 else f'all {count}'} hosts that it was tested with"


def _describe_outlier(
    chart: Map, who: str, pairs: Sequence[Pair], levels: dict[Pair, Level], hosts: Sequence[str], then: str = ""
) -> Outlier:
    worst = min((levels[pair] for pair in pairs), key=BAD.index)
    cells = [chart.cells[pair] for pair in pairs]
    values = [cell.value for cell in cells if cell.value is not None]
    every = [finding for cell in cells for finding in cell.findings]
    first = next((finding for finding in every if finding.status == STATUS[worst]), every[0] if every else None)
    if not values:
        reason = first.found if first else cells[0].text
        return _make_outlier(chart.test, "error", f"{who}: no figure: {reason}", hosts, first)
    unit, shown = chart.unit, f"{format_figure(median(values))} {chart.unit}"
    shown = f"{shown} at the median" if len(values) > 1 else shown
    less = len(cells) - len(values)
    shown += f" ({less} of {len(cells)} without a figure)" if less else ""
    threshold = next((cell.threshold for cell in cells if cell.threshold), chart.threshold)
    part = f"{chart.worse(median(values), threshold or chart.median):.0%}".replace("%", " %")
    if worst == "slow":
        held = "not missed" if threshold else "no threshold is known"
        part = f"{chart.worse(median(values), chart.median):.0%}".replace("%", " %")
        sentence = (
            f"{who}: {shown}; {held}, but {part} worse than the median of all, {format_figure(chart.median)} "
            f"{unit}{then}"
        )
    elif threshold:
        bound = f"{'at most' if chart.less else 'at least'} {format_figure(threshold)} {unit}"
        others = (
            f"; the median of those that meet it is {format_figure(chart.median)} {unit}" if _has_any_met(chart) else ""
        )
        sentence = f"{who}: {shown}, {part} {'over' if chart.less else 'under'} what is wanted, {bound}{then or others}"
    else:
        sentence = f"{who}: {shown}{then}"
    return _make_outlier(chart.test, STATUS[worst], sentence, hosts, first)


def _has_any_met(chart: Map) -> bool:
    return any(chart.level(cell) == "met" for cell in chart.cells.values())


def _format_cell(chart: Map, cell: Cell) -> str:
    return "no figure" if cell.value is None else f"{format_figure(cell.value)} {chart.unit}".strip()


def _make_outlier(test: str, status: Status, sentence: str, hosts: Iterable[str], first: Finding | None) -> Outlier:
    return Outlier(
        status=status,
        sentence=sentence,
        hosts=tuple(dict.fromkeys(hosts)),
        test=test,
        wanted=first.expected if first and status != "pass" else "",
        evidence=first.evidence if first else "",
        fix=(first.fix if first else "") or "gpuprov topology HOST shows links that are wired or trained differently",
    )


def _find_in_hosts(findings: Sequence[Finding]) -> Iterator[Outlier]:
    """Yield outliers of tests within a host, and hosts that were left out; equal ones once."""
    bad = [finding for finding in findings if finding.status in ("fail", "error", "unreachable")]
    for group in _group(
        bad,
        lambda finding: (finding.check, finding.status, finding.expected, "" if finding.figure else finding.found),
    ).values():
        first = group[0]
        hosts = tuple(dict.fromkeys(finding.host for finding in group))
        values = [finding.figure for finding in group if finding.figure]
        text = first.found
        if len(group) > 1 and values and first.measurement:
            spread = dict.fromkeys(format_figure(value) for value in (min(values), max(values)))
            text = f"{' to '.join(spread)} {first.unit}"
        test = first.check.removeprefix("acceptance.")
        expected = f"; wanted: {first.expected}" if first.status == "fail" and first.expected else ""
        without = "no figure: " if first.status == "error" else ""
        sentence = f"{names(hosts)}: {without}{text}{expected}"
        yield _make_outlier(test if first.measurement else "", first.status, sentence, hosts, first)
    yield from _find_slower([finding for finding in findings if finding.status == "pass" and finding.figure])


def _find_slower(findings: Sequence[Finding]) -> Iterator[Outlier]:
    """Yield hosts that passed, and are much worse than the others with the same GPUs."""
    for group in _group(findings, lambda finding: (finding.check, *_make_comparison_key(finding.measurement))).values():
        values = [finding.figure or 0.0 for finding in group]
        unit = group[0].unit
        usual = median(values)
        for finding, value in zip(group, values, strict=True):
            by = (value / usual - 1) * (1 if unit in ("us", "ns") else -1)
            if len(group) > 2 and by >= MUCH:
                test, part = finding.check.removeprefix("acceptance."), f"{by:.0%}".replace("%", " %")
                others = f"{part} worse than the median of {counted(len(group), 'host')}, {format_figure(usual)} {unit}"
                sentence = f"{finding.host}: {format_figure(value)} {unit}; not missed, but {others}"
                yield _make_outlier(test, "pass", sentence, (finding.host,), finding)


def _make_comparison_key(measurement: Measurement | None) -> tuple[object, ...]:
    """Key of figures that can be compared: they must have it in common."""
    return (measurement.model, measurement.gpus, measurement.size) if measurement else ()


def _group(findings: Iterable[Finding], key: Callable[[Finding], object]) -> dict[object, list[Finding]]:
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(key(finding), []).append(finding)
    return groups
