"""Figures between pairs of hosts as maps: the result of each pair, and how good it is, in levels that a legend can
name."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import Literal

import msgspec

from gpuprov.accept.model import ORDER, Finding, Outcome, Status
from gpuprov.capabilities.acceptance.judge import kind

# met: matches the spec. slow: not missed, but much worse than the others. missed, far: under the threshold, and far
# under it. none: no figure.
Level = Literal["met", "slow", "missed", "far", "none", "skipped"]
# Marks beside a number: no meaning is in colour alone.
MARKS: Mapping[Level, str] = {"met": "", "slow": "~", "missed": "!", "far": "!!", "none": "", "skipped": ""}
# Text in a legend's cell.
SAMPLES: Mapping[Level, str] = {**MARKS, "none": "none", "skipped": "skip"}
# The part of a threshold, or of the median, from which a figure is much worse.
MUCH = 0.10


class Cell(msgspec.Struct, frozen=True):
    """Result of one pair: its worst rail's figure (None if there is none), the verdict, a text for it, and that rail's
    threshold."""

    value: float | None
    status: Status
    text: str
    threshold: float = 0.0
    findings: tuple[Finding, ...] = ()


class Map(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A test between pairs: cells by (from, to). `threshold` 0: there is none."""

    title: str
    unit: str
    hosts: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]
    threshold: float = 0.0
    # Less is better, and a pair has one figure.
    less: bool = False
    test: str = ""

    @cached_property
    def median(self) -> float:
        """Median of the figures that are not missed, which show what this fleet can do; of all figures if every one is
        missed."""
        good = [cell.value for cell in self.cells.values() if cell.value is not None and cell.status != "fail"]
        every = good or [cell.value for cell in self.cells.values() if cell.value is not None]
        return median(every) if every else 0.0

    @property
    def mixed(self) -> bool:
        """True if the thresholds of pairs differ."""
        return len({cell.threshold for cell in self.cells.values() if cell.threshold}) > 1

    def worse(self, value: float, reference: float) -> float:
        """Return the part of the reference by which a figure is worse than it."""
        if not reference:
            return 1.0 if self.less and value > 0 else 0.0
        return round((value / reference - 1) * (1 if self.less else -1), 6)

    def level(self, cell: Cell) -> Level:
        """Return the level of a cell."""
        if cell.value is None:
            return "skipped" if cell.status == "skip" else "none"
        if cell.status in ("fail", "error", "unreachable"):
            return "far" if self.worse(cell.value, cell.threshold or self.threshold) >= MUCH else "missed"
        return "slow" if self.median and self.worse(cell.value, self.median) >= MUCH else "met"

    def legend(self) -> list[tuple[Level, str]]:
        """List the levels that a cell of this map can have, each described with figures and unit."""
        usual, part = f"the median, {format_figure(self.median)} {self.unit}".strip(), f"{MUCH:.0%}".replace("%", " %")
        limit = self.threshold * (1 + MUCH if self.less else 1 - MUCH)
        over = "more" if self.less else "less"
        rows: list[tuple[Level, str]] = []
        if self.test == "ping":
            rows += [("met", "met: no ping lost"), ("far", "pings were lost")]
        elif self.mixed:
            rows += [("met", "met: each pair has a threshold of its own")]
            rows += [("missed", f"missed by less than {part}"), ("far", f"missed by {part} or more")]
        elif self.threshold:
            bound, far = (f"{format_figure(value)} {self.unit}".strip() for value in (self.threshold, limit))
            rows.append(("met", f"met: {bound} or {'less' if self.less else 'more'}"))
            rows.append(("missed", f"missed by less than {part}"))
            rows.append(("far", f"missed by {part} or more: {far} or {over}"))
        elif self.unit:
            rows += [("met", f"about {usual}, or better; no threshold is known")]
        else:
            rows += [("met", "met"), ("far", "missed")]
        if self.median:
            rows.insert(1, ("slow", f"{'not missed, but ' if self.threshold else ''}{part} or more worse than {usual}"))
        rows.append(("none", "no figure"))
        return (
            [*rows, ("skipped", "not tested: see below")]
            if any(cell.status == "skip" for cell in self.cells.values())
            else rows
        )


def format_figure(value: float) -> str:
    """Format a number in three digits, or all before the point; two if it is small."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.1 else f"{value:.2g}"


def format_cell(cell: Cell | None, level: Level | None) -> str:
    """Return the text of a cell: a number with its mark, or why there is none."""
    if cell is None or level is None:
        return "-"
    if cell.value is None:
        return "skip" if level == "skipped" else "none"
    return f"{format_figure(cell.value)} {MARKS[level]}".strip()


def maps(outcome: Outcome) -> list[Map]:
    """Build a map for each test between pairs, in the order of the tests; a cell is the worst rail."""
    tests = dict.fromkeys(
        finding.measurement.test for finding in outcome.findings if finding.measurement and finding.peer
    )
    return [_build_map(outcome, test) for test in tests if kind(test) == "rdma"]


def _build_map(outcome: Outcome, test: str) -> Map:
    rows = [
        finding
        for finding in outcome.findings
        if finding.peer and finding.measurement and finding.measurement.test == test
    ]
    less = not test.endswith("_bw")
    rails: dict[tuple[str, str], list[Finding]] = {}
    for finding in rows:
        rails.setdefault((finding.host, finding.peer), []).append(finding)
        if less:
            rails.setdefault((finding.peer, finding.host), []).append(finding)
    met = {name for pair in rails for name in pair}
    unit = next((finding.unit for finding in rows if finding.unit), "")
    thresholds = [finding.verdict.threshold for finding in rows if finding.verdict and finding.verdict.threshold]
    way = "between each two" if less else "the row sends, the column receives"
    shown = {"ping": "lost pings"}.get(test, test)
    return Map(
        title=f"{shown}{', ' + unit if unit and test != 'ping' else ''}, {way}; of several rails the worst",
        unit=unit,
        hosts=tuple(name for name in outcome.hosts if name in met),
        cells={pair: _build_cell(findings, less=less) for pair, findings in rails.items()},
        threshold=(min(thresholds) if less else max(thresholds)) if thresholds else 0.0,
        less=less,
        test=test,
    )


def _build_cell(findings: Sequence[Finding], *, less: bool) -> Cell:
    status = next(status for status in ORDER if any(finding.status == status for finding in findings))
    text = "; ".join(f"{finding.host} {finding.found}" for finding in findings)
    figures = [(finding.figure, finding) for finding in findings if finding.figure is not None]
    if len(figures) < len(findings):
        return Cell(None, status, text, 0.0, tuple(findings))
    missed = [pair for pair in figures if pair[1].status == status] or figures
    value, worst = (max if less else min)(missed, key=lambda pair: pair[0])
    return Cell(value, status, text, worst.verdict.threshold if worst.verdict else 0.0, tuple(findings))
