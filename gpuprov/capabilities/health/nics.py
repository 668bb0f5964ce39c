"""Messages of network adapters' drivers in the kernel log, and RDMA's error counters."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gpuprov.capabilities.base import Counter, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.health.fragment import Ctx
from gpuprov.capabilities.health.links import counting_ports
from gpuprov.capabilities.health.log import SHOWN, Finding, failed, readable, span, unfit
from gpuprov.catalog.nics import speaker
from gpuprov.catalog.verdicts import Verdict, judge_line
from gpuprov.catalog.xids import SEVERITY
from gpuprov.facts.probes.gpus.health_links import PORT_ERRORS, PortErrors
from gpuprov.facts.probes.kernel.kernel_log import KERNEL_LOG, NIC_DRIVERS, KernelLog
from gpuprov.facts.probes.rdma import DEVICES

# The PCI address in the name of an RDMA device, in decimal numbers: rdmap0s6, rocep65s0f0, roceP2p1s0f0
# (https://github.com/linux-rdma/rdma-core/blob/master/kernel-boot/rdma_rename.c).
RDMA_ADDRESS = re.compile(r"[a-z]+(?:P(\d{1,5}))?p(\d{1,3})s(\d{1,2})(?:f(\d))?")


class NicLog(NamedTuple):
    """Findings that still hold, the most severe first, and those that a recovery, a reload of the driver or a boot has
    ended."""

    unfit: tuple[Finding, ...] = ()
    reported: tuple[Finding, ...] = ()
    past: tuple[Finding, ...] = ()


def judge_nic_lines(log: KernelLog) -> NicLog:
    """Return the findings that still hold in the adapters' driver messages, device by device."""
    standing: dict[tuple[str, str], Finding] = {}
    past: list[Finding] = []
    booted, addresses = log.booted(), _map_addresses(log)
    for line in log.lines:
        verdict = judge_line(line.text)
        if verdict is None or verdict.nic is None:
            continue
        device = addresses.get(verdict.device) or _parse_address(verdict.device)
        verdict = msgspec.structs.replace(verdict, device=device)
        if verdict.standing == "recovered":
            for key in [
                key for key, finding in standing.items() if key[1] == device and _is_end(verdict, finding.verdict)
            ]:
                past.append(standing.pop(key))
        elif line.at < booted:
            past.append(Finding(verdict, (line,)))
        else:
            before = standing[verdict.key, device].lines if (verdict.key, device) in standing else ()
            standing[verdict.key, device] = Finding(verdict, (*before, line))
    ordered = sorted(
        standing.values(), key=lambda finding: (-SEVERITY.index(finding.verdict.action), -finding.lines[-1].at)
    )
    bad = tuple(unfit(ordered))
    return NicLog(bad, tuple(finding for finding in ordered if finding not in bad), tuple(past))


def _is_end(later: Verdict, earlier: Verdict) -> bool:
    return later.nic is not None and earlier.nic is not None and later.nic.makes_past(earlier.nic)


def _map_addresses(log: KernelLog) -> dict[str, str]:
    """Return the addresses of named devices, from the lines that have both."""
    speakers = (speaker(line.text) for line in log.lines)
    return {source.name: source.device for source in speakers if source is not None and source.name}


def _parse_address(name: str) -> str:
    """Parse the PCI address in the name of an RDMA device; else return the name."""
    if match := RDMA_ADDRESS.fullmatch(name):
        domain, bus, slot, function = (int(part or 0) for part in match.groups())
        return f"{domain:04x}:{bus:02x}:{slot:02x}.{function}"
    return name


def _join_names(label: str, findings: Sequence[Finding]) -> str:
    more = f"; and {len(findings) - SHOWN} more" if len(findings) > SHOWN else ""
    return f"; {label}: {'; '.join(map(str, findings[:SHOWN]))}{more}" if findings else ""


@check(
    "health.rdma_log",
    KERNEL_LOG,
    fields=("since",),
    evidence=f"journalctl -k -b | grep -wE '{'|'.join((*NIC_DRIVERS, 'infiniband'))}'",
)
def rdma_log(ctx: Ctx) -> Outcome:
    """No network adapter's driver reports that its firmware or hardware failed, that ports lack power or that it is too
    hot, unless it recovered since. Cables, hot modules, refused commands and successful resets are only reported."""
    log = readable(ctx)
    judged = judge_nic_lines(log)
    expected = "no network adapter that failed, has ports without power or is too hot"
    suffix = _join_names("told", judged.reported)
    if judged.unfit:
        return failed(expected, judged.unfit, suffix)
    return ok(f"none {span(log)}{suffix}{_join_names('past', judged.past)}", expected)


@check("health.rdma_counters", PORT_ERRORS, DEVICES, fields=("transport_errors",), evidence="rdma -p statistic show")
def rdma_counters(ctx: Ctx) -> Outcome:
    """No port of an RDMA device counted more transport errors than the spec allows. Without a limit in the spec they
    are only reported: they are totals, and every program that breaks off its connections causes some."""
    most = ctx.fragment.transport_errors
    ports = [port for port in counting_ports(ctx) if port.transport is not None]
    if not ports:
        return not_asked("no RDMA device counts errors of its transport")
    expected = "told" if most is None else f"at most {most} of each counter"
    over = _count_errors(ports, most or 0)
    if most is not None and over:
        fix = (
            "look at switches, cables, PFC and ECN on the way to the peers; a reload of the driver sets the "
            "counters to zero"
        )
        outcome = fail(expected, over, fix)
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
        f"{name}: {', '.join(f'{key} {count}' for key, count in counts.items())}"
        for name, counts in counted.items()
        if counts
    )


CHECKS = (rdma_log, rdma_counters)
