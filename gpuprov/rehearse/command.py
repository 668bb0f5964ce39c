"""`gpuprov rehearse`: the rehearsal and its result on the terminal."""

import sys
from collections.abc import Sequence
from pathlib import Path

from gpuprov.apply import Terminal
from gpuprov.core import terminal
from gpuprov.core.sanitize import cleaned
from gpuprov.plan.read import Pair
from gpuprov.rehearse.acts import rehearse
from gpuprov.rehearse.document import build_document
from gpuprov.rehearse.model import Options
from gpuprov.rehearse.results import list_results
from gpuprov.rehearse.text import format_text
from gpuprov.report.page import About
from gpuprov.report.results import deliver


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
    from gpuprov.report.files import check_writable
    from gpuprov.simulate import hosts, tools

    check_writable(junit, html)
    tools.require(options.kind or "container")
    whole = rehearse(pairs, options, hosts, Terminal(verbose=options.verbose))

    def as_junit() -> str:
        from gpuprov.report import junit

        took = {rehearsal.name: sum(step.seconds for step in rehearsal.steps) for rehearsal in whole.rehearsals}
        return junit.render(list_results(whole), took)

    def as_page() -> str:
        from gpuprov.rehearse.page import render_page

        return render_page(whole, about, verbose=options.verbose)

    def as_text() -> str:
        return cleaned(format_text(whole, verbose=options.verbose, width=terminal.room(sys.stdout)))

    deliver(build_document(whole), None if plain else as_text, ((junit, as_junit), (html, as_page)))
    return whole.exit_code
