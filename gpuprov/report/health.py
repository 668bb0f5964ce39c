"""Output of `gpuprov health`: for each host whether it is fit for work, the action to take, and why."""

import time
from collections.abc import Sequence

import msgspec

from gpuprov.catalog.xids import Action
from gpuprov.core.fill import fill
from gpuprov.core.sanitize import CYAN, GREEN, RED, YELLOW, cleaned, hanging, paint
from gpuprov.inventory.names import fold_names
from gpuprov.report.document import Document, HostDocument, Summary, conclude, sum_up
from gpuprov.report.lacking import fold_lacking
from gpuprov.report.prometheus import format_gauges, sample
from gpuprov.report.text import describe_rack, following, labelled
from gpuprov.verify.evaluate import Result, ResultStatus
from gpuprov.verify.fitness import Fit, Fitness, fitness, judge_fitness
from gpuprov.verify.racks import Rack, find_racks

COLOURS = {"yes": GREEN, "until": YELLOW, "no": RED, "not proven": CYAN}


def as_text(results: Sequence[Result], *, colour: bool = False, width: int = 100, verbose: bool = False) -> str:
    """Render racks first, then unfit hosts, the most severe action first; each with its causes and their symptoms.
    Hosts of which the same is to be said are one paragraph."""
    judged = sorted(fitness(results), key=order)
    lines = [line for rack in find_racks(results) for line in describe_rack(rack, width)]
    alike: dict[tuple[str, ...], list[Fitness]] = {}
    for entry in judged:
        paragraph = _format_causes(entry, width=width)
        if verbose:
            passed = [row for row in results if row.host == entry.host and row.status in ("pass", "n/a")]
            paragraph += [f"  {row.status:<5} {cleaned(row.check)}  {cleaned(row.found)}" for row in passed]
        alike.setdefault((entry.fit, cleaned(entry.sentence), *paragraph), []).append(entry)
    for (_, sentence, *paragraph), hosts in alike.items():
        words = paint(sentence, COLOURS[hosts[0].fit]) if colour else sentence
        named = fold_names(cleaned(host.host) for host in hosts)
        *first, last = hanging(named if len(hosts) == 1 else f"{named} ({len(hosts):,} hosts)", width)
        lines += [*first, f"{last}: {words}", *paragraph]
    return "\n".join([*lines, "", format_summary(judged)]) + "\n"


def format_summary(judged: Sequence[Fitness]) -> str:
    """Format the summary: `3 hosts: 2 fit, 1 not fit`."""
    return f"{len(judged):,} host{'s' * (len(judged) != 1)}: {', '.join(count_fits(judged)) or 'nothing judged'}"


def count_fits(judged: Sequence[Fitness]) -> list[str]:
    """Count the hosts by their fitness, in words: `2 fit`, `1 not fit`."""
    words = {"yes": "fit", "until": "fit after an action", "no": "not fit", "not proven": "not proven"}
    counts = {fit: sum(host.fit == fit for host in judged) for fit in words}
    return [f"{number:,} {words[fit]}" for fit, number in counts.items() if number]


def order(fitness: Fitness) -> tuple[int, str]:
    """Return the sort key of hosts: unfit ones come first."""
    return ("no", "until", "not proven", "yes").index(fitness.fit), fitness.host


def _format_causes(fitness: Fitness, *, width: int) -> list[str]:
    lines = []
    for cause in fitness.causes:
        action = f" [{cause.action}]" if cause.action not in ("", "none") else ""
        lines += labelled("because", f"{cause.check}{action}: {cause.found}", width)
        lines += labelled("do", cause.fix, width)
        lines += labelled("see", cause.evidence, width, whole=True)
        lines += following(fitness.followers.get(cause.check, ()), width)
    for row in fitness.notices:
        lines += labelled("told", f"{row.check} [{row.action}]: {row.found}", width)
    alone, folded = fold_lacking((row, fitness.host, row) for row in fitness.unproven)
    for reason, rows in folded.items():
        lines += labelled("unproven", f"{reason}: {', '.join(row.check for row in rows)}", width)
    for row in alone:
        lines += labelled("unproven", f"{row.check}: {row.found}", width)
        lines += labelled("do", row.fix, width)
    return lines


class HealthRow(msgspec.Struct, kw_only=True):
    """The result of one check. `action`: what NVIDIA says is to be done; empty: nothing; `evidence`: the command that
    shows it."""

    check: str
    status: ResultStatus
    action: str
    expected: str
    found: str
    evidence: str
    fix: str


class HealthCause(HealthRow, kw_only=True):
    """A failure that is not caused by another one; `followers`: checks that failed only because of it."""

    followers: tuple[str, ...]


class HealthHost(HostDocument, frozen=True, kw_only=True):
    """A host. `fit`: for work; until: it is after `action`. `told`: passes, but recommends something. `passed`: names
    of checks."""

    fit: Fit
    action: Action
    words: str
    causes: tuple[HealthCause, ...]
    told: tuple[HealthRow, ...]
    unproven: tuple[HealthRow, ...]
    passed: tuple[str, ...]


class Health(Document, kw_only=True, tag="health"):
    """The document that `gpuprov health --json` prints: hosts in the order of the inventory; `racks` of which several
    hosts report fatal NVLink errors, or ask to recover the IMEX domain."""

    hosts: tuple[HealthHost, ...]
    racks: tuple[Rack, ...] = ()


def build_document(results: Sequence[Result], seconds: float | None = None) -> Health:
    """Return the document, from the results of health checks."""
    passed: dict[str, list[str]] = {}
    for result in results:
        if result.status == "pass":
            passed.setdefault(result.host, []).append(result.check)
    outcomes, judged = judge_fitness(results), fitness(results)
    hosts = [
        fill(
            HealthHost,
            host,
            outcome=outcomes[host.host],
            words=str(host),
            causes=tuple(
                fill(HealthCause, cause, followers=host.followers.get(cause.check, ())) for cause in host.causes
            ),
            told=tuple(fill(HealthRow, row) for row in host.notices),
            unproven=tuple(fill(HealthRow, row) for row in host.unproven),
            passed=tuple(passed.get(host.host, ())),
        )
        for host in judged
    ]
    summary = sum_up(Summary, format_summary(judged), outcomes.values())
    racks = find_racks(results)
    return conclude(Health, None, outcomes.values(), seconds, summary=summary, hosts=tuple(hosts), racks=racks)


# Name and help of each metric, in the order of the file; all are gauges, and none is shared with `gpuprov verify`.
METRICS = {
    "gpuprov_health_timestamp_seconds": "When the health check that wrote this file ended, in Unix time.",
    "gpuprov_host_fit": "1 if the host is fit for work, 0 if not, -1 if that is not proven.",
    "gpuprov_host_action": "1 for the most severe action that is asked for on the host.",
    "gpuprov_health_check_failed": "1 for each check of the host that fails and follows from no other.",
    "gpuprov_rdma_errors": "Errors of RDMA's transport that a port has counted since its driver was loaded "
    "(hw_counters); port 0: the device.",
}
FIT = {"yes": 1, "until": 0, "no": 0, "not proven": -1}


def as_metrics(results: Sequence[Result], now: float | None = None) -> str:
    """Return the same for node_exporter's textfile collector."""
    lines: dict[str, list[str]] = {name: [] for name in METRICS}
    ended = time.time() if now is None else now
    lines["gpuprov_health_timestamp_seconds"].append(sample("gpuprov_health_timestamp_seconds", round(ended, 3)))
    for entry in fitness(results):
        lines["gpuprov_host_fit"].append(sample("gpuprov_host_fit", FIT[entry.fit], host=entry.host))
        if entry.action != "none":
            lines["gpuprov_host_action"].append(sample("gpuprov_host_action", 1, host=entry.host, action=entry.action))
        for cause in entry.causes:
            labels = {"host": entry.host, "check": cause.check, "action": cause.action or "none"}
            lines["gpuprov_health_check_failed"].append(sample("gpuprov_health_check_failed", 1, **labels))
    for result in results:
        for counter in result.counters:
            labels = {"host": result.host, "device": counter.device, "port": str(counter.port), "counter": counter.name}
            lines["gpuprov_rdma_errors"].append(sample("gpuprov_rdma_errors", counter.value, **labels))
    return format_gauges(METRICS, lines)
