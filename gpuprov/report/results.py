"""Results of verify: to the terminal, and to the requested files."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprov import console
from gpuprov.errors import GpuprovError
from gpuprov.report.files import write_atomic
from gpuprov.report.many import Many

if TYPE_CHECKING:
    from gpuprov.report.fleet import Known
    from gpuprov.report.page import About
    from gpuprov.verify.evaluate import Result


def show(
    results: Sequence[Result] | Many,
    *,
    as_json: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    junit: Path | None = None,
    html: Path | None = None,
    prometheus: Path | None = None,
    took: Mapping[str, float] | None = None,
    seconds: float | None = None,
    about: About | None = None,
    known: Mapping[str, Known] | None = None,
    title: str = "gpuprov verify",
) -> None:
    """Print the results; write JUnit XML, the HTML page and the metrics. A file that cannot be written is reported after the results.

    quiet: only the files, no output on the terminal. `took`: seconds by host; `seconds`: in total; `about`, `known` and `title`: for
    the page.
    """
    refused: list[GpuprovError] = []
    if junit is not None:
        from gpuprov.report import junit as xml

        refused += _write(junit, xml.render(results, took))
    if html is not None:
        from gpuprov.report import html as page

        refused += _write(html, page.render(results, title, verbose=verbose, about=about, known=known))
    if prometheus is not None:
        from gpuprov.report import prometheus as metrics

        refused += _write(prometheus, metrics.render(results, took))
    if as_json and not isinstance(results, Many):
        from gpuprov.report import as_json as data

        for part in data.parts(results, took, seconds, verbose=verbose):
            console.result(part)
    elif not quiet:
        from gpuprov.report import text

        width = min(shutil.get_terminal_size((100, 24)).columns, 120)
        room, colour = min(console.room(sys.stdout), 120), console.coloured(sys.stdout)
        told = text.render(results, verbose=verbose, colour=colour, width=width, room=room)
        console.result(told.rstrip(), in_colour=True)
    if refused:
        raise GpuprovError("; ".join(error.message for error in refused), refused[0].hint)


def _write(path: Path, text: str) -> list[GpuprovError]:
    try:
        write_atomic(path, text)
    except GpuprovError as error:
        return [error]
    return []
