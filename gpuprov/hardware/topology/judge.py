"""Defects and notes about a host's wiring, as messages."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from gpuprov.catalog.topology import count_nvlinks as of_model
from gpuprov.facts.probes.gpus.nvlink import ALONE
from gpuprov.hardware.topology import defects
from gpuprov.hardware.topology.defects import Defect, name_function, show_names
from gpuprov.hardware.topology.links import find_lowered
from gpuprov.hardware.topology.model import DISTANCES, Gpu, Hca, Wiring
from gpuprov.hardware.topology.rails import Rails, build_rails, find_spare

Kind = Literal["rail", "link", "socket", "nvlink", "driver", "file"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A message about the wiring."""

    # Its subject. A `note` may be by design of the machine.
    kind: Kind
    message: str
    fix: str = ""
    note: bool = False
    # PCI addresses concerned.
    places: tuple[str, ...] = ()


def list_findings(wiring: Wiring, crossed: Iterable[Finding] = ()) -> tuple[Finding, ...]:
    """List everything that a person should look at, faults first. `crossed`: cables that only other hosts show to be in
    the wrong switch."""
    findings = [
        *crossed,
        *_check_nccl_file(wiring),
        *_check_rails(wiring),
        *_check_sockets(wiring),
        *_check_links(wiring),
        *_convert_defects(defects.list_bad_ports(wiring)),
        *_check_nvlinks(wiring),
        *_list_silent(wiring),
    ]
    return tuple(sorted(findings, key=lambda finding: finding.note))


def _check_nccl_file(wiring: Wiring) -> Iterator[Finding]:
    for message in wiring.told_nccl:
        fix = "the topology file of this machine type, or no NCCL_TOPO_FILE in /etc/nccl.conf: NCCL looks itself"
        yield Finding(kind="file", message=f"NCCL is configured otherwise: {message}", fix=fix)


def pair_devices(wiring: Wiring) -> Rails:
    """Pair GPUs and HCAs within a PCIe switch; if no HCA is below a GPU's switch, within the distance of the
    nearest."""
    pairing = build_rails(wiring)
    if pairing.pairs or not wiring.hcas:
        return pairing
    far = [distance for gpu in wiring.gpus if (distance := wiring.near(gpu)[0])]
    return build_rails(wiring, max(far, key=DISTANCES.index)) if far else pairing


def assign_hcas(wiring: Wiring) -> dict[int, Hca]:
    """Return the HCA by GPU index: of the nearest ones the GPU's own, else one that serves no other GPU; empty without
    HCAs."""
    pairs = pair_devices(wiring).pairs
    taken = {hca.name for hca in pairs.values()}
    best: dict[int, Hca] = {}
    for gpu in wiring.gpus:
        _, hcas = wiring.near(gpu)
        own_hca = pairs.get(gpu.index)
        if own_hca in hcas and own_hca is not None:
            best[gpu.index] = own_hca
        elif hcas:
            best[gpu.index] = next((hca for hca in hcas if hca.name not in taken), hcas[0])
    return best


def _check_rails(wiring: Wiring) -> Iterator[Finding]:
    if not wiring.gpus or not wiring.hcas:
        return
    pairing = build_rails(wiring)
    if not pairing.pairs:
        message = "no HCA is below the same PCIe switch as a GPU: data between them passes the CPU"
        yield Finding(kind="rail", message=message, note=True)
        return
    left = [hca for hca in find_spare(wiring, pairing) if pairing.without or pairing.crowded]
    for gpu in pairing.without:
        yield Finding(
            kind="rail",
            message=f"{gpu.name} has no HCA of its own below its PCIe switch: {_describe_nearest(wiring, gpu)}",
            fix="compare the slots with the machine's manual: an HCA is in another slot, is missing, or has no driver",
            places=(gpu.function.address,),
        )
    if left:
        yield Finding(
            kind="rail",
            message=f"paired with no GPU: {show_names([name_function(wiring, hca.function.address) for hca in left])}",
            fix="compare the slot with the machine's manual: it may be the HCA that a GPU lacks",
            places=tuple(hca.function.address for hca in left),
        )
    for hca, gpus in pairing.crowded:
        yield Finding(
            kind="rail",
            message=f"{hca.name} is shared by {format_names(gpus)}, and other HCAs are not",
            fix="compare the slots with the machine's manual: an HCA is in another slot, is missing, or has no driver",
            places=(hca.function.address, *(gpu.function.address for gpu in gpus)),
        )
    if pairing.matched and pairing.share > 1:
        message = f"each HCA is shared by {pairing.share} GPUs"
        yield Finding(kind="rail", message=message, note=True)


def _describe_nearest(wiring: Wiring, gpu: Gpu) -> str:
    distance = wiring.near(gpu)[0]
    pairs = build_rails(wiring).pairs
    best = assign_hcas(wiring)[gpu.index]
    users = [other.name for other in wiring.gpus if pairs.get(other.index) == best]
    below = [other.name for other in wiring.gpus if wiring.distance(other.function, best.function) in ("PIX", "PXB")]
    text = f"the nearest is {best.name} ({distance})"
    if users:
        return f"{text}, which is {' and '.join(users)}'s"
    where = f"the switch of {' and '.join(below)}" if below else "no GPU's switch"
    return f"{text}, which is below {where}"


def _check_sockets(wiring: Wiring) -> Iterator[Finding]:
    for gpu in wiring.gpus:
        _, hcas = wiring.near(gpu)
        if hcas and all(is_across_sockets(wiring, gpu, hca) for hca in hcas):
            yield Finding(
                kind="socket",
                message=f"{gpu.name} and its nearest HCA, {hcas[0].name}, are on different sockets",
                fix="move the HCA to a slot of the GPU's socket",
                places=(gpu.function.address, hcas[0].function.address),
            )
    pairs = [
        f"{gpu.name}-{other.name}"
        for number, gpu in enumerate(wiring.gpus)
        for other in wiring.gpus[number + 1 :]
        if not wiring.between(gpu, other).startswith("NV") and is_across_sockets(wiring, gpu, other)
    ]
    if wiring.nvlinks.pairs is None and wiring.nvswitches:
        return  # NVSwitches are there to join them: whether they do is not known
    if pairs:
        without = "" if wiring.nvlinks.pairs is not None else ", as far as is known"
        message = f"GPUs on different sockets without NVLink between them{without}: {show_names(pairs)}"
        yield Finding(kind="socket", message=message, note=True)


def is_across_sockets(wiring: Wiring, gpu: Gpu, other: Gpu | Hca) -> bool:
    """Return whether two devices are known to be attached to different sockets."""
    socket, other_socket = wiring.socket(gpu.function), wiring.socket(other.function)
    return socket is not None and other_socket is not None and socket != other_socket


def _check_links(wiring: Wiring) -> Iterator[Finding]:
    idle = [link.function.address for link in find_lowered(wiring) if link.idle]
    yield from _convert_defects(defects.find_narrow_links(wiring))
    if idle:
        names = show_names([name_function(wiring, address).partition(" (")[0] for address in idle])
        message = f"the PCIe links of {names} are slow while the GPUs are idle, which says nothing"
        yield Finding(kind="link", message=message, fix="read it again while they work", note=True)


def _convert_defects(defects: Iterable[Defect]) -> Iterator[Finding]:
    for defect in defects:
        yield Finding(
            kind=defect.kind,
            message=defect.message,
            fix="" if defect.unproven else defect.fix,
            note=defect.unproven,
            places=defect.places,
        )


def _check_nvlinks(wiring: Wiring) -> Iterator[Finding]:
    if wiring.nvlinks.complaint and any(of_model(gpu.entry) != 0 for gpu in wiring.gpus):
        alone = f", {ALONE}" if len(wiring.gpus) == 1 and wiring.nvlinks.gpus else ""
        message = f"NVLinks are not known: {wiring.nvlinks.complaint}{alone}"
        yield Finding(kind="nvlink", message=message, note=True)
    for gpu in wiring.gpus:
        if wiring.nvlinks.gpus and gpu.nvlink is None:
            message = f"nvidia-smi does not show {name_function(wiring, gpu.function.address)}"
            fix = "journalctl -k | grep -E 'Xid|NVRM'"
            yield Finding(kind="driver", message=message, fix=fix, places=(gpu.function.address,))
    yield from _convert_defects(defects.find_missing_nvlinks(wiring))


def _list_silent(wiring: Wiring) -> Iterator[Finding]:
    if silent := [function for function in wiring.silent if not function.gone]:
        names = show_names([f"{function.address} [{function.identifier}]" for function in silent])
        message = f"NVIDIA network functions without an RDMA device: {names}"
        yield Finding(kind="driver", message=message, fix="modprobe mlx5_ib, if they are HCAs", note=True)


def format_names(gpus: Sequence[Gpu]) -> str:
    return " and ".join(gpu.name for gpu in gpus)
