"""Messages of network adapters' drivers in the kernel log, and RDMA's error counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gpuprov.capabilities.base import Counter, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.health.fragment import Ctx
from gpuprov.capabilities.health.links import counting_ports, quoted
from gpuprov.capabilities.health.log import SHOWN, readable, span
from gpuprov.catalog.nics import NicLine, find_nic_line, speakers
from gpuprov.catalog.xids import SEVERITY
from gpuprov.probe.gpus.health_links import PORT_ERRORS, PortErrors
from gpuprov.probe.kernel.kernel_log import KERNEL_LOG, NIC_DRIVERS, KernelLog, Line, nic_messages
from gpuprov.probe.rdma import DEVICES


class Finding(NamedTuple):
    """The lines from one device's driver that match one entry of the catalogue."""

    entry: NicLine
    device: str
    lines: tuple[Line, ...]

    def __str__(self) -> str:
        return quoted(self.lines)


class NicLog(NamedTuple):
    """Findings that still hold, the most severe first, and those that a recovery, a reload of the driver or a boot has ended."""

    unfit: tuple[Finding, ...] = ()
    reported: tuple[Finding, ...] = ()
    past: tuple[Finding, ...] = ()


def judge_nic_lines(log: KernelLog) -> NicLog:
    """Return the findings that still hold in the adapters' driver messages, device by device."""
    standing: dict[tuple[str, str], Finding] = {}
    past: list[Finding] = []
    booted = log.booted()
    for message in nic_messages(log):
        entry = find_nic_line(speakers(message.line.text) or (), message.line.text)
        if entry is None:
            continue
        if entry.verdict == "recovered":
            for key in [
                key for key, one in standing.items() if key[1] == message.device and entry.makes_past(one.entry)
            ]:
                past.append(standing.pop(key))
        elif message.line.at < booted:
            past.append(Finding(entry, message.device, (message.line,)))
        else:
            key = entry.key, message.device
            before = standing[key].lines if key in standing else ()
            standing[key] = Finding(entry, message.device, (*before, message.line))
    found = sorted(standing.values(), key=lambda one: (-SEVERITY.index(one.entry.action), -one.lines[-1].at))
    unfit = tuple(one for one in found if one.entry.verdict == "unfit")
    return NicLog(unfit, tuple(one for one in found if one not in unfit), tuple(past))


def _listed(label: str, findings: Sequence[Finding]) -> str:
    more = f"; and {len(findings) - SHOWN} more" if len(findings) > SHOWN else ""
    return f"; {label}: {'; '.join(map(str, findings[:SHOWN]))}{more}" if findings else ""


@check(
    "health.rdma_log",
    KERNEL_LOG,
    fields=("since",),
    evidence=f"journalctl -k -b | grep -wE '{'|'.join((*NIC_DRIVERS, 'infiniband'))}'",
)
def rdma_log(ctx: Ctx) -> Outcome:
    """No network adapter's driver reports that its firmware or hardware failed, that ports lack power or that it is too hot, unless it
    recovered since. Cables, hot modules, refused commands and successful resets are only reported."""
    log = readable(ctx)
    found = judge_nic_lines(log)
    expected = "no network adapter that failed, has ports without power or is too hot"
    told = _listed("told", found.reported)
    if found.unfit:
        entry = found.unfit[0].entry
        listed = _listed("", found.unfit).removeprefix("; : ")
        return fail(expected, listed + told, f"{entry.fix} gpuprov explain {entry.key}", action=entry.action)
    return ok(f"none {span(log)}{told}{_listed('past', found.past)}", expected)


@check("health.rdma_counters", PORT_ERRORS, DEVICES, fields=("transport_errors",), evidence="rdma -p statistic show")
def rdma_counters(ctx: Ctx) -> Outcome:
    """No port of an RDMA device counted more transport errors than the spec allows. Without a limit in the spec they are only
    reported: they are totals, and every program that breaks off its connections causes some."""
    most = ctx.fragment.transport_errors
    ports = [port for port in counting_ports(ctx) if port.transport is not None]
    if not ports:
        return not_asked("no RDMA device counts errors of its transport")
    expected = "told" if most is None else f"at most {most} of each counter"
    over = _count_errors(ports, most or 0)
    if most is not None and over:
        hint = "look at switches, cables, PFC and ECN on the way to the peers; a reload of the driver sets the counters to zero"
        outcome = fail(expected, over, hint)
    else:
        outcome = ok(f"{len(ports)} ports; {_count_errors(ports, 0) or 'none'}", expected)
    counters = tuple(
        Counter(device=port.device, port=port.port, name=name, value=value)
        for port in ports
        for name, value in (port.transport or {}).items()
    )
    return msgspec.structs.replace(outcome, counters=counters)


def _count_errors(ports: Sequence[PortErrors], limit: int) -> str:
    """Return the counters above the limit, port by port."""
    counted = {
        port.name: {key: count for key, count in (port.transport or {}).items() if count > limit} for port in ports
    }
    return "; ".join(
        f"{name}: {', '.join(f'{key} {count}' for key, count in found.items())}"
        for name, found in counted.items()
        if found
    )


CHECKS = (rdma_log, rdma_counters)
