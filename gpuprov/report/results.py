"""Results of verify: to the terminal, and to the requested files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprov import console
from gpuprov.report.delivery import deliver
from gpuprov.report.many import Many

if TYPE_CHECKING:
    from gpuprov.report.fleet import Known
    from gpuprov.report.page import About
    from gpuprov.verify.evaluate import Result


def show(
    results: Sequence[Result] | Many,
    document: Callable[[], Iterable[str]] | None = None,
    *,
    as_json: bool = False,
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
    """Print the results; write JUnit XML, the HTML page and the metrics. `document`: what --json prints of folded results.

    `took`: seconds by host; `seconds`: in total; `about`, `known` and `title`: for the page.
    """
    from gpuprov.report import as_json as data
    from gpuprov.report import html as pages
    from gpuprov.report import junit as xml
    from gpuprov.report import prometheus as metrics
    from gpuprov.report import text

    def as_text() -> str:
        width, room, colour = (
            min(console.width(), 120),
            min(console.room(sys.stdout), 120),
            console.coloured(sys.stdout),
        )
        return text.render(results, verbose=verbose, colour=colour, width=width, room=room)

    def as_parts() -> Iterable[str]:
        return () if isinstance(results, Many) else data.parts(results, took, seconds, verbose=verbose)

    files = (
        (junit, lambda: xml.render(results, took)),
        (html, lambda: pages.render(results, title, verbose=verbose, about=about, known=known)),
        (prometheus, lambda: metrics.render(results, took)),
    )
    deliver(document or as_parts, None if as_json else as_text, files)
