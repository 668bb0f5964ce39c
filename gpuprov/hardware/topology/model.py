"""The devices of a host and the distance between two of them, in the terms of `nvidia-smi topo -m` and NCCL.

PIX: one PCIe switch at most. PXB: several switches, no host bridge. PHB: a host bridge, which is the CPU's. NODE: two
host bridges of one NUMA node. SYS: two NUMA nodes, whether of one socket or two.
https://docs.nvidia.com/deploy/nvml-api (nvmlGpuTopologyLevel_t);
https://github.com/NVIDIA/nccl/blob/v2.5.6-1/src/graph/topo.h
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import msgspec

from gpuprov.catalog import gpus as catalogue
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.gpus.nvlink import NVLINKS, LinkedGpu, NvLinks
from gpuprov.facts.probes.gpus.topology import PCI, Function, PciTree
from gpuprov.facts.probes.host.virtualization import MACHINE
from gpuprov.facts.probes.rdma import DEVICES, RdmaDevice
from gpuprov.facts.probes.rdma.far_ends import FAR_ENDS, FarEnd, FarEnds
from gpuprov.facts.probes.rdma.nccl import NCCL_TOPOLOGY, TopologyFile
from gpuprov.hardware.topology.ports import is_rate_known
from gpuprov.host_code.at_boot.devices import DATA_DIRECT
from gpuprov.rules import nccl_topology

Distance = Literal["PIX", "PXB", "PHB", "NODE", "SYS"]
# From near to far.
DISTANCES: tuple[Distance, ...] = ("PIX", "PXB", "PHB", "NODE", "SYS")
PROBES = (PCI, DEVICES, NVLINKS, MACHINE, NCCL_TOPOLOGY)
# With the other ends of cables.
CABLED = (*PROBES, FAR_ENDS)
# Probes of `read_bus`: they read sysfs alone.
BUS = (PCI, DEVICES, MACHINE)


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU; `index` as nvidia-smi counts, by PCI address without nvidia-smi."""

    index: int
    function: Function
    # nvidia-smi's data about this GPU.
    nvlink: LinkedGpu | None = None

    @property
    def name(self) -> str:
        return f"GPU{self.index}"

    @property
    def entry(self) -> catalogue.Gpu | None:
        """The model's entry in the catalogue."""
        return catalogue.find_by_pci_id(self.function.identifier)

    @property
    def model(self) -> str:
        return self.entry.key if self.entry else self.function.identifier


class Hca(msgspec.Struct, frozen=True, kw_only=True):
    """An RDMA device that is a PCI function of this host."""

    device: RdmaDevice
    function: Function

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def port(self) -> str:
        """The first port that is up, else the first, in words: `InfiniBand 400 Gb/s ACTIVE`."""
        ports = self.device.ports
        if not ports:
            return "no port"
        port = next((port for port in ports if port.state == "ACTIVE"), ports[0])
        rate = f"{port.rate:g} Gb/s" if port.rate and self.tells_rate else ""
        return " ".join(filter(None, (port.link_layer, rate, port.state)))

    @property
    def tells_rate(self) -> bool:
        return is_rate_known(self.device)


class Wiring(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The devices of a host. `bridges` are NVLink bridges (SW_MNG), which are not HCAs; `silent` NVIDIA network
    functions without an RDMA device; `devices` all RDMA devices, and `unplaced` those that are not PCI functions, such
    as software devices. `told_nccl`: defects of the topology file that /etc/nccl.conf names. `guest`: the hypervisor of
    a virtual machine; empty on bare metal, or if unknown."""

    tree: PciTree
    guest: str = ""
    gpus: tuple[Gpu, ...] = ()
    hcas: tuple[Hca, ...] = ()
    nvswitches: tuple[Function, ...] = ()
    bridges: tuple[Hca, ...] = ()
    silent: tuple[Function, ...] = ()
    unplaced: tuple[str, ...] = ()
    devices: tuple[RdmaDevice, ...] = ()
    nvlinks: NvLinks = NvLinks()
    told_nccl: tuple[str, ...] = ()
    ends: FarEnds = FarEnds()

    @cached_property
    def switched(self) -> bool:
        """True if the NVLinks go to NVSwitches: those are visible, or three GPUs or more have all their links to each
        other."""
        if self.nvswitches or self.bridges:
            return bool(self.nvlinks.pairs)
        pairs = self.nvlinks.pairs or {}
        active = {gpu.nvlink.active for gpu in self.gpus if gpu.nvlink and gpu.nvlink.active}
        return len({index for pair in pairs for index in pair}) > 2 and set(pairs.values()) == active

    def distance(self, function: Function, other: Function) -> Distance:
        """Return the distance between two functions, by the tree alone."""
        if function.root != other.root:
            return self._between_roots(function, other)
        shared = 0
        for own, its in zip(function.bridges, other.bridges, strict=False):
            if own != its:
                break
            shared += 1
        if not shared:
            return "PHB"
        # Below a shared upstream port, a device has its downstream port only; a further switch adds two ports.
        return "PIX" if max(len(function.bridges), len(other.bridges)) - shared <= 1 else "PXB"

    def _between_roots(self, function: Function, other: Function) -> Distance:
        if function.numa_node < 0 or other.numa_node < 0:
            return "NODE" if len(self.tree.sockets) <= 1 else "SYS"
        return "NODE" if function.numa_node == other.numa_node else "SYS"

    def socket(self, function: Function) -> int | None:
        """Return the CPU socket that the function is attached to; the NUMA node if sockets are unknown, None if both
        are."""
        if function.numa_node < 0:
            return 0 if len(set(self.tree.sockets.values())) == 1 else None
        socket = self.tree.sockets.get(function.numa_node, -1)
        return function.numa_node if socket < 0 else socket

    def between(self, first: Gpu, other: Gpu) -> str:
        """Return `NV18` for GPUs joined by NVLinks, else the distance by the tree. A pair has at most as many NVLinks
        as either GPU has up."""
        pair = (min(first.index, other.index), max(first.index, other.index))
        joined = (self.nvlinks.pairs or {}).get(pair, 0)
        joined = min([joined, *(gpu.nvlink.active for gpu in (first, other) if gpu.nvlink and gpu.nvlink.active)])
        return f"NV{joined}" if joined else self.distance(first.function, other.function)

    def find_ends(self, hca: Hca) -> tuple[FarEnd, ...]:
        """Return the other ends of an HCA's cables, as far as they are known."""
        ports = [self.ends.ports.get(f"{hca.name}/{port.number}") for port in hca.device.ports]
        netdevs = [self.ends.netdevs.get(name) for name in hca.device.netdevs]
        return tuple(dict.fromkeys(end for end in (*ports, *netdevs) if end))

    def near(self, gpu: Gpu) -> tuple[Distance | None, tuple[Hca, ...]]:
        """Return the distance of the nearest HCA, and all HCAs at that distance; None and an empty tuple without
        HCAs."""
        distances = [(DISTANCES.index(self.distance(gpu.function, hca.function)), hca) for hca in self.hcas]
        least = min((far for far, _ in distances), default=None)
        if least is None:
            return None, ()
        return DISTANCES[least], tuple(hca for far, hca in distances if far == least)


def read(facts: Facts) -> Wiring:
    """Build the wiring from a host's facts. Raises ProbeFailed if they could not be read."""
    machine = facts.known(MACHINE)
    return build_wiring(facts.get(PCI), facts.get(DEVICES), facts.get(NVLINKS), guest=machine.kind if machine else "")


def read_bus(facts: Facts) -> Wiring:
    """Build the wiring without NVLinks, so without nvidia-smi. Raises ProbeFailed if the bus could not be read."""
    machine = facts.known(MACHINE)
    return build_wiring(facts.get(PCI), facts.get(DEVICES), NvLinks(), guest=machine.kind if machine else "")


def read_and_told(facts: Facts) -> Wiring:
    """Build the wiring as `read` does, with defects of NCCL's topology file, and the other ends of cables. Raises
    ProbeFailed."""
    bus, ends = read(facts), facts.known(FAR_ENDS) or FarEnds()
    return msgspec.structs.replace(bus, told_nccl=list_nccl_defects(facts.get(NCCL_TOPOLOGY), bus), ends=ends)


def list_nccl_defects(file: TopologyFile, host_wiring: Wiring) -> tuple[str, ...]:
    """List defects of NCCL's topology file for this wiring."""
    if file.text is None:
        return (f"{file.path} is not there",) if file.path else ()
    try:
        root = nccl_topology.parse(file.text)
    except nccl_topology.TopologyError as error:
        return (f"{file.path}: {error}",)
    gpus = [gpu.function.address for gpu in host_wiring.gpus]
    used = [hca.function.address for hca in host_wiring.hcas]
    wrong = nccl_topology.strange(root, gpus, used, [*file.functions, *used])
    return tuple(f"{file.path}: {problem}" for problem in wrong)


def build_wiring(tree: PciTree, devices: Sequence[RdmaDevice], nvlinks: NvLinks, *, guest: str = "") -> Wiring:
    ordered = sorted(tree.functions.values(), key=lambda function: parse_place(function.address))
    linked = {gpu.bus: gpu for gpu in nvlinks.gpus}
    functions = [
        function
        for function in ordered
        if function.identifier[:4] == "10de" and function.pci_class[:2] == "03" and not function.virtual
    ]
    indexed = all(function.address in linked for function in functions)
    gpus = [
        Gpu(
            index=linked[function.address].index if indexed else number,
            function=function,
            nvlink=linked.get(function.address),
        )
        for number, function in enumerate(functions)
    ]
    placed = [
        Hca(device=device, function=tree.functions[device.address])
        for device in sorted(devices, key=lambda device: parse_place(device.address))
        if device.address in tree.functions
    ]
    return Wiring(
        tree=tree,
        guest=guest,
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)),
        hcas=tuple(hca for hca in placed if hca.device.works and not hca.function.virtual),
        nvswitches=tuple(
            function for function in ordered if function.identifier[:4] == "10de" and function.pci_class[:4] == "0680"
        ),
        bridges=tuple(hca for hca in placed if hca.device.bridge),
        silent=tuple(function for function in ordered if _is_silent(function)),
        devices=tuple(devices),
        unplaced=tuple(device.name for device in devices if device.works and device.address not in tree.functions),
        nvlinks=msgspec.structs.replace(nvlinks, pairs=_convert_indices(gpus, nvlinks)),
    )


def _is_silent(function: Function) -> bool:
    """True for a network function that should have an RDMA device and has none."""
    direct = function.identifier == f"15b3:{DATA_DIRECT}"
    return function.pci_class[:2] == "02" and not (function.rdma or function.virtual or direct)


def _convert_indices(gpus: Sequence[Gpu], nvlinks: NvLinks) -> dict[tuple[int, int], int] | None:
    """Convert nvidia-smi's indices to ours, which differ if it does not show every GPU on the bus."""
    ours = {gpu.nvlink.index: gpu.index for gpu in gpus if gpu.nvlink}
    if nvlinks.pairs is None:
        return None
    known = {pair: count for pair, count in nvlinks.pairs.items() if ours.keys() >= set(pair)}
    return {(min(ours[a], ours[b]), max(ours[a], ours[b])): count for (a, b), count in known.items()}


def parse_place(address: str) -> tuple[int, ...]:
    """Return the sort key of a PCI address; an empty or invalid one sorts first."""
    try:
        return tuple(int(part, 16) for part in address.replace(".", ":").split(":")) if address else ()
    except ValueError:
        return ()
