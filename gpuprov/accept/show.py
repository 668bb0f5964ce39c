"""The result of an acceptance: for the terminal, as JSON, JUnit XML, an HTML page and a picture."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from gpuprov import console
from gpuprov.accept.document import as_json, verdict
from gpuprov.accept.maps import figure, maps
from gpuprov.accept.model import Finding, Options, Outcome, Status
from gpuprov.accept.outliers import Outlier, outliers
from gpuprov.accept.page import page
from gpuprov.accept.picture import document
from gpuprov.errors import GpuprovError
from gpuprov.inventory.names import folded as names
from gpuprov.report import junit
from gpuprov.report.files import check_writable, write_atomic
from gpuprov.report.page import About
from gpuprov.report.text import COLOURS
from gpuprov.shown import cleaned, wrapped
from gpuprov.verify.evaluate import Result

_MARGIN = 12


def check(options: Options) -> None:
    """Raise GpuprovError, before anything is run, if a file could not be written."""
    check_writable(options.junit, options.html, options.svg)


def report(outcome: Outcome, options: Options, about: About | None = None) -> None:
    """Write the files, print the result. A file that cannot be written is told after the result. `about`: for the page."""
    refused: list[GpuprovError] = []
    files: dict[Path, str] = {}
    if options.junit:
        files[options.junit] = junit.render(results(outcome))
    if options.html:
        files[options.html] = page(outcome, about)
    if options.svg:
        files[options.svg] = document(maps(outcome))
    for path, text in files.items():
        try:
            write_atomic(path, text)
        except GpuprovError as error:
            refused.append(error)
    told = as_json(outcome) if options.as_json else as_text(outcome, verbose=options.verbose)
    console.result(told, in_colour=not options.as_json)
    for note in outcome.notes:
        console.warning(note)
    if refused:
        raise GpuprovError("; ".join(error.message for error in refused), refused[0].hint)


def results(outcome: Outcome) -> list[Result]:
    """The findings as results of verify, which the reports of gpuprov take."""
    return [
        Result(
            host=one.host,
            capability="acceptance",
            check=one.check,
            status=one.status,
            expected=one.wanted,
            found=one.found,
            evidence=one.evidence,
            hint=one.hint,
        )
        for one in outcome.findings
    ]


def as_text(outcome: Outcome, *, verbose: bool = False) -> str:
    """What stands out, a sentence each; then what was not run, each test in a line, and the verdict. `verbose`: every finding."""
    lines: list[str] = []
    for outlier in outliers(outcome):
        lines += [*_outlier(outlier), ""]
    if verbose:
        for status in ("unreachable", "fail", "error"):
            for one in (one for one in outcome.findings if one.status == status):
                lines += [*_loud(one), ""]
    skipped: dict[tuple[str, str], list[str]] = {}
    for one in outcome.findings:
        if one.status == "skip":
            test = f"acceptance.{one.measurement.test}" if one.measurement else one.check
            skipped.setdefault(
                (test, one.found.rpartition(": ")[2] if one.measurement and one.measurement.peer else one.found), []
            ).append(one.host)
    for (test, why), hosts in skipped.items():
        lines += wrapped(
            f"{_paint('skip', 'skip')}  {test}  {cleaned(why)}  [{cleaned(names(dict.fromkeys(hosts)))}]",
            console.width(),
            hang=" " * 6,
        )
    lines += [""] if skipped else []
    if verbose:
        lines += [
            f"{_paint('pass', 'pass')}  {cleaned(one.host)}  {cleaned(one.check)}  {cleaned(one.found)}"
            for one in outcome.findings
            if one.status == "pass"
        ]
        lines += [""]
    lines += _tests(outcome)
    return "\n".join([*lines, _verdict(outcome)])


def _outlier(one: Outlier) -> list[str]:
    head = {"pass": "SLOW"}.get(one.status, one.status.upper())
    told = f"{head}  {cleaned(one.test)}{': ' * bool(one.test)}{cleaned(one.sentence)}"
    first, *rest = wrapped(told, max(console.width(), 40), hang=" " * 6)
    painted = first.replace(head, _paint(head, "error" if one.status == "pass" else one.status), 1)
    return [painted, *rest, *_labelled((("see", one.evidence), ("fix", one.hint)))]


def _loud(one: Finding) -> list[str]:
    head = f"{_paint(one.status.upper(), one.status)}  {cleaned(one.check)}  {cleaned(one.host)}"
    return [
        head,
        *_labelled((("expected", one.wanted), ("found", one.found), ("see", one.evidence), ("fix", one.hint))),
    ]


def _labelled(pairs: Sequence[tuple[str, str]]) -> list[str]:
    lines: list[str] = []
    for label, value in pairs:
        if not value:
            continue
        whole = label == "see"
        wide = max(console.width() - _MARGIN, 30)
        parts = [cleaned(value)] if whole else wrapped(cleaned(value), wide) or [""]
        lines += [f"  {label:<{_MARGIN - 2}}{parts[0]}", *(" " * _MARGIN + part for part in parts[1:])]
    return lines


def _tests(outcome: Outcome) -> list[str]:
    """Each test that has figures: how many, the least, the median, the most."""
    found: dict[tuple[str, str], list[float]] = {}
    for one in outcome.findings:
        if one.measurement and one.measurement.unit and not one.measurement.problem:
            found.setdefault((one.measurement.test, one.measurement.unit), []).append(one.measurement.value)
    rows: list[tuple[str, ...]] = [("test", "figures", "least", "median", "most", "")]
    for (test, unit), values in found.items():
        rows.append(
            (test, str(len(values)), *(figure(one) for one in (min(values), median(values), max(values))), unit)
        )
    if len(rows) == 1:
        return []
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(w) if n in (0, 5) else cell.rjust(w) for n, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ] + [""]


def _verdict(outcome: Outcome) -> str:
    words = {
        "unreachable": "unreachable",
        "fail": "missed",
        "error": "without a figure",
        "skip": "skipped",
        "pass": "passed",
    }
    parts = [_paint(f"{count} {words[status]}", status) for status, count in outcome.counted.items() if count]
    return f"{verdict(outcome)}: {len(outcome.hosts)} host{'s' * (len(outcome.hosts) != 1)}, {', '.join(parts) or 'no test'}"


def _paint(text: str, status: Status) -> str:
    return console.paint(text, COLOURS[status], sys.stdout)
