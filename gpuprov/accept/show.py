"""The result of an acceptance: for the terminal, as JSON, JUnit XML, an HTML page and a picture."""

import sys
from collections.abc import Sequence
from functools import partial

from gpuprov.accept.document import WORDS, build_document, format_summary
from gpuprov.accept.maps import maps
from gpuprov.accept.model import Finding, Options, Outcome, Status
from gpuprov.accept.outliers import Outlier, find_outliers
from gpuprov.accept.page import list_skipped, list_tests, page
from gpuprov.accept.picture import document
from gpuprov.core import terminal
from gpuprov.core.fill import fill
from gpuprov.core.sanitize import cleaned, wrapped
from gpuprov.report import junit
from gpuprov.report.files import check_writable
from gpuprov.report.page import About
from gpuprov.report.results import deliver
from gpuprov.report.text import COLOURS, labelled
from gpuprov.verify.evaluate import Result


def check(options: Options) -> None:
    """Raise GpuprovError, before anything is run, if a file could not be written."""
    check_writable(options.junit, options.html, options.svg)


def report(outcome: Outcome, options: Options, about: About | None = None) -> None:
    """Write the files, print the result. A file that cannot be written is reported after the result. `about`: for the
    page."""
    files = (
        (options.junit, lambda: junit.render(as_results(outcome))),
        (options.html, lambda: page(outcome, about)),
        (options.svg, lambda: document(maps(outcome))),
    )
    text = None if options.as_json else partial(as_text, outcome, verbose=options.verbose)
    try:
        deliver(build_document(outcome), text, files)
    finally:
        for note in outcome.notes:
            terminal.warning(note)


def as_results(outcome: Outcome) -> list[Result]:
    """Convert the findings to results of verify, which gpuprov's reports take."""
    return [fill(Result, finding, capability="acceptance") for finding in outcome.findings]


def as_text(outcome: Outcome, *, verbose: bool = False) -> str:
    """Format the outliers, a sentence each; then skipped tests, each test in a line, and the verdict. `verbose`: every
    finding."""
    lines: list[str] = []
    for outlier in find_outliers(outcome):
        lines += [*_format_outlier(outlier), ""]
    if verbose:
        for status in ("unreachable", "fail", "error"):
            for finding in (finding for finding in outcome.findings if finding.status == status):
                lines += [*_format_finding(finding), ""]
    skipped = list_skipped(outcome)
    for test, why, hosts in skipped:
        lines += wrapped(
            f"{_paint('skip', 'skip')}  {test}  {cleaned(why)}  [{cleaned(hosts)}]",
            terminal.width(),
            hang=" " * 6,
        )
    lines += [""] if skipped else []
    if verbose:
        lines += [
            f"{_paint('pass', 'pass')}  {cleaned(finding.host)}  {cleaned(finding.check)}  {cleaned(finding.found)}"
            for finding in outcome.findings
            if finding.status == "pass"
        ]
        lines += [""]
    lines += _format_tests(outcome)
    return "\n".join([*lines, _format_verdict(outcome)])


def _format_outlier(outlier: Outlier) -> list[str]:
    head = {"pass": "SLOW"}.get(outlier.status, outlier.status.upper())
    text = f"{head}  {cleaned(outlier.test)}{': ' * bool(outlier.test)}{cleaned(outlier.sentence)}"
    first, *rest = wrapped(text, max(terminal.width(), 40), hang=" " * 6)
    painted = first.replace(head, _paint(head, "error" if outlier.status == "pass" else outlier.status), 1)
    return [painted, *rest, *_format_labelled((("see", outlier.evidence), ("fix", outlier.fix)))]


def _format_finding(finding: Finding) -> list[str]:
    head = f"{_paint(finding.status.upper(), finding.status)}  {cleaned(finding.check)}  {cleaned(finding.host)}"
    return [
        head,
        *_format_labelled(
            (("expected", finding.expected), ("found", finding.found), ("see", finding.evidence), ("fix", finding.fix))
        ),
    ]


def _format_labelled(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [line for label, value in pairs for line in labelled(label, value, terminal.width(), whole=label == "see")]


def _format_tests(outcome: Outcome) -> list[str]:
    """List each test that has figures: their number, least, median and most."""
    rows: list[tuple[str, ...]] = [("test", "figures", "least", "median", "most", "")]
    rows += [
        (test.test, str(test.figures), test.least, test.median, test.most, test.unit)
        for test in list_tests(outcome)
        if test.figures
    ]
    if len(rows) == 1:
        return []
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(w) if n in (0, 5) else cell.rjust(w) for n, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ] + [""]


def _format_verdict(outcome: Outcome) -> str:
    line = format_summary(outcome)
    for status, count in outcome.counted.items():
        part = f"{count} {WORDS[status]}"
        line = line.replace(part, _paint(part, status), 1) if count else line
    return line


def _paint(text: str, status: Status) -> str:
    return terminal.paint(text, COLOURS[status], sys.stdout)
