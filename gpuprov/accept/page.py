"""An acceptance as one HTML page: the verdict, a sentence for whatever stands out, the heat maps, each test, every figure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from gpuprov.accept.maps import SAMPLES, Cell, Level, Map, figure, maps, words
from gpuprov.accept.model import ORDER, Finding, Outcome, Status
from gpuprov.accept.outliers import Outlier, outliers
from gpuprov.accept.picture import is_sparse
from gpuprov.inventory.names import folded as names
from gpuprov.report import page as common
from gpuprov.report.page import About, Headline, State

STATES: dict[Status, State] = {
    "unreachable": "gone",
    "fail": "fail",
    "error": "error",
    "skip": "unproven",
    "pass": "right",
}
LETTERS: dict[Status, str] = {"unreachable": "U", "fail": "F", "error": "E", "skip": "?", "pass": "\u2713"}
TITLES: dict[Status, str] = {
    "unreachable": "unreachable",
    "fail": "missed",
    "error": "no figure",
    "skip": "not tested",
    "pass": "not missed, but worse than the others",
}
SPOKEN: dict[Level, str] = {
    "met": "as wanted",
    "slow": "worse than the others",
    "missed": "missed",
    "far": "missed by much",
    "none": "no figure",
    "skipped": "not tested",
}
WORST: tuple[Level, ...] = ("far", "missed", "none", "slow", "skipped", "met")
"""How a list of pairs is ordered; within one level the order is that of the hosts."""
MOST = 400
"""Figures of a test that are listed; a map has those of its cells."""


class Square(NamedTuple):
    """A cell as the template shows it. `number`: its place in the data of the scripts; -1 where there is nothing to tell."""

    kind: str
    shown: str
    label: str
    number: int


class Drawn(NamedTuple):
    """A map as the template shows it: rows of a table, or a list of pairs."""

    title: str
    corner: str
    hosts: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Square, ...]], ...]
    pairs: tuple[tuple[str, Square], ...]
    legend: tuple[tuple[str, str, str], ...]


class Figures(NamedTuple):
    """A test in a line, and its figures."""

    test: str
    figures: int
    least: str
    median: str
    most: str
    unit: str
    wanted: str
    rows: tuple[Finding, ...]
    more: int


def page(outcome: Outcome, about: About | None = None) -> str:
    """The page. The same outcome gives the same text."""
    cells: list[list[Any]] = []
    tried = [one for one in maps(outcome) if any(cell.status != "skip" for cell in one.cells.values())]
    drawn = tuple(_drawn(one, cells) for one in tried)
    found = outliers(outcome)
    skipped: dict[tuple[str, str], list[str]] = {}
    for one in outcome.findings:
        if one.status == "skip":
            why = one.found.rpartition(": ")[2] if one.measurement and one.measurement.peer else one.found
            test = one.measurement.test if one.measurement else one.check.removeprefix("acceptance.")
            skipped.setdefault((test, why), []).append(one.host)
    return common.render(
        "accept.html.j2",
        title="gpuprov accept",
        headline=headline(outcome, found),
        about=about,
        data={"cells": cells},
        styles=("accept.css",),
        scripts=("accept.js",),
        outcome=outcome,
        outliers=[(one, _limit(one)) for one in found],
        maps=drawn,
        tests=_tests(outcome),
        skipped=[(test, why, names(dict.fromkeys(hosts))) for (test, why), hosts in skipped.items()],
        states=STATES,
        letters=LETTERS,
        titles=TITLES,
    )


def headline(outcome: Outcome, found: Sequence[Outlier]) -> Headline:
    """Whether the fleet performs, as a sentence; what was measured, and what was not."""
    counted = outcome.counted
    told: dict[Status, str] = {"pass": "as wanted", "fail": "missed", "error": "without a figure", "skip": "not tested"}
    parts = [f"{counted[status]:,} {word}" for status, word in told.items() if counted[status]]
    more = f"Of {sum(counted[status] for status in told):,} results: {', '.join(parts)}." if parts else ""
    many = len(outcome.hosts)
    everyone = f"All {many:,} hosts" if many > 1 else (outcome.hosts or ("The host",))[0]
    bad = dict.fromkeys(one.host for one in outcome.findings if one.status in ("fail", "error", "unreachable"))
    worst: Status = next((status for status in ORDER if counted[status]), "skip")
    if outcome.interrupted:
        return Headline(state="error", sentence="Interrupted: not accepted", more=more)
    if bad:
        blamed = "; ".join(_blamed(found, many))
        return Headline(state=STATES[worst], sentence=f"Not accepted: {blamed}", more=more)
    if not counted["pass"]:
        return Headline(state="unproven", sentence="Nothing was measured", more=more)
    verb = "are" if many > 1 else "is"
    if counted["skip"]:
        tests = f"{counted['skip']:,} test{'s were' if counted['skip'] > 1 else ' was'} not run"
        return Headline(state="part", sentence=f"{everyone} {verb} accepted, but {tests}", more=more)
    return Headline(state="right", sentence=f"{everyone} {verb} accepted", more=more)


def _blamed(found: Sequence[Outlier], many: int) -> Iterable[str]:
    """Who is to blame for what, each host once, for the worst that is said of it."""
    named: set[str] = set()
    for status, verb in (("unreachable", "could not be reached"), ("fail", ""), ("error", "gave no figure")):
        blamed = {name for one in found if one.status == status for name in one.hosts} - named
        named |= blamed
        if blamed:
            who = (
                names(sorted(blamed)) if len(blamed) <= 3 < many or many == 1 else f"{len(blamed):,} of {many:,} hosts"
            )
            yield f"{who} {verb or ('stands out' if len(blamed) == 1 else 'stand out')}"


def _limit(outlier: Outlier) -> str:
    return f"--limit {shlex.quote(names(outlier.hosts).replace(', ', ','))}"


def _drawn(chart: Map, cells: list[list[Any]]) -> Drawn:
    legend = tuple((level, SAMPLES[level], told) for level, told in chart.legend())
    corner = "" if chart.less else "sends \u2193 receives \u2192"
    if is_sparse(chart):
        joint = "with" if chart.less else "to"
        worst_first = sorted(chart.cells.items(), key=lambda found: WORST.index(chart.level(found[1])))
        pairs = tuple((f"{a} {joint} {b}", _square(chart, (a, b), cell, cells)) for (a, b), cell in worst_first)
        return Drawn(chart.title, corner, chart.hosts, (), pairs, legend)
    rows = tuple(
        (name, tuple(_square(chart, (name, other), chart.cells.get((name, other)), cells) for other in chart.hosts))
        for name in chart.hosts
    )
    return Drawn(chart.title, corner, chart.hosts, rows, (), legend)


def _square(chart: Map, pair: tuple[str, str], cell: Cell | None, cells: list[list[Any]]) -> Square:
    if cell is None:
        same = pair[0] == pair[1]
        return Square("same" if same else "untested", "" if same else "-", "" if same else "not tested", -1)
    level = chart.level(cell)
    way = f"{pair[0]} {'with' if chart.less else 'to'} {pair[1]}"
    shown = words(cell, level)
    value = f"{figure(cell.value)} {chart.unit}" if cell.value is not None else SPOKEN[level]
    label = f"{way}: {value}" + (f", {SPOKEN[level]}" if cell.value is not None else "")
    cells.append([label, [_told(finding) for finding in _worth_telling(cell)]])
    return Square(level, shown, label, len(cells) - 1)


def _worth_telling(cell: Cell) -> Sequence[Finding]:
    """All that is not as wanted; of a good pair, the worst rail."""
    bad = [one for one in cell.findings if one.status != "pass"]
    good = (one for one in cell.findings if one.measurement and one.measurement.value == cell.value)
    return bad or list(good)[:1] or cell.findings[:1]


def _told(finding: Finding) -> list[str]:
    wanted = finding.wanted if finding.status != "skip" else ""
    return [
        STATES[finding.status],
        LETTERS[finding.status],
        f"{finding.host} {finding.found}",
        wanted,
        finding.evidence,
        finding.hint,
    ]


def _tests(outcome: Outcome) -> list[Figures]:
    """Each test that has figures: how many, the least, the median, the most, and the figures, the worst verdict first."""
    found: dict[str, list[Finding]] = {}
    for one in outcome.findings:
        if one.measurement and one.status != "skip":
            found.setdefault(one.measurement.test, []).append(one)
    told = []
    for test, rows in found.items():
        unit = next((one.measurement.unit for one in rows if one.measurement and one.measurement.unit), "")
        values = [
            one.measurement.value
            for one in rows
            if one.measurement and one.measurement.unit and not one.measurement.problem
        ]
        wanted = dict.fromkeys(one.wanted for one in rows if one.wanted and one.status != "error")
        shown = sorted(rows, key=lambda one: ORDER.index(one.status))
        told.append(
            Figures(
                test,
                len(values),
                *_spread(values),
                unit,
                next(iter(wanted)) if len(wanted) == 1 else f"{len(wanted)} different thresholds" if wanted else "",
                tuple(shown[:MOST]),
                max(len(rows) - MOST, 0),
            )
        )
    return told


def _spread(values: Sequence[float]) -> tuple[str, str, str]:
    """The least, the median and the most."""
    return (figure(min(values)), figure(median(values)), figure(max(values))) if values else ("", "", "")
