"""Results as ONE self-contained HTML page: nothing is loaded from anywhere, everything from a host is escaped."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gpuprov.capabilities import CAPABILITIES
from gpuprov.inventory.names import fold_names as names
from gpuprov.report import page
from gpuprov.report.fleet import Known, causes, data
from gpuprov.report.fold import brief, findings, racks_of, summed
from gpuprov.report.folded import EVERY, LOUD, ORDER
from gpuprov.report.many import Many
from gpuprov.report.page import About, State
from gpuprov.report.states import BAD, LETTERS, WORDS, headline, state
from gpuprov.report.text import unproven
from gpuprov.verify import Result
from gpuprov.verify.verify import NextBoot, next_boot

STATES: dict[str, State] = {
    "unreachable": "gone",
    "fail": "fail",
    "error": "error",
    "skip": "unproven",
    "pass": "right",
    "n/a": "unproven",
}
TITLES = {"unreachable": "unreachable", "fail": "failed", "error": "error"}
ACTING = [capability.name for capability in CAPABILITIES if capability.tasks]
# Maximum number of hosts' different actual values in a cause; the others are shown with the hosts.
MOST = 6


def render(
    results: Sequence[Result] | Many,
    title: str = "gpuprov verify",
    *,
    verbose: bool = False,
    about: About | None = None,
    known: Mapping[str, Known] | None = None,
    template: str = "report.html.j2",
    page_headline: page.Headline | None = None,
    words: Mapping[State, str] = WORDS,
    fixed: Mapping[str, State] | None = None,
    boots: bool = True,
    styles: Sequence[str] = (),
    **more: Any,
) -> str:
    """Return the page. Equal findings of many hosts appear once; each host has a square. The same results give the same
    text.

    verbose: also n/a results. known: further data about a host. template: one that extends report.html.j2, with its
    own variables in `more`, `words` for the states of hosts, `fixed` for states that were judged otherwise.
    """
    rows, states, later = _group_by_host(results, fixed or {})
    verdict, skipped = (numbers := summed(results)).verdict, numbers.counts["skip"]
    return page.render(
        template,
        title=title,
        headline=page_headline or headline(verdict, states, later.values(), skipped),
        about=about,
        data=data(rows, states, later, known or {}, words, verbose=verbose)
        | {"plan": _make_plan_command(about), "boots": boots, "acting": ACTING},
        styles=("fleet.css", "acts.css", *styles),
        scripts=("fleet.js",),
        verdict=verdict,
        unproven=unproven(skipped) if skipped else "",
        causes=causes(findings(results, LOUD)),
        racks=racks_of(results),
        quiet=findings(results, ("skip", *EVERY[len(ORDER) :]) if verbose else ("skip",)),
        bad=[(host, status) for host, status in states.items() if status in BAD],
        words=words,
        **{**PARTS, **more},
    )


def _group_by_host(
    results: Sequence[Result] | Many, fixed: Mapping[str, State]
) -> tuple[Mapping[str, Sequence[Result]], dict[str, State], Mapping[str, NextBoot]]:
    if isinstance(results, Many):
        states = {entry: state(entry.rows, entry.verdict) for entry in results.alike}
        hosts = results.hosts.items()
        return (
            results.rows,
            {host: states[entry] for host, entry in hosts} | {**fixed},
            {host: entry.next_boot for host, entry in hosts},
        )
    rows: dict[str, list[Result]] = {}
    for result in results:
        rows.setdefault(result.host, []).append(result)
    return rows, {host: state(host_rows) for host, host_rows in rows.items()} | {**fixed}, next_boot(results)


def _make_plan_command(about: About | None) -> str:
    """Return the command that shows all changes to a host, without the host's name."""
    inventory = about.inventory if about and ", " not in about.inventory else ""
    return shlex.join(["gpuprov", "plan", *filter(None, [inventory]), "--limit"])


def limit(hosts: Sequence[str]) -> str:
    """Return the hosts in the form for gpuprov's or Ansible's command line."""
    return f"--limit {shlex.quote(names(hosts).replace(', ', ','))}"


# Variables of the template that are the same for all pages, unless a page has its own `limit`.
PARTS = {"states": STATES, "titles": TITLES, "letters": LETTERS, "limit": limit, "brief": brief, "most": MOST}
