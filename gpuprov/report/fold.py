"""Condenses many hosts: `gpu[001:032]`, identical findings once, hosts with equal outcomes in one line."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from gpuprov.inventory.names import fold_names as names
from gpuprov.report.folded import EVERY, FOLLOW, ORDER, Finding, HostLine, Summed
from gpuprov.report.many import Many
from gpuprov.verify.evaluate import FAILING, Result, ResultStatus
from gpuprov.verify.racks import Rack, find_racks
from gpuprov.verify.verify import next_boot, verdict


def summed(results: Sequence[Result] | Many) -> Summed:
    """Return the numbers."""
    if isinstance(results, Many):
        return results.summed()
    return Summed(
        hosts=len({result.host for result in results}),
        bad=len({result.host for result in results if result.status in ("unreachable", "fail", "error")}),
        counts=totals(results),
        follow=sum(bool(result.follows) for result in results),
        verdict=verdict(results),
    )


def racks_of(results: Sequence[Result] | Many) -> Sequence[Rack]:
    """Return the racks of which several hosts report errors."""
    return results.racks if isinstance(results, Many) else find_racks(results)


def findings(results: Iterable[Result] | Many, statuses: Sequence[ResultStatus] = ORDER) -> list[Finding]:
    """Return equal results of many hosts once; the worst first, then those of most hosts, else in the order given.

    Failures caused by another failure are listed with it. The command that shows why a host is unreachable differs from
    host to host, so the first host's is shown.
    """
    if isinstance(results, Many):
        return _sort_worst_first(results.findings(statuses))
    hosts: dict[Result, list[Result]] = {}
    following: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if result.follows:
            following.setdefault((result.host, result.follows), []).append(result)
        elif result.status in statuses:
            same = msgspec.structs.replace(result, host="", changes=())
            key = msgspec.structs.replace(same, evidence="") if result.status == "unreachable" else same
            hosts.setdefault(key, []).append(result)
    merged = []
    for key, rows in hosts.items():
        followers: dict[str, Result] = {}
        for row in rows:
            for result in following.get((row.host, row.check), ()) if row.status in FAILING else ():
                followers.setdefault(result.check, result)
        first = msgspec.structs.replace(key, evidence=rows[0].evidence)
        merged.append(Finding(first, tuple(dict.fromkeys(row.host for row in rows)), tuple(followers.values())))
    return _sort_worst_first(merged)


def _sort_worst_first(unsorted: Iterable[Finding]) -> list[Finding]:
    return sorted(unsorted, key=lambda finding: (EVERY.index(finding.result.status), -len(finding.hosts)))


def host_lines(results: Sequence[Result] | Many, *, fold: bool = True) -> list[HostLine]:
    """Return a line per host, or per set of hosts with the same outcome; in the order given."""
    if isinstance(results, Many):
        return results.lines(fold=fold)
    counts: dict[str, Counter[str]] = {}
    for result in results:
        counted = counts.setdefault(result.host, Counter())
        if result.follows:
            counted[FOLLOW] += 1
        elif result.status in ORDER:
            counted[result.status] += 1
    verdicts = next_boot(results)
    lines: dict[object, HostLine] = {}
    for host, counted in counts.items():
        key = (tuple(sorted(counted.items())), verdicts[host]) if fold else host
        before = lines[key].hosts if key in lines else ()
        lines[key] = HostLine((*before, host), dict(counted), verdicts[host])
    return list(lines.values())


def totals(results: Iterable[Result]) -> dict[ResultStatus, int]:
    """Count the results by status, without failures caused by another failure."""
    counted = Counter(result.status for result in results if not result.follows)
    return {status: counted[status] for status in ORDER}


def brief(hosts: Iterable[str], room: int = 160) -> str:
    """Return the names, cut at a comma if they are longer than `room`."""
    text = names(hosts)
    return text if len(text) <= room else f"{text[: room + 1].rpartition(',')[0] or text[:room]}, ..."
