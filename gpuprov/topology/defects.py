"""Defects of a host's links and ports, independent of its spec: one rule for each fact, with the fix. Health, verify, export,
topology and the exporter use these rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from gpuprov.catalog.xids import Action
from gpuprov.probe.gpus.gpu_state import GpuHealth
from gpuprov.topology.links import UNSEEN_PORT, lowered, told, unlinked, usual
from gpuprov.topology.model import Wiring
from gpuprov.topology.ports import BadPort, bad_ports

Kind = Literal["link", "nvlink"]
LINK: Action = "drain"
"""Fix for a PCIe link: somebody has to go to the machine."""
NVLINK: Action = "reset"
"""Fix for an NVLink, as after an Xid 74: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"""
NVLINK_FIX = "nvidia-smi nvlink -s -i {}; journalctl -k | grep -E 'Xid|SXid'; systemctl status nvidia-fabricmanager"


class Defect(msgspec.Struct, frozen=True, kw_only=True):
    """A defect. `found` is the message, `brief` a short one; `fix` for a person, `action` as after an Xid. `places`: PCI
    addresses of the devices concerned. `unproven`: the host cannot show whether it is a defect, or intended."""

    kind: Kind
    found: str
    brief: str
    fix: str
    action: Action
    places: tuple[str, ...] = ()
    unproven: bool = False


def links(wiring: Wiring) -> Iterator[Defect]:
    """Find PCIe links below their capability; idle ones prove nothing, and are left out."""
    for one in lowered(wiring):
        if one.idle:
            continue
        name, who = named(wiring, one.function.address), "its like here" if one.usual else "its ends support"
        unseen = "" if one.port else f"; {one.unseen or UNSEEN_PORT}"
        yield Defect(
            kind="link",
            found=f"the PCIe link of {name} is {one.found}, {who} {one.possible}{unseen}",
            brief=f"{name} is {one.found} of {one.possible}{f'; {one.unseen}' if one.unseen else ''}",
            fix=link_fix(one.function.address),
            action=LINK,
            places=(one.function.address, one.port),
            unproven=bool(one.unseen),
        )


def narrow(gpus: Sequence[GpuHealth]) -> Iterator[Defect]:
    """Find GPUs whose PCIe link is narrower than that of most similar GPUs, from nvidia-smi alone. A link's speed is not
    checked, since an idle GPU lowers it."""
    for gpu in gpus:
        width = usual([one.width or 0 for one in gpus if one.kind == gpu.kind])
        if 0 < (gpu.width or 0) < width:
            found, possible = told(gpu.width or 0, 0), told(width, 0)
            yield Defect(
                kind="link",
                found=f"the PCIe link of {gpu.address} is {found}, its like here {possible}",
                brief=f"{gpu.address} is {found} of {possible}",
                fix=link_fix(gpu.address),
                action=LINK,
                places=(gpu.address,),
            )


def nvlinks(wiring: Wiring, asked: int = 0) -> Iterator[Defect]:
    """Find GPUs with fewer NVLinks up than `asked`, or than they should have."""
    for one in unlinked(wiring, asked):
        yield Defect(
            kind="nvlink",
            found=f"{one.gpu.name} has {one.active} NVLinks up; {one.why} {one.expected}",
            brief=f"{one.gpu.name} has {one.active} of {one.expected}",
            fix=NVLINK_FIX.format(one.gpu.function.address),
            action=NVLINK,
            places=(one.gpu.function.address,),
        )


def ports(wiring: Wiring, block: Any = None) -> Iterator[Defect]:
    """Find defective ports of RDMA devices, by `bad_ports`."""
    for one in bad_ports(wiring.devices, block):
        yield of_port(one)


def of_port(one: BadPort) -> Defect:
    """Return the defect for a bad port."""
    places = (one.address,) if one.address else ()
    fix = f"the cable, its seat, and the switch's port; mlxlink -d {one.address or one.device} shows lanes and errors"
    return Defect(kind="link", found=str(one), brief=str(one), fix=fix, action=LINK, places=places, unproven=one.unused)


def link_fix(where: str) -> str:
    """Return the fix for a lowered link of the function at this address."""
    return f"lspci -vv -s {where} | grep LnkSta; reseat the card or its riser, or set the slot right in the firmware"


def named(wiring: Wiring, address: str) -> str:
    """Return a function's name for messages: `GPU3 (0000:1b:00.0)`."""
    names = {gpu.function.address: gpu.name for gpu in wiring.gpus}
    names |= {hca.function.address: hca.name for hca in (*wiring.hcas, *wiring.bridges)}
    names |= {one.address: f"NVSwitch{number}" for number, one in enumerate(wiring.nvswitches)}
    below = [names[end] for end in names if address in wiring.tree.functions[end].bridges]
    name = names.get(address, f"the PCIe switch above {shown(below)}" if below else "a function")
    return f"{name} ({address})"


SHOWN = 4


def shown(names: list[str]) -> str:
    """Format the first names, and the number of further ones."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
