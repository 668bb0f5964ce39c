"""What `gpuprov health` prints: for each host whether it is fit for work, what is to be done, and why."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from gpuprov import __version__
from gpuprov.report.prometheus import sample
from gpuprov.report.text import labelled
from gpuprov.shown import cleaned
from gpuprov.verify.evaluate import Result
from gpuprov.verify.fitness import Fitness, fitness, health_code

COLOURS = {"yes": "32", "until": "33", "no": "31", "not proven": "36"}


def as_text(results: Sequence[Result], *, colour: bool = False, width: int = 100, verbose: bool = False) -> str:
    """Hosts that are not fit first, the most severe action first; each with its causes and what was seen of them."""
    found = sorted(fitness(results), key=_order)
    lines: list[str] = []
    for one in found:
        lines += _host(one, colour=colour, width=width)
        if verbose:
            passed = [row for row in results if row.host == one.host and row.status in ("pass", "n/a")]
            lines += [f"  {row.status:<5} {cleaned(row.check)}  {cleaned(row.found)}" for row in passed]
    counts = {fit: sum(one.fit == fit for one in found) for fit in COLOURS}
    words = {"yes": "fit", "until": "fit after an action", "no": "not fit", "not proven": "not proven"}
    told = ", ".join(f"{number} {words[fit]}" for fit, number in counts.items() if number)
    return "\n".join([*lines, "", f"{len(found)} host{'s' * (len(found) != 1)}: {told or 'nothing judged'}"]) + "\n"


def _order(one: Fitness) -> tuple[int, str]:
    return ("no", "until", "not proven", "yes").index(one.fit), one.host


def _host(one: Fitness, *, colour: bool, width: int) -> list[str]:
    words = cleaned(str(one))
    if colour:
        words = f"\x1b[{COLOURS[one.fit]}m{words}\x1b[0m"
    lines = [f"{cleaned(one.host)}  fit for work: {words}"]
    for cause in one.causes:
        action = f" [{cause.action}]" if cause.action not in ("", "none") else ""
        lines += labelled("because", f"{cause.check}{action}: {cause.found}", width)
        lines += labelled("do", cause.hint, width)
        if cause.evidence:
            lines.append(f"  {'see':<10}{cleaned(cause.evidence)}")
        if follow := one.followers.get(cause.check):
            lines += labelled("follow", ", ".join(follow), width)
    for row in one.told:
        lines += labelled("told", f"{row.check} [{row.action}]: {row.found}", width)
    for row in one.unproven:
        lines += labelled("unproven", f"{row.check}: {row.found}", width)
        lines += labelled("do", row.hint, width)
    return lines


def as_json(results: Sequence[Result]) -> str:
    """The same as one document: hosts in the order of the inventory."""

    def row(one: Result) -> dict[str, Any]:
        keys = ("check", "status", "action", "expected", "found", "evidence", "hint")
        return {key: getattr(one, key) for key in keys}

    hosts = [
        {
            "host": one.host,
            "fit": one.fit,
            "action": one.action,
            "words": str(one),
            "causes": [{**row(cause), "followers": list(one.followers.get(cause.check, ()))} for cause in one.causes],
            "told": [row(told) for told in one.told],
            "unproven": [row(unproven) for unproven in one.unproven],
            "passed": [row.check for row in results if row.host == one.host and row.status == "pass"],
        }
        for one in fitness(results)
    ]
    return json.dumps({"gpuprov": __version__, "exit_code": health_code(results), "hosts": hosts}, indent=2)


METRICS = {
    "gpuprov_health_timestamp_seconds": "When the health check that wrote this file ended, in Unix time.",
    "gpuprov_host_fit": "1 if the host is fit for work, 0 if not, -1 if that is not proven.",
    "gpuprov_host_action": "1 for the most severe action that is asked for on the host.",
    "gpuprov_health_check_failed": "1 for each check of the host that fails and follows from no other.",
}
"""Name and help of each metric, in the order of the file; all are gauges, and none is one of `gpuprov verify`."""
FIT = {"yes": 1, "until": 0, "no": 0, "not proven": -1}


def as_metrics(results: Sequence[Result], now: float | None = None) -> str:
    """The same for node_exporter's textfile collector."""
    lines: dict[str, list[str]] = {name: [] for name in METRICS}
    ended = time.time() if now is None else now
    lines["gpuprov_health_timestamp_seconds"].append(sample("gpuprov_health_timestamp_seconds", round(ended, 3)))
    for one in fitness(results):
        lines["gpuprov_host_fit"].append(sample("gpuprov_host_fit", FIT[one.fit], host=one.host))
        if one.action != "none":
            lines["gpuprov_host_action"].append(sample("gpuprov_host_action", 1, host=one.host, action=one.action))
        for cause in one.causes:
            labels = {"host": one.host, "check": cause.check, "action": cause.action or "none"}
            lines["gpuprov_health_check_failed"].append(sample("gpuprov_health_check_failed", 1, **labels))
    told = []
    for name, found in lines.items():
        told += [f"# HELP {name} {METRICS[name]}", f"# TYPE {name} gauge", *found] if found else []
    return "\n".join(told) + "\n"
