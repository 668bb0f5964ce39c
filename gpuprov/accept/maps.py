"""Figures between pairs of hosts as maps: what each pair showed, and how good that is, in levels that a legend can name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import Literal

import msgspec

from gpuprov.accept.model import ORDER, Finding, Outcome, Status
from gpuprov.capabilities.acceptance.judge import kind

Level = Literal["met", "slow", "missed", "far", "none", "skipped"]
"""met: as wanted. slow: not missed, but much worse than the others. missed, far: under the threshold, and much so. none: no figure."""
MARKS: Mapping[Level, str] = {"met": "", "slow": "~", "missed": "!", "far": "!!", "none": "", "skipped": ""}
"""What stands beside a number: nothing is told by a colour alone."""
SAMPLES: Mapping[Level, str] = {**MARKS, "none": "none", "skipped": "skip"}
"""What stands in a legend's cell."""
MUCH = 0.10
"""The part of a threshold, or of the median, from which a figure is much worse."""


class Cell(msgspec.Struct, frozen=True):
    """What one pair showed: its worst rail's figure (None: there is none), the verdict, words for it, and that rail's threshold."""

    value: float | None
    status: Status
    told: str
    wanted: float = 0.0
    findings: tuple[Finding, ...] = ()


class Map(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A test between pairs: cells by (from, to). `threshold` 0: there is none. `less`: less is better, and a pair has one figure."""

    title: str
    unit: str
    hosts: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]
    threshold: float = 0.0
    less: bool = False
    test: str = ""

    @cached_property
    def median(self) -> float:
        """Of the figures that are not missed, which are what this fleet can do; of all where each is."""
        good = [one.value for one in self.cells.values() if one.value is not None and one.status != "fail"]
        every = good or [one.value for one in self.cells.values() if one.value is not None]
        return median(every) if every else 0.0

    @property
    def mixed(self) -> bool:
        """Whether the thresholds of pairs differ."""
        return len({one.wanted for one in self.cells.values() if one.wanted}) > 1

    def worse(self, value: float, reference: float) -> float:
        """By which part of the reference a figure is worse than it."""
        if not reference:
            return 1.0 if self.less and value > 0 else 0.0
        return round((value / reference - 1) * (1 if self.less else -1), 6)

    def level(self, cell: Cell) -> Level:
        """How good it is."""
        if cell.value is None:
            return "skipped" if cell.status == "skip" else "none"
        if cell.status in ("fail", "error", "unreachable"):
            return "far" if self.worse(cell.value, cell.wanted or self.threshold) >= MUCH else "missed"
        return "slow" if self.median and self.worse(cell.value, self.median) >= MUCH else "met"

    def legend(self) -> list[tuple[Level, str]]:
        """The levels that a cell of this map can have, each in words, with figures and unit."""
        usual, part = f"the median, {figure(self.median)} {self.unit}".strip(), f"{MUCH:.0%}".replace("%", " %")
        limit = self.threshold * (1 + MUCH if self.less else 1 - MUCH)
        over = "more" if self.less else "less"
        rows: list[tuple[Level, str]] = []
        if self.test == "ping":
            rows += [("met", "as wanted: no ping lost"), ("far", "pings were lost")]
        elif self.mixed:
            rows += [("met", "as wanted: each pair has a threshold of its own")]
            rows += [("missed", f"missed by less than {part}"), ("far", f"missed by {part} or more")]
        elif self.threshold:
            bound, far = (f"{figure(one)} {self.unit}".strip() for one in (self.threshold, limit))
            rows.append(("met", f"as wanted: {bound} or {'less' if self.less else 'more'}"))
            rows.append(("missed", f"missed by less than {part}"))
            rows.append(("far", f"missed by {part} or more: {far} or {over}"))
        elif self.unit:
            rows += [("met", f"about {usual}, or better; no threshold is known")]
        else:
            rows += [("met", "as wanted"), ("far", "missed")]
        if self.median:
            rows.insert(1, ("slow", f"{'not missed, but ' if self.threshold else ''}{part} or more worse than {usual}"))
        rows.append(("none", "no figure"))
        return (
            [*rows, ("skipped", "not tested: see below")]
            if any(one.status == "skip" for one in self.cells.values())
            else rows
        )


def figure(value: float) -> str:
    """A number in three digits, or all that stand before the point; two where it is small."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.1 else f"{value:.2g}"


def words(cell: Cell | None, level: Level | None) -> str:
    """What stands in a cell: a number with its mark, or why there is none."""
    if cell is None or level is None:
        return "-"
    if cell.value is None:
        return "skip" if level == "skipped" else "none"
    return f"{figure(cell.value)} {MARKS[level]}".strip()


def maps(outcome: Outcome) -> list[Map]:
    """A map for each test between pairs, in the order of the tests; a cell is the worst rail."""
    tests = dict.fromkeys(one.measurement.test for one in outcome.findings if one.measurement and one.measurement.peer)
    return [_map(outcome, test) for test in tests if kind(test) == "rdma"]


def _map(outcome: Outcome, test: str) -> Map:
    rows = [
        one for one in outcome.findings if one.measurement and one.measurement.test == test and one.measurement.peer
    ]
    less = not test.endswith("_bw")
    rails: dict[tuple[str, str], list[Finding]] = {}
    for one in rows:
        peer = one.measurement.peer if one.measurement else ""
        rails.setdefault((one.host, peer), []).append(one)
        if less:
            rails.setdefault((peer, one.host), []).append(one)
    met = {name for pair in rails for name in pair}
    unit = next((one.measurement.unit for one in rows if one.measurement and one.measurement.unit), "")
    thresholds = [one.verdict.threshold for one in rows if one.verdict and one.verdict.threshold]
    way = "between each two" if less else "the row sends, the column receives"
    shown = {"ping": "lost pings"}.get(test, test)
    return Map(
        title=f"{shown}{', ' + unit if unit and test != 'ping' else ''}, {way}; of several rails the worst",
        unit=unit,
        hosts=tuple(name for name in outcome.hosts if name in met),
        cells={pair: _cell(found, less=less) for pair, found in rails.items()},
        threshold=(min(thresholds) if less else max(thresholds)) if thresholds else 0.0,
        less=less,
        test=test,
    )


def _cell(found: Sequence[Finding], *, less: bool) -> Cell:
    status = next(status for status in ORDER if any(one.status == status for one in found))
    told = "; ".join(f"{one.host} {one.found}" for one in found)
    figures = [one for one in found if one.measurement and one.measurement.unit and not one.measurement.problem]
    if len(figures) < len(found):
        return Cell(None, status, told, 0.0, tuple(found))
    missed = [one for one in figures if one.status == status] or figures
    worst = (max if less else min)(missed, key=lambda one: one.measurement.value if one.measurement else 0.0)
    value = worst.measurement.value if worst.measurement else 0.0
    return Cell(value, status, told, worst.verdict.threshold if worst.verdict else 0.0, tuple(found))
