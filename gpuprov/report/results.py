"""The end of a command: its files, then its result on the terminal, as text or as the one document."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprov.core import terminal
from gpuprov.core.errors import GpuprovError
from gpuprov.report.document import Document
from gpuprov.report.document import as_json as format_json
from gpuprov.report.files import NONE, ReportFiles, write_atomic
from gpuprov.report.many import Many

if TYPE_CHECKING:
    from gpuprov.report.fleet import Known
    from gpuprov.report.page import About
    from gpuprov.verify.evaluate import Result


# Requested files, and what makes their texts; None: not requested.
Files = Iterable[tuple[Path | None, Callable[[], str]]]


def deliver(document: Document | Iterable[str], text: Callable[[], str] | None, files: Files = ()) -> None:
    """Write the files, print the text, or the document if `text` is None. Texts have colours only of parts that were
    cleaned.

    A file that cannot be written is reported after the result.
    """
    refused: list[GpuprovError] = []
    for path, render in files:
        try:
            if path is not None:
                write_atomic(path, render())
        except GpuprovError as error:
            refused.append(error)
    if text is not None:
        terminal.result(text().rstrip(), in_colour=True)
    else:
        for part in [format_json(document)] if isinstance(document, Document) else document:
            terminal.result(part)
    if refused:
        raise GpuprovError("; ".join(error.message for error in refused), refused[0].fix)


def show(
    results: Sequence[Result] | Many,
    document: Iterable[str] = (),
    *,
    as_json: bool = False,
    verbose: bool = False,
    files: ReportFiles = NONE,
    took: Mapping[str, float] | None = None,
    seconds: float | None = None,
    about: About | None = None,
    known: Mapping[str, Known] | None = None,
    title: str = "gpuprov verify",
) -> None:
    """Print the results; write JUnit XML, the HTML page and the metrics. `document`: what --json prints of folded
    results.

    `took`: seconds by host; `seconds`: in total; `about`, `known` and `title`: for the page.
    """

    def as_text() -> str:
        from gpuprov.report import text

        width, room, colour = (
            min(terminal.width(), 120),
            min(terminal.room(sys.stdout), 120),
            terminal.coloured(sys.stdout),
        )
        return text.render(results, verbose=verbose, colour=colour, width=width, room=room)

    def as_junit() -> str:
        from gpuprov.report import junit

        return junit.render(results, took)

    def as_page() -> str:
        from gpuprov.report import html

        return html.render(results, title, verbose=verbose, about=about, known=known)

    def as_metrics() -> str:
        from gpuprov.report import prometheus

        return prometheus.render(results, took)

    outputs = ((files.junit, as_junit), (files.html, as_page), (files.prometheus, as_metrics))
    if as_json and not isinstance(results, Many):
        from gpuprov.report import as_json as data

        document = data.parts(results, took, seconds, verbose=verbose)
    deliver(document, None if as_json else as_text, outputs)
