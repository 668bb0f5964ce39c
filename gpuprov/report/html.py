"""Results as ONE self-contained HTML page: nothing is loaded from anywhere, everything from a host is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprov import __version__
from gpuprov.report.fold import EVERY, ORDER, findings, host_lines, totals
from gpuprov.report.text import unproven
from gpuprov.shown import cleaned
from gpuprov.verify import Result
from gpuprov.verify.verify import verdict

if TYPE_CHECKING:
    from jinja2 import Template

TITLES = {
    "unreachable": "Unreachable",
    "fail": "Failed",
    "error": "Error",
    "skip": "Skipped",
    "pass": "Passed",
    "n/a": "Not applicable",
}
VERDICTS = {"right": "right", "wrong": "will NOT be right", "unknown": "unknown"}


def render(results: Sequence[Result], title: str = "gpuprov verify", *, verbose: bool = False) -> str:
    """The page. Equal findings of many hosts stand once; each host has a row. The same results give the same text.

    verbose: also what asks nothing of a host.
    """
    counted = totals(results)
    hosts = host_lines(results, fold=False)
    return _template().render(
        title=title,
        version=__version__,
        order=ORDER,
        titles=TITLES,
        verdicts=VERDICTS,
        totals=counted,
        verdict=verdict(results),
        unproven=unproven(counted["skip"]) if counted["skip"] else "",
        findings=findings(results, EVERY if verbose else ORDER),
        hosts=sorted(hosts, key=lambda line: ORDER.index(line.worst)),
        boots={verdict: sum(line.next_boot.verdict == verdict for line in hosts) for verdict in VERDICTS},
    )


@lru_cache(maxsize=1)
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: cleaned(value) if isinstance(value, str) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")
