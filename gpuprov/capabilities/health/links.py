"""Error counters of links and kernel messages about them: NVLink, PCIe, InfiniBand."""

import re
from collections.abc import Sequence

from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.health.fragment import Ctx
from gpuprov.capabilities.health.log import Finding, failed, findings, quoted, readable, reported, span, unfit
from gpuprov.capabilities.health.past import moment
from gpuprov.capabilities.health.reported import shown
from gpuprov.catalog import health as catalogue
from gpuprov.catalog.gpus import find_gpu
from gpuprov.catalog.kernel import ADDRESS
from gpuprov.catalog.topology import always_has_nvlinks
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.gpus.gpu_health import GPU_HEALTH
from gpuprov.facts.probes.gpus.health_links import NVLINK_ERRORS, PORT_ERRORS, NvLinkErrors, PortErrors
from gpuprov.facts.probes.gpus.nvlink import ALONE
from gpuprov.facts.probes.kernel.kernel_log import KERNEL_LOG, NIC_DRIVERS, Line
from gpuprov.facts.probes.rdma import DEVICES
from gpuprov.facts.probes.rdma.link_flaps import LINK_FLAPS

CABLE = "reseat or replace the cable or transceiver; compare the switch's port"
# Seconds in which flaps are counted: gpud_flap in catalog/data/health.yaml.
FLAPPING = 12 * 3600
# A transaction failed, and the link still works:
# https://github.com/torvalds/linux/blob/master/Documentation/PCI/pcieaer-howto.rst
NON_FATAL = "(Non-Fatal)"
# Drivers of monitored devices: GPUs, including those of virtual machines, NVSwitches, HCAs, and ports, which lead to
# any of them.
WATCHED = frozenset({"nvidia", "nvidia-nvswitch", "vfio-pci", "pci", "pcieport", *NIC_DRIVERS})
SPEAKER = re.compile(rf"(\S+) ({ADDRESS}): ")
# The device whose error a port has received.
SENDER = re.compile(rf"received(?: from)?:? ({ADDRESS})")


COUNTS = {"crc": "CRC errors", "replays": "replays", "recoveries": "recoveries", "faults": "errors"}
# Bit error rates of a GPU's NVLinks, in words.
RATES = {"effective_ber": "effective BER", "symbol_ber": "symbol BER"}


@check("health.nvlink_errors", NVLINK_ERRORS, GPU_HEALTH, fields=("nvlink_errors",), evidence="nvidia-smi nvlink -e")
def nvlink_errors(ctx: Ctx) -> Outcome:
    """The NVLinks of each GPU had no more replays and recoveries, or errors of NVLink 5, than the spec allows, and no
    bit error rate above its limit; CRC errors are reported. Counters that a GPU does not have are not reported."""
    state, limit = ctx.facts.get(NVLINK_ERRORS), ctx.fragment.nvlink_errors
    linked = [gpu for gpu in state.gpus if gpu.links]
    gpus = shown(ctx) if state.nameless else ()
    if gpus and (len(gpus) == 1 or not any(always_has_nvlinks(find_gpu(gpu.name)) for gpu in gpus)):
        return not_asked(state.complaint + f", {ALONE}" * (len(gpus) == 1))
    if state.complaint:
        raise ProbeFailed(f"NVLink's errors are not known: {state.complaint}", "see health.gpus")
    if not linked:
        return not_asked("no GPU has NVLinks")
    expected = f"at most {limit} replays and recoveries, or errors, of each GPU's NVLinks"
    if bad := [f"GPU {gpu.index} has {words}" for gpu in linked if (words := _describe_bad_links(gpu, limit))]:
        fix = "reset the GPUs that the link joins; again on the same link: the vendor's support; gpuprov explain 74"
        return fail(expected, "; ".join(bad), fix, action="reset")
    if silent := [str(gpu.index) for gpu in linked if not _describe_counters([gpu])]:
        return skip(f"NVLink errors are not reported by GPU {' '.join(silent)}")
    if unread := [f"GPU {gpu.index}, {words}" for gpu in linked for words in gpu.unread]:
        more = f"; and {len(unread) - 3} more" if len(unread) > 3 else ""
        return skip(f"values that are not numbers: {'; '.join(unread[:3])}{more}")
    lacking = dict.fromkeys(name for gpu in linked for name in gpu.uncounted)
    without = f"; not counted: {', '.join(lacking)}" if lacking else ""
    return ok(f"{counted(len(linked), 'GPU')}; {', '.join(_describe_counters(linked))}{without}", expected)


def _describe_bad_links(gpu: NvLinkErrors, limit: int) -> str:
    """Return which counters of a GPU's NVLinks exceed the limit, in words."""
    complaints = []
    if (gpu.replays or 0) + (gpu.recoveries or 0) > limit:
        counts = ((gpu.replays, "replays"), (gpu.recoveries, "recoveries"))
        complaints.append(" and ".join(f"{count} {name}" for count, name in counts if count is not None))
    if (gpu.faults or 0) > limit:
        complaints.append(f"{gpu.faults} errors")
    for key, words in RATES.items():
        if (getattr(gpu, key) or 0) > (most := catalogue.get_limit(key)):
            complaints.append(f"{words} {getattr(gpu, key):g}, above {most:g}")
    return ", ".join(complaints)


def _describe_counters(gpus: Sequence[NvLinkErrors]) -> list[str]:
    """Return the counters of these GPUs, in words; a counter that no GPU has is omitted."""
    complaints = []
    for name, words in COUNTS.items():
        counts = [count for gpu in gpus if (count := getattr(gpu, name)) is not None]
        if counts:
            complaints.append(f"{sum(counts)} {words}")
    for name, words in RATES.items():
        rates = [rate for gpu in gpus if (rate := getattr(gpu, name)) is not None]
        if rates:
            complaints.append(f"{words} at most {max(rates):g}")
    return complaints


@check("health.pcie_errors", KERNEL_LOG, fields=("since",), evidence="journalctl -k -b | grep -E 'AER|PCIe Bus Error'")
def pcie_errors(ctx: Ctx) -> Outcome:
    """There is no uncorrected PCIe error in the kernel log; corrected ones are reported, as are other non-fatal ones,
    of devices that are neither GPU, NVSwitch nor network adapter."""
    log = readable(ctx)
    expected = "no uncorrected PCIe error"
    matched = findings(log, "pcie_errors")
    others = _list_unmonitored([line for finding in unfit(matched) for line in finding.lines])
    if bad := [
        Finding(finding.verdict, lines)
        for finding in unfit(matched)
        if (lines := tuple(line for line in finding.lines if line not in others))
    ]:
        return failed(expected, bad, reported(matched))
    suffix = f"; of another device, not fatal: {quoted(others)}" if others else ""
    return ok(f"none {span(log)}{suffix}{reported(matched)}", expected)


def _list_unmonitored(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Return the lines about a non-fatal error of a device whose driver shows that it is not monitored."""
    matches = [match for line in lines if (match := SPEAKER.match(line.text)) is not None]
    others = {match[2] for match in matches} - {match[2] for match in matches if match[1] in WATCHED}
    about = [(line, SENDER.search(line.text) or SPEAKER.match(line.text)) for line in lines if NON_FATAL in line.text]
    return tuple(line for line, who in about if who is not None and who[who.re.groups] in others)


@check("health.pcie_replays", GPU_HEALTH, fields=("pcie_replays",), evidence="nvidia-smi -q -d PCIE | grep -i replay")
def pcie_replays(ctx: Ctx) -> Outcome:
    """Each GPU had at most as many PCIe replays since its reset as the spec allows."""
    limit = ctx.fragment.pcie_replays
    if limit is None:
        return not_asked("pcie_replays is not in the spec")
    gpus = shown(ctx)
    if not gpus:
        return not_asked("no NVIDIA GPU on the PCI bus")
    expected = f"at most {limit} replays of each GPU"
    if bad := [f"{gpu.address} has {gpu.replays}" for gpu in gpus if gpu.replays is not None and gpu.replays > limit]:
        return fail(
            expected, "; ".join(bad), "drain the host; reseat the card, look at its slot and risers", action="drain"
        )
    if silent := [gpu.address for gpu in gpus if gpu.replays is None]:
        return skip(f"replays are not reported: {' '.join(silent)}")
    return ok(f"{counted(len(gpus), 'GPU')}; at most {max(gpu.replays or 0 for gpu in gpus)}", expected)


def counting_ports(ctx: Ctx) -> list[PortErrors]:
    """Return the ports of adapters that carry data, with their counters; port 0 is the adapter itself."""
    known = {device.name: {0, *(port.number for port in device.ports)} for device in ctx.facts.get(DEVICES)}
    known |= {device.name: set() for device in ctx.facts.get(DEVICES) if not device.works}
    return [port for port in ctx.facts.get(PORT_ERRORS) if port.port in known.get(port.device, {port.port})]


@check(
    "health.ports",
    PORT_ERRORS,
    DEVICES,
    fields=("link_downed", "port_errors"),
    evidence="perfquery; rdma statistic show link",
)
def ports(ctx: Ctx) -> Outcome:
    """No port of an RDMA device went down, or counted errors, more often than the spec allows."""
    down_limit, most = ctx.fragment.link_downed, ctx.fragment.port_errors
    if down_limit is None and most is None:
        return not_asked("neither link_downed nor port_errors is in the spec")
    live_ports = [port for port in counting_ports(ctx) if port.link]
    if not live_ports:
        return not_asked("no RDMA device counts errors")
    problems, silent = [], []
    for live_port in live_ports:
        name = live_port.name
        if down_limit is not None and live_port.downed is None:
            silent.append(name)
        elif down_limit is not None and (live_port.downed or 0) > down_limit:
            problems.append(f"{name} went down {live_port.downed} times")
        if most is not None and (over := {key: count for key, count in live_port.errors.items() if count > most}):
            problems.append(f"{name}: {', '.join(f'{key} {count}' for key, count in over.items())}")
    limits = [f"link_downed at most {down_limit}"] * (down_limit is not None) + [f"errors at most {most}"] * (
        most is not None
    )
    if problems:
        return fail(", ".join(limits), "; ".join(problems), f"{CABLE}; perfquery -R sets the counters to zero")
    if silent:
        return skip(f"link_downed is not reported: {', '.join(silent)}")
    return ok(counted(len(live_ports), "port"), ", ".join(limits))


@check("health.link_flaps", LINK_FLAPS, fields=("since", "link_flaps"), evidence=LINK_FLAPS.evidence)
def link_flaps(ctx: Ctx) -> Outcome:
    """No link of an RDMA device's network interface went down and came back too often within 12 hours, this boot and
    since `since`.

    Its counter, link_downed, records no times, and stops at 255.
    """
    limit = ctx.fragment.link_flaps
    if not limit:
        return not_asked("link_flaps: 0")
    flaps = ctx.facts.get(LINK_FLAPS)
    if not flaps.interfaces:
        return not_asked("no RDMA device has a network interface")
    if not flaps.journal:
        return skip("no readable journal, which would show when links went down", "or health: {link_flaps: 0}")
    begins = max(flaps.since, flaps.now - FLAPPING)
    bad, few = [], 0
    for interface in flaps.interfaces:
        times = [at for at in interface.flaps if at >= begins]
        few += len(times)
        if len(times) >= limit:
            bad.append(
                f"{interface.name} of {interface.device} went down and came back {len(times)} times, last "
                f"{moment(times[-1])}"
            )
    expected = f"fewer than {limit} times within {FLAPPING // 3600} hours"
    if bad:
        return fail(expected, "; ".join(bad), f"drain the host; {CABLE}; then health --since TIME", action="drain")
    return ok(f"{counted(len(flaps.interfaces), 'interface')}; {few or 'none'} went down and came back", expected)


CHECKS = (nvlink_errors, pcie_errors, pcie_replays, ports, link_flaps)
