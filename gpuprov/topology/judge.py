"""What is wrong in a host's wiring, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from gpuprov.catalog.topology import nvlinks as of_model
from gpuprov.probe.gpus.nvlink import ALONE
from gpuprov.probe.rdma import slow_ports
from gpuprov.topology.links import Lowered, lowered, unlinked
from gpuprov.topology.model import DISTANCES, Gpu, Hca, Wiring
from gpuprov.topology.rails import Rails, rails, spare

SHOWN = 4


Kind = Literal["rail", "link", "socket", "nvlink", "driver", "file"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is what it is about. A `note` may be as the machine was built. `places`: PCI addresses of what it is about."""

    kind: Kind
    message: str
    hint: str = ""
    note: bool = False
    places: tuple[str, ...] = ()


def findings(wiring: Wiring) -> tuple[Finding, ...]:
    """Everything that a person should look at, faults first."""
    found = [
        *_told_nccl(wiring),
        *_rails(wiring),
        *_sockets(wiring),
        *_links(wiring),
        *_ports(wiring),
        *_nvlinks(wiring),
        *_silent(wiring),
    ]
    return tuple(sorted(found, key=lambda one: one.note))


def _told_nccl(wiring: Wiring) -> Iterator[Finding]:
    for message in wiring.told_nccl:
        hint = "the topology file of this machine type, or no NCCL_TOPO_FILE in /etc/nccl.conf: NCCL looks itself"
        yield Finding(kind="file", message=f"NCCL is told otherwise: {message}", hint=hint)


def paired(wiring: Wiring) -> Rails:
    """Rails within a PCIe switch; where no HCA is below a GPU's switch, as near as each GPU's nearest is."""
    found = rails(wiring)
    if found.pairs or not wiring.hcas:
        return found
    far = [distance for gpu in wiring.gpus if (distance := wiring.near(gpu)[0])]
    return rails(wiring, max(far, key=DISTANCES.index)) if far else found


def theirs(wiring: Wiring) -> dict[int, Hca]:
    """The HCA of each GPU's index: of the nearest its own, else one that serves no other; nothing where there is no HCA."""
    pairs = paired(wiring).pairs
    taken = {hca.name for hca in pairs.values()}
    best: dict[int, Hca] = {}
    for gpu in wiring.gpus:
        _, hcas = wiring.near(gpu)
        mine = pairs.get(gpu.index)
        if mine in hcas and mine is not None:
            best[gpu.index] = mine
        elif hcas:
            best[gpu.index] = next((hca for hca in hcas if hca.name not in taken), hcas[0])
    return best


def _rails(wiring: Wiring) -> Iterator[Finding]:
    if not wiring.gpus or not wiring.hcas:
        return
    found = rails(wiring)
    if not found.pairs:
        message = "no HCA is below the same PCIe switch as a GPU: data between them passes the CPU"
        yield Finding(kind="rail", message=message, note=True)
        return
    left = [hca for hca in spare(wiring, found) if found.without or found.crowded]
    for gpu in found.without:
        yield Finding(
            kind="rail",
            message=f"{gpu.name} has no HCA of its own below its PCIe switch: {_nearest(wiring, gpu)}",
            hint="compare the slots with the machine's manual: an HCA is in another slot, is missing, or has no driver",
            places=(gpu.function.address,),
        )
    if left:
        yield Finding(
            kind="rail",
            message=f"paired with no GPU: {_shown([named(wiring, hca.function.address) for hca in left])}",
            hint="compare the slot with the machine's manual: it may be the HCA that a GPU lacks",
            places=tuple(hca.function.address for hca in left),
        )
    for hca, gpus in found.crowded:
        yield Finding(
            kind="rail",
            message=f"{hca.name} is shared by {_names(gpus)}, and other HCAs are not",
            hint="compare the slots with the machine's manual: an HCA is in another slot, is missing, or has no driver",
            places=(hca.function.address, *(gpu.function.address for gpu in gpus)),
        )
    if found.matched and found.share > 1:
        message = f"each HCA is shared by {found.share} GPUs"
        yield Finding(kind="rail", message=message, note=True)


def _nearest(wiring: Wiring, gpu: Gpu) -> str:
    distance = wiring.near(gpu)[0]
    pairs = rails(wiring).pairs
    best = theirs(wiring)[gpu.index]
    users = [other.name for other in wiring.gpus if pairs.get(other.index) == best]
    below = [other.name for other in wiring.gpus if wiring.distance(other.function, best.function) in ("PIX", "PXB")]
    told = f"the nearest is {best.name} ({distance})"
    if users:
        return f"{told}, which is {' and '.join(users)}'s"
    where = f"the switch of {' and '.join(below)}" if below else "no GPU's switch"
    return f"{told}, which is below {where}"


def _sockets(wiring: Wiring) -> Iterator[Finding]:
    for gpu in wiring.gpus:
        _, hcas = wiring.near(gpu)
        if hcas and all(crosses(wiring, gpu, hca) for hca in hcas):
            yield Finding(
                kind="socket",
                message=f"{gpu.name} and its nearest HCA, {hcas[0].name}, are on different sockets",
                hint="move the HCA to a slot of the GPU's socket",
                places=(gpu.function.address, hcas[0].function.address),
            )
    pairs = [
        f"{one.name}-{other.name}"
        for number, one in enumerate(wiring.gpus)
        for other in wiring.gpus[number + 1 :]
        if not wiring.between(one, other).startswith("NV") and crosses(wiring, one, other)
    ]
    if pairs:
        without = "" if wiring.nvlinks.pairs is not None else ", as far as is known"
        message = f"GPUs on different sockets without NVLink between them{without}: {_shown(pairs)}"
        yield Finding(kind="socket", message=message, note=True)


def crosses(wiring: Wiring, one: Gpu, other: Gpu | Hca) -> bool:
    """Whether two devices are known to hang on different sockets."""
    mine, its = wiring.socket(one.function), wiring.socket(other.function)
    return mine is not None and its is not None and mine != its


def _links(wiring: Wiring) -> Iterator[Finding]:
    idle = []
    for one in lowered(wiring):
        if one.idle:
            idle.append(named(wiring, one.function.address).partition(" (")[0])
            continue
        unseen = "" if one.port else "; the port above is not seen from here"
        yield Finding(
            kind="link",
            message=f"the PCIe link of {named(wiring, one.function.address)} is {one.found}, its ends support {one.possible}{unseen}",
            hint=way_out(one),
            places=(one.function.address, one.port),
        )
    if idle:
        message = f"the PCIe links of {_shown(idle)} are slow while the GPUs are idle, which says nothing"
        yield Finding(kind="link", message=message, hint="read it again while they work", note=True)


def _ports(wiring: Wiring) -> Iterator[Finding]:
    for one in slow_ports(hca.device for hca in wiring.hcas if hca.tells_rate):
        message, _, hint = str(one).partition(": ")
        yield Finding(kind="link", message=message, hint=hint, places=(one.address,))


def way_out(one: Lowered) -> str:
    """What to do about a lowered link."""
    return f"lspci -vv -s {one.function.address} | grep LnkSta; reseat the card or its riser, or set the slot right in the firmware"


def named(wiring: Wiring, address: str) -> str:
    """A function as a person knows it: `GPU3 (0000:1b:00.0)`."""
    names = {gpu.function.address: gpu.name for gpu in wiring.gpus}
    names |= {hca.function.address: hca.name for hca in (*wiring.hcas, *wiring.bridges)}
    names |= {one.address: f"NVSwitch{number}" for number, one in enumerate(wiring.nvswitches)}
    below = [names[end] for end in names if address in wiring.tree.functions[end].bridges]
    name = names.get(address, f"the PCIe switch above {_shown(below)}" if below else "a function")
    return f"{name} ({address})"


def _nvlinks(wiring: Wiring) -> Iterator[Finding]:
    if wiring.nvlinks.complaint and any(of_model(gpu.entry) != 0 for gpu in wiring.gpus):
        alone = f", {ALONE}" if len(wiring.gpus) == 1 and wiring.nvlinks.gpus else ""
        message = f"NVLinks are not known: {wiring.nvlinks.complaint}{alone}"
        yield Finding(kind="nvlink", message=message, note=True)
    for gpu in wiring.gpus:
        if wiring.nvlinks.gpus and gpu.nvlink is None:
            message = f"nvidia-smi does not show {named(wiring, gpu.function.address)}"
            hint = "journalctl -k | grep -E 'Xid|NVRM'"
            yield Finding(kind="driver", message=message, hint=hint, places=(gpu.function.address,))
    for one in unlinked(wiring):
        yield Finding(
            kind="nvlink",
            message=f"{one.gpu.name} has {one.active} NVLinks up; {one.why} {one.expected}",
            hint=f"nvidia-smi nvlink -s -i {one.gpu.function.address}; journalctl -k | grep -E 'Xid|SXid'; "
            "systemctl status nvidia-fabricmanager",
            places=(one.gpu.function.address,),
        )


def _silent(wiring: Wiring) -> Iterator[Finding]:
    if wiring.silent:
        told = _shown([f"{one.address} [{one.identifier}]" for one in wiring.silent])
        message = f"NVIDIA network functions without an RDMA device: {told}"
        yield Finding(kind="driver", message=message, hint="modprobe mlx5_ib, if they are HCAs", note=True)


def _names(gpus: Sequence[Gpu]) -> str:
    return " and ".join(gpu.name for gpu in gpus)


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
