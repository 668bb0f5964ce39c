"""The result of an acceptance: for the terminal, as JSON, JUnit XML, an HTML page and a picture."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from gpuprov import __version__, console
from gpuprov.accept.model import Finding, Options, Outcome, Status
from gpuprov.accept.picture import Cell, Map, document, figure
from gpuprov.capabilities.acceptance.judge import kind
from gpuprov.errors import GpuprovError
from gpuprov.inventory.names import folded as names
from gpuprov.report import junit
from gpuprov.report.files import check_writable, write_atomic
from gpuprov.shown import cleaned, in_markup
from gpuprov.verify.evaluate import Result

ORDER: tuple[Status, ...] = ("unreachable", "fail", "error", "skip", "pass")
_COLOURS = {"unreachable": "35", "fail": "31", "error": "33", "skip": "36", "pass": "32"}
_MARGIN = 12


def check(options: Options) -> None:
    """Raise GpuprovError, before anything is run, if a file could not be written."""
    check_writable(options.junit, options.html, options.svg)


def report(outcome: Outcome, options: Options) -> None:
    """Write the files, print the result. A file that cannot be written is told after the result."""
    refused: list[GpuprovError] = []
    files: dict[Path, str] = {}
    if options.junit:
        files[options.junit] = junit.render(results(outcome))
    if options.html:
        files[options.html] = page(outcome)
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


def as_json(outcome: Outcome) -> str:
    """Every finding, with its measurement where there is one."""
    rows = [_row(one) for one in outcome.findings]
    told = {
        "run": outcome.run,
        "hosts": list(outcome.hosts),
        "interrupted": outcome.interrupted,
        "notes": outcome.notes,
    }
    return msgspec.json.format(msgspec.json.encode({**told, "results": rows}), indent=2).decode()


def _row(one: Finding) -> dict[str, Any]:
    keys = ("host", "check", "status", "found", "wanted", "hint", "evidence")
    row: dict[str, Any] = {key: getattr(one, key) for key in keys}
    row["threshold"] = one.verdict.threshold if one.verdict else 0.0
    row["published"] = one.verdict.origin if one.verdict else ""
    row["measurement"] = msgspec.to_builtins(one.measurement) if one.measurement else None
    return row


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
    """What is wrong first, then what was not run, then each test in a line, then the verdict."""
    lines: list[str] = []
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
        lines += textwrap.wrap(
            f"{_paint('skip', 'skip')}  {test}  {cleaned(why)}  [{cleaned(names(dict.fromkeys(hosts)))}]",
            console.width(),
            subsequent_indent="      ",
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


def _loud(one: Finding) -> list[str]:
    lines = [f"{_paint(one.status.upper(), one.status)}  {cleaned(one.check)}  {cleaned(one.host)}"]
    for label, value in (("expected", one.wanted), ("found", one.found), ("see", one.evidence), ("hint", one.hint)):
        if not value:
            continue
        whole = label == "see"
        wide = max(console.width() - _MARGIN, 30)
        parts = [cleaned(value)] if whole else textwrap.wrap(cleaned(value), wide, break_long_words=False) or [""]
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
    counted = {status: sum(one.status == status for one in outcome.findings) for status in ORDER}
    words = {
        "unreachable": "unreachable",
        "fail": "missed",
        "error": "without a figure",
        "skip": "skipped",
        "pass": "passed",
    }
    parts = [_paint(f"{count} {words[status]}", status) for status, count in counted.items() if count]
    wrong = any(counted[status] for status in ("unreachable", "fail", "error"))
    measured = "accepted" if counted["pass"] else "nothing was measured"
    verdict = "interrupted" if outcome.interrupted else "NOT accepted" if wrong else measured
    return f"{verdict}: {len(outcome.hosts)} host{'s' * (len(outcome.hosts) != 1)}, {', '.join(parts) or 'no test'}"


def _paint(text: str, status: Status) -> str:
    return console.paint(text, _COLOURS[status], sys.stdout)


def maps(outcome: Outcome) -> list[Map]:
    """A heat map for each test between pairs, bandwidths first; a cell is the worst rail."""
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
    way = "between each two" if less else "from row to column"
    shown = {"ping": "lost pings"}.get(test, test)
    return Map(
        title=f"{shown}{', ' + unit if unit else ''}, {way}; of several rails the worst",
        unit=unit,
        hosts=tuple(name for name in outcome.hosts if name in met),
        cells={pair: _cell(found, less=less) for pair, found in rails.items()},
        threshold=(min(thresholds) if less else max(thresholds)) if thresholds else 0.0,
        less=less,
    )


def _cell(found: Sequence[Finding], *, less: bool) -> Cell:
    status = next(status for status in ORDER if any(one.status == status for one in found))
    values = [
        one.measurement.value
        for one in found
        if one.measurement and one.measurement.unit and not one.measurement.problem
    ]
    told = "; ".join(f"{one.host} {one.found}" for one in found)
    if len(values) < len(found):
        return Cell(None, status, told)
    return Cell(max(values) if less else min(values), status, told)


def page(outcome: Outcome) -> str:
    """One self-contained HTML page: the verdict, the maps, every finding."""
    pictures = document(maps(outcome)) if maps(outcome) else "<p>No pair of hosts was tested.</p>"
    rows = "".join(_table_row(one) for status in ORDER for one in outcome.findings if one.status == status)
    notes = "".join(f"<p>{in_markup(note)}</p>" for note in outcome.notes)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>gpuprov accept</title><style>{_CSS}</style></head><body>
<h1>gpuprov accept</h1><p>{in_markup(_plain(_verdict(outcome)))}; run {in_markup(outcome.run)}, gpuprov {__version__}</p>{notes}
<div class="picture">{pictures}</div>
<table><thead><tr><th>Status</th><th>Host</th><th>Test</th><th>Found</th><th>Wanted</th><th>Command, fix</th></tr></thead>
<tbody>{rows}</tbody></table></body></html>
"""


def _table_row(one: Finding) -> str:
    more = "".join(
        f"<{tag}>{in_markup(text)}</{tag}>" for tag, text in (("code", one.evidence), ("p", one.hint)) if text
    )
    cells = "".join(
        f"<td>{in_markup(text)}</td>"
        for text in (one.host, one.check.removeprefix("acceptance."), one.found, one.wanted)
    )
    return f'<tr><td class="{one.status}">{one.status}</td>{cells}<td>{more}</td></tr>'


def _plain(text: str) -> str:
    return re.sub("\x1b\\[[0-9;]*m", "", text)


_CSS = (
    "body{margin:0 auto;max-width:1200px;padding:1.5rem;background:#fff;color:#1b1f24;font:15px/1.5 system-ui,sans-serif}"
    "h1{font-size:1.5rem;margin:0 0 .5rem}.picture{overflow-x:auto;margin:1rem 0}table{width:100%;border-collapse:collapse}"
    "th,td{text-align:left;padding:.35rem .6rem;border-bottom:1px solid #dde1e6;vertical-align:top;overflow-wrap:break-word}"
    "td:nth-child(n+5){overflow-wrap:anywhere}td:first-child{white-space:nowrap}"
    "code{font:12px/1.4 ui-monospace,monospace;background:#f0f2f5;border-radius:4px;padding:.1em .3em}p{margin:.3rem 0}"
    ".fail,.error,.unreachable{font-weight:700;color:#a31510}.pass{color:#1e7b3c}.skip{color:#2a6f97}"
)
