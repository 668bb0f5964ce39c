"""An acceptance as one HTML page: the verdict, a sentence for each outlier, the heat maps, each test, every figure."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from gpuprov.accept.maps import SAMPLES, Cell, Level, Map, format_cell, format_figure, maps
from gpuprov.accept.model import ORDER, Finding, Outcome, Status
from gpuprov.accept.outliers import Outlier, find_outliers
from gpuprov.accept.picture import is_sparse
from gpuprov.inventory.names import fold_names as names
from gpuprov.report import page as common
from gpuprov.report.html import STATES, limit
from gpuprov.report.page import About, Headline
from gpuprov.report.states import LETTERS as MARKS

LETTERS = {status: MARKS[state] for status, state in STATES.items()}
TITLES: dict[Status, str] = {
    "unreachable": "unreachable",
    "fail": "missed",
    "error": "no figure",
    "skip": "not tested",
    "pass": "not missed, but worse than the others",
}
SPOKEN: dict[Level, str] = {
    "met": "met",
    "slow": "worse than the others",
    "missed": "missed",
    "far": "missed by much",
    "none": "no figure",
    "skipped": "not tested",
}
# Order of a list of pairs; within one level the order is that of the hosts.
WORST: tuple[Level, ...] = ("far", "missed", "none", "slow", "skipped", "met")
# Figures of a test that are listed; a map has those of its cells.
MOST = 400


class Square(NamedTuple):
    """A cell as the template shows it."""

    kind: str
    shown: str
    label: str
    # Its place in the data of the scripts; -1 if it has no details.
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
    expected: str
    rows: tuple[Finding, ...]
    more: int


def page(outcome: Outcome, about: About | None = None) -> str:
    """Render the page. The same outcome gives the same text."""
    cells: list[list[Any]] = []
    tried = [chart for chart in maps(outcome) if any(cell.status != "skip" for cell in chart.cells.values())]
    drawn = tuple(_draw_map(chart, cells) for chart in tried)
    outliers = find_outliers(outcome)
    return common.render(
        "accept.html.j2",
        title="gpuprov accept",
        headline=make_headline(outcome, outliers),
        about=about,
        data={"cells": cells},
        styles=("accept.css",),
        scripts=("accept.js",),
        outcome=outcome,
        outliers=[(outlier, limit(outlier.hosts)) for outlier in outliers],
        maps=drawn,
        tests=list_tests(outcome),
        skipped=[(test.removeprefix("acceptance."), why, hosts) for test, why, hosts in list_skipped(outcome)],
        states=STATES,
        letters=LETTERS,
        titles=TITLES,
    )


def make_headline(outcome: Outcome, outliers: Sequence[Outlier]) -> Headline:
    """Summarize in a sentence whether the fleet performs; add the counts of what was measured and what was not."""
    counted = outcome.counted
    labels: dict[Status, str] = {"pass": "met", "fail": "missed", "error": "without a figure", "skip": "not tested"}
    parts = [f"{counted[status]:,} {word}" for status, word in labels.items() if counted[status]]
    more = f"Of {sum(counted[status] for status in labels):,} results: {', '.join(parts)}." if parts else ""
    many = len(outcome.hosts)
    everyone = f"All {many:,} hosts" if many > 1 else (outcome.hosts or ("The host",))[0]
    bad = dict.fromkeys(
        finding.host for finding in outcome.findings if finding.status in ("fail", "error", "unreachable")
    )
    worst: Status = next((status for status in ORDER if counted[status]), "skip")
    if outcome.interrupted:
        return Headline(state="error", sentence="Interrupted: not accepted", more=more)
    if bad:
        blamed = "; ".join(_name_blamed(outliers, many))
        return Headline(state=STATES[worst], sentence=f"Not accepted: {blamed}", more=more)
    if not counted["pass"]:
        return Headline(state="unproven", sentence="Nothing was measured", more=more)
    verb = "are" if many > 1 else "is"
    if counted["skip"]:
        tests = f"{counted['skip']:,} test{'s were' if counted['skip'] > 1 else ' was'} not run"
        return Headline(state="part", sentence=f"{everyone} {verb} accepted, but {tests}", more=more)
    return Headline(state="right", sentence=f"{everyone} {verb} accepted", more=more)


def _name_blamed(outliers: Sequence[Outlier], many: int) -> Iterable[str]:
    """Name the hosts that are to blame, each once, for the worst of their findings."""
    named: set[str] = set()
    for status, verb in (("unreachable", "could not be reached"), ("fail", ""), ("error", "gave no figure")):
        blamed = {name for outlier in outliers if outlier.status == status for name in outlier.hosts} - named
        named |= blamed
        if blamed:
            who = (
                names(sorted(blamed)) if len(blamed) <= 3 < many or many == 1 else f"{len(blamed):,} of {many:,} hosts"
            )
            yield f"{who} {verb or ('stands out' if len(blamed) == 1 else 'stand out')}"


def _draw_map(chart: Map, cells: list[list[Any]]) -> Drawn:
    legend = tuple((level, SAMPLES[level], text) for level, text in chart.legend())
    corner = "" if chart.less else "sends \u2193 receives \u2192"
    if is_sparse(chart):
        joint = "with" if chart.less else "to"
        worst_first = sorted(chart.cells.items(), key=lambda item: WORST.index(chart.level(item[1])))
        pairs = tuple((f"{a} {joint} {b}", _make_square(chart, (a, b), cell, cells)) for (a, b), cell in worst_first)
        return Drawn(chart.title, corner, chart.hosts, (), pairs, legend)
    rows = tuple(
        (
            name,
            tuple(_make_square(chart, (name, other), chart.cells.get((name, other)), cells) for other in chart.hosts),
        )
        for name in chart.hosts
    )
    return Drawn(chart.title, corner, chart.hosts, rows, (), legend)


def _make_square(chart: Map, pair: tuple[str, str], cell: Cell | None, cells: list[list[Any]]) -> Square:
    if cell is None:
        same = pair[0] == pair[1]
        return Square("same" if same else "untested", "" if same else "-", "" if same else "not tested", -1)
    level = chart.level(cell)
    way = f"{pair[0]} {'with' if chart.less else 'to'} {pair[1]}"
    shown = format_cell(cell, level)
    value = f"{format_figure(cell.value)} {chart.unit}" if cell.value is not None else SPOKEN[level]
    label = f"{way}: {value}" + (f", {SPOKEN[level]}" if cell.value is not None else "")
    cells.append([label, [_make_detail_row(finding) for finding in _select_details(cell)]])
    return Square(level, shown, label, len(cells) - 1)


def _select_details(cell: Cell) -> Sequence[Finding]:
    """Select all findings that differ from the spec; of a good pair, the worst rail."""
    bad = [finding for finding in cell.findings if finding.status != "pass"]
    good = (finding for finding in cell.findings if finding.measurement and finding.measurement.value == cell.value)
    return bad or list(good)[:1] or cell.findings[:1]


def _make_detail_row(finding: Finding) -> list[str]:
    expected = finding.expected if finding.status != "skip" else ""
    return [
        STATES[finding.status],
        LETTERS[finding.status],
        f"{finding.host} {finding.found}",
        expected,
        finding.evidence,
        finding.fix,
    ]


def list_skipped(outcome: Outcome) -> list[tuple[str, str, str]]:
    """List the checks that were not made, why, and on which hosts."""
    skipped: dict[tuple[str, str], list[str]] = {}
    for finding in outcome.findings:
        if finding.status == "skip":
            measured = finding.measurement
            why = finding.found.rpartition(": ")[2] if measured and measured.peer else finding.found
            check = f"acceptance.{measured.test}" if measured else finding.check
            skipped.setdefault((check, why), []).append(finding.host)
    return [(check, why, names(dict.fromkeys(hosts))) for (check, why), hosts in skipped.items()]


def list_tests(outcome: Outcome) -> list[Figures]:
    """List each test that has figures: their number, least, median and most, and the figures, the worst verdict
    first."""
    by_test: dict[str, list[Finding]] = {}
    for finding in outcome.findings:
        if finding.measurement and finding.status != "skip":
            by_test.setdefault(finding.measurement.test, []).append(finding)
    tests = []
    for test, rows in by_test.items():
        unit = next((finding.unit for finding in rows if finding.unit), "")
        values = [finding.figure for finding in rows if finding.figure is not None]
        thresholds = dict.fromkeys(
            finding.expected for finding in rows if finding.expected and finding.status != "error"
        )
        shown = sorted(rows, key=lambda finding: ORDER.index(finding.status))
        tests.append(
            Figures(
                test,
                len(values),
                *_format_spread(values),
                unit,
                next(iter(thresholds))
                if len(thresholds) == 1
                else f"{len(thresholds)} different thresholds"
                if thresholds
                else "",
                tuple(shown[:MOST]),
                max(len(rows) - MOST, 0),
            )
        )
    return tests


def _format_spread(values: Sequence[float]) -> tuple[str, str, str]:
    """Format the least, the median and the most."""
    return (
        (format_figure(min(values)), format_figure(median(values)), format_figure(max(values)))
        if values
        else ("", "", "")
    )
