"""Results as ONE self-contained HTML page: nothing is loaded from anywhere, everything from a host is escaped."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from gpuprov.inventory.names import folded as names
from gpuprov.report import page
from gpuprov.report.fleet import Known, causes, data
from gpuprov.report.fold import EVERY, ORDER, brief, findings, summed
from gpuprov.report.many import Many
from gpuprov.report.page import About, State
from gpuprov.report.states import BAD, LETTERS, WORDS, headline, state
from gpuprov.report.text import unproven
from gpuprov.verify import Result
from gpuprov.verify.evaluate import ResultStatus
from gpuprov.verify.verify import NextBoot, next_boot

STATES = {
    "unreachable": "gone",
    "fail": "fail",
    "error": "error",
    "skip": "unproven",
    "pass": "right",
    "n/a": "unproven",
}
TITLES = {"unreachable": "unreachable", "fail": "failed", "error": "error"}
LOUD: tuple[ResultStatus, ...] = ("unreachable", "fail", "error")
MOST = 6
"""What was found otherwise on other hosts: so many are in a cause, the others with the hosts."""


def render(
    results: Sequence[Result] | Many,
    title: str = "gpuprov verify",
    *,
    verbose: bool = False,
    about: About | None = None,
    known: Mapping[str, Known] | None = None,
) -> str:
    """The page. Equal findings of many hosts stand once; each host has a square. The same results give the same text.

    verbose: also what asks nothing of a host. about: where the results are from. known: what is shown of a host beside them.
    """
    rows, states, boots = _by_host(results)
    numbers = summed(results)
    told, skipped = numbers.verdict, numbers.counts["skip"]
    quiet = findings(results, ("skip", *EVERY[len(ORDER) :]) if verbose else ("skip",))
    return page.render(
        "report.html.j2",
        title=title,
        headline=headline(told, states, boots.values(), skipped),
        about=about,
        data=data(rows, states, boots, known or {}, verbose=verbose),
        styles=("fleet.css",),
        scripts=("fleet.js",),
        verdict=told,
        unproven=unproven(skipped) if skipped else "",
        causes=causes(findings(results, LOUD)),
        quiet=quiet,
        bad=[(host, one) for host, one in states.items() if one in BAD],
        states=STATES,
        titles=TITLES,
        letters=LETTERS,
        words=WORDS,
        limit=limit,
        brief=brief,
        most=MOST,
    )


def _by_host(
    results: Sequence[Result] | Many,
) -> tuple[Mapping[str, Sequence[Result]], dict[str, State], Mapping[str, NextBoot]]:
    if isinstance(results, Many):
        states = {one: state(one.rows, one.verdict) for one in results.alike}
        hosts = results.hosts.items()
        return results.rows, {host: states[one] for host, one in hosts}, {host: one.next_boot for host, one in hosts}
    rows: dict[str, list[Result]] = {}
    for one in results:
        rows.setdefault(one.host, []).append(one)
    return rows, {host: state(found) for host, found in rows.items()}, next_boot(results)


def limit(hosts: Sequence[str]) -> str:
    """The hosts as a shell hands them to gpuprov or Ansible."""
    return f"--limit {shlex.quote(names(hosts).replace(', ', ','))}"
