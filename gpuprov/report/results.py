"""Results of verify: to the terminal, and to the files that were asked for."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprov import console
from gpuprov.report.files import write_atomic

if TYPE_CHECKING:
    from gpuprov.verify.evaluate import Result


def show(
    results: Sequence[Result],
    *,
    as_json: bool = False,
    verbose: bool = False,
    junit: Path | None = None,
    html: Path | None = None,
) -> None:
    """Print the results; write JUnit XML and the HTML page. Files come first: a closed pipe must not lose them."""
    if junit is not None:
        from gpuprov.report import junit as xml

        write_atomic(junit, xml.render(results))
    if html is not None:
        from gpuprov.report import html as page

        write_atomic(html, page.render(results))
    if as_json:
        from gpuprov.report import as_json as data

        console.result(data.render(results).rstrip())
    else:
        from gpuprov.report import text

        width = min(shutil.get_terminal_size((100, 24)).columns, 120)
        console.result(text.render(results, verbose=verbose, colour=console.coloured(sys.stdout), width=width).rstrip())
