"""`gpuprov rehearse`: the rehearsal and its result on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gpuprov import console
from gpuprov.apply import Terminal
from gpuprov.plan.read import Pair
from gpuprov.rehearse.acts import rehearse
from gpuprov.rehearse.document import build_document
from gpuprov.rehearse.model import Options
from gpuprov.rehearse.results import list_results
from gpuprov.rehearse.text import format_text
from gpuprov.report.document import as_json
from gpuprov.report.page import About


def run(
    pairs: Sequence[Pair],
    options: Options,
    *,
    plain: bool = False,
    junit: Path | None = None,
    html: Path | None = None,
    about: About | None = None,
) -> int:
    """Rehearse, print the result (`plain`: as JSON), write the reports, return the exit code. `about`: for the page."""
    from gpuprov.report.files import check_writable, write_atomic
    from gpuprov.simulate import hosts, tools

    check_writable(junit, html)
    tools.require(options.kind or "container")
    whole = rehearse(pairs, options, hosts, Terminal(verbose=options.verbose))
    console.result(
        as_json(build_document(whole))
        if plain
        else format_text(whole, verbose=options.verbose, width=console.room(sys.stdout))
    )
    if junit is not None:
        from gpuprov.report import junit as xml

        took = {one.name: sum(step.seconds for step in one.steps) for one in whole.rehearsals}
        write_atomic(junit, xml.render(list_results(whole), took))
    if html is not None:
        from gpuprov.rehearse.page import render_page

        write_atomic(html, render_page(whole, about, verbose=options.verbose))
    return whole.exit_code
