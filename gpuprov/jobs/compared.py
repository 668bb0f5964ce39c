"""Results that depend on all hosts of a report, whichever job had them: firmware, and the racks that share an NVLink
fabric."""

import msgspec

from gpuprov.capabilities.health.firmware import judge_fleet
from gpuprov.facts.probes.gpus.fabric import NvlinkError
from gpuprov.jobs.model import Compared
from gpuprov.report.many import Alike
from gpuprov.verify.evaluate import Result
from gpuprov.verify.racks import Rack, complete, find_shared, list_racks, refer
from gpuprov.verify.verify import NOT_CONCERNED, NextBoot


class Kept(msgspec.Struct, frozen=True, gc=False):
    """Data kept for one host."""

    ended: str
    seconds: float
    alike: Alike
    compared: Compared | None = None
    machine: str = ""
    nvlink_errors: tuple[NvlinkError, ...] = ()


def complete_hosts(kept: dict[str, Kept]) -> tuple[Rack, ...]:
    """Complete the checks that depend on other hosts, in place; return the racks of which several hosts report
    errors."""
    _compare_firmware(kept)
    racks = list_racks((host, entry.nvlink_errors) for host, entry in kept.items())
    referred: dict[tuple[Alike, str], Alike] = {}
    for host, rack in find_shared(racks).items():
        entry = kept[host].alike
        if (entry, rack) not in referred:
            rows = tuple(refer(row, rack) for row in entry.rows)
            referred[entry, rack] = msgspec.structs.replace(entry, rows=rows)
        kept[host] = msgspec.structs.replace(kept[host], alike=referred[entry, rack])
    return racks


def _compare_firmware(kept: dict[str, Kept]) -> None:
    hosts = {host: entry.compared.firmware for host, entry in kept.items() if entry.compared}
    known: dict[tuple[Alike, Result], Alike] = {}
    machines = {host: kept[host].machine for host in hosts}
    for host, outcome in judge_fleet(hosts, machines).items():
        entry = kept[host]
        if entry.compared and entry.alike.state != "unreachable":
            own = entry.compared.row.result()
            key = (entry.alike, complete(own, outcome))
            if key not in known:
                known[key] = replace_row(entry.alike, own, key[1])
            kept[host] = msgspec.structs.replace(entry, alike=known[key])


def replace_row(entry: Alike, own: Result, row: Result) -> Alike:
    """Return a host's results with one of them replaced, and what follows from it."""
    counts = {**entry.counts}
    for status, change in ((own.status, -1), (row.status, 1)):
        if status != "n/a":
            counts[status] = counts.get(status, 0) + change
    others = [other for other in entry.rows if other.check != own.check]
    rows = sorted(
        [*others, *([row] if row.status in ("fail", "skip") else [])], key=lambda other: other.status == "skip"
    )
    verdict, boot = entry.verdict, entry.next_boot
    if row.status == "fail":
        verdict = "differs"
        reasons = tuple(
            reason for reason in boot.reasons if reason != NOT_CONCERNED and not reason.startswith(f"{row.check} ")
        )
        if boot.verdict != "wrong":
            boot = NextBoot("unknown", (*reasons, f"{row.check} fails now and a reboot does not fix it"))
    elif verdict in ("matches", "not proven"):
        verdict = "matches" if counts.get("pass") else "not proven"
    return msgspec.structs.replace(
        entry,
        rows=tuple(rows),
        counts={status: number for status, number in counts.items() if number},
        verdict=verdict,
        next_boot=boot,
    )
