"""Defects of a host's links and ports, independent of its spec: one rule for each fact, with the fix. Health, verify,
export, topology and the exporter use these rules."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from gpuprov.catalog.xids import Action
from gpuprov.facts.probes.gpus.gpu_state import GpuHealth
from gpuprov.facts.probes.recorded import GoneFunction, GpuLinks, PcieLink
from gpuprov.hardware.topology.links import (
    UNSEEN_PORT,
    find_lowered,
    find_unanswering,
    find_unlinked,
    find_usual,
    format_link,
)
from gpuprov.hardware.topology.model import Wiring
from gpuprov.hardware.topology.ports import BadPort, find_bad_ports, find_bad_recorded_ports
from gpuprov.host_code.at_boot.devices import RdmaDevice

Kind = Literal["link", "nvlink"]
# Fix for a PCIe link: somebody has to go to the machine.
LINK: Action = "drain"
# Fix for an NVLink, as after an Xid 74: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
NVLINK: Action = "reset"
NVLINK_FIX = "nvidia-smi nvlink -s -i {}; journalctl -k | grep -E 'Xid|SXid'; systemctl status nvidia-fabricmanager"


class Defect(msgspec.Struct, frozen=True, kw_only=True):
    """A defect. `message`, and `brief`, a short one; `fix` for a person, `action` as after an Xid."""

    kind: Kind
    message: str
    brief: str
    fix: str
    action: Action
    # PCI addresses of the devices concerned.
    places: tuple[str, ...] = ()
    # The host cannot show whether it is a defect, or intended.
    unproven: bool = False


def find_narrow_links(wiring: Wiring) -> Iterator[Defect]:
    """Find PCIe links that are dead, and those below their capability; idle ones prove nothing, and are left out."""
    for function in find_unanswering(wiring):
        yield describe_unanswering(name_function(wiring, function.address), function.address)
    for link in find_lowered(wiring):
        if link.idle:
            continue
        name, who = name_function(wiring, link.function.address), "its like here" if link.usual else "its ends support"
        unseen = "" if link.port else f"; {link.unseen or UNSEEN_PORT}"
        yield Defect(
            kind="link",
            message=f"the PCIe link of {name} is {link.actual}, {who} {link.possible}{unseen}",
            brief=f"{name} is {link.actual} of {link.possible}{f'; {link.unseen}' if link.unseen else ''}",
            fix=link_fix(link.function.address),
            action=LINK,
            places=(link.function.address, link.port),
            unproven=bool(link.unseen),
        )


def describe_unanswering(name: str, address: str) -> Defect:
    """Return the defect for a function that the bus still lists, and that does not answer."""
    return Defect(
        kind="link",
        message=f"{name} does not answer on PCIe: lspci shows it with (rev ff)",
        brief=f"{name} does not answer",
        fix=f"drain the host and restart it; journalctl -k | grep {address}; again: its seat, its riser, its vendor",
        action="reboot",
        places=(address,),
    )


def list_unanswering(gone: Sequence[GoneFunction]) -> Iterator[Defect]:
    """List the NVSwitches and network adapters that do not answer, from `lspci -nn` alone. GPUs: see health.gpus."""
    for function in gone:
        yield describe_unanswering(f"{function.address} [{function.identifier}]", function.address)


def narrow(gpus: Sequence[GpuHealth]) -> Iterator[Defect]:
    """Find GPUs whose PCIe link is narrower than that of most similar GPUs, from nvidia-smi alone. A link's speed is
    not checked, since an idle GPU lowers it."""
    for gpu in gpus:
        width = find_usual([other.width or 0 for other in gpus if other.kind == gpu.kind])
        if 0 < (gpu.width or 0) < width:
            actual, possible = format_link(gpu.width or 0, 0), format_link(width, 0)
            yield _describe_link(gpu.address, gpu.address, actual, f"its like here {possible}", possible)


def find_narrow_recorded(links: Sequence[PcieLink]) -> Iterator[Defect]:
    """Find links of PCIe below what both ends support, from `lspci -vv` alone; without the port above, narrower than
    those of most functions of that name. The speed of GPUs is not checked: an idle one lowers it."""
    for link in links:
        width, speed = min(link.widths[1:]), min(link.speeds[1:])
        who = "its ends support"
        if not width:
            width, who = (
                int(find_usual([other.widths[0] for other in links if other.name == link.name])),
                "its like here",
            )
        slow = not link.is_gpu and 0 < link.speeds[0] < speed
        if 0 < link.widths[0] < width or slow:
            actual = format_link(link.widths[0], link.speeds[0] if slow else 0)
            possible = format_link(width, speed if slow else 0)
            name = f"{link.address} ({link.name})"
            yield _describe_link(link.address, name, actual, f"{who} {possible}", possible)


def _describe_link(address: str, name: str, actual: str, other: str, possible: str) -> Defect:
    return Defect(
        kind="link",
        message=f"the PCIe link of {name} is {actual}, {other}",
        brief=f"{address} is {actual} of {possible}",
        fix=link_fix(address),
        action=LINK,
        places=(address,),
    )


def find_missing_nvlinks(wiring: Wiring, requested: int = 0) -> Iterator[Defect]:
    """Find GPUs with fewer NVLinks up than `requested`, or than they should have."""
    for entry in find_unlinked(wiring, requested):
        yield Defect(
            kind="nvlink",
            message=f"{entry.gpu.name} has {entry.active} NVLinks up; {entry.why} {entry.expected}",
            brief=f"{entry.gpu.name} has {entry.active} of {entry.expected}",
            fix=NVLINK_FIX.format(entry.gpu.function.address),
            action=NVLINK,
            places=(entry.gpu.function.address,),
        )


def find_uneven_nvlinks(gpus: Sequence[GpuLinks]) -> Iterator[Defect]:
    """Find GPUs with NVLinks that are listed as inactive while more are up on another of the same name, from
    `nvidia-smi nvlink -s` alone. A list that breaks off has fewer links, and no inactive ones."""
    for gpu in gpus:
        most = max(peer.active for peer in gpus if peer.name == gpu.name)
        if gpu.active < gpu.links and gpu.active < most:
            yield Defect(
                kind="nvlink",
                message=f"GPU{gpu.index} has {gpu.active} NVLinks up; another {gpu.name} here has {most}",
                brief=f"GPU{gpu.index} has {gpu.active} of {most}",
                fix=NVLINK_FIX.format(gpu.index),
                action=NVLINK,
            )


def list_bad_ports(wiring: Wiring, block: Any = None) -> Iterator[Defect]:
    """Find defective ports of RDMA devices, by `find_bad_ports`."""
    for port in find_bad_ports(wiring.devices, block):
        yield describe_port(port)


def list_bad_recorded_ports(devices: tuple[RdmaDevice, ...], block: Any = None) -> Iterator[Defect]:
    """Find defective ports in what `ibstat` says alone."""
    yield from map(describe_port, find_bad_recorded_ports(devices, block))


def describe_port(port: BadPort) -> Defect:
    """Return the defect for a bad port."""
    places = (port.address,) if port.address else ()
    look = f"mlxlink -d {port.address or port.device} shows lanes and errors"
    fix = f"the cable, its seat, and the switch's port, which gpuprov topology may name; {look}"
    return Defect(
        kind="link", message=str(port), brief=str(port), fix=fix, action=LINK, places=places, unproven=port.unused
    )


def link_fix(where: str) -> str:
    """Return the fix for a lowered link of the function at this address."""
    return f"lspci -vv -s {where} | grep LnkSta; reseat the card or its riser, or set the slot right in the firmware"


def name_function(wiring: Wiring, address: str) -> str:
    """Return a function's name for messages: `GPU3 (0000:1b:00.0)`."""
    names = {gpu.function.address: gpu.name for gpu in wiring.gpus}
    names |= {hca.function.address: hca.name for hca in (*wiring.hcas, *wiring.bridges)}
    names |= {switch.address: f"NVSwitch{number}" for number, switch in enumerate(wiring.nvswitches)}
    names |= {adapter.address: f"adapter {adapter.identifier}" for adapter in wiring.silent}
    below = [names[end] for end in names if address in wiring.tree.functions[end].bridges]
    name = names.get(address, f"the PCIe switch above {show_names(below)}" if below else "a function")
    return f"{name} ({address})"


SHOWN = 4


def show_names(names: list[str]) -> str:
    """Format the first names, and the number of further ones."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
