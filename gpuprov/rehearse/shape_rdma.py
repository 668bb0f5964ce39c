"""HCAs of the simulated host of a spec with RDMA, their fabric and rate; or why it cannot be simulated."""

from typing import Any, TypedDict, get_args

import msgspec

from gpuprov.capabilities.rdma.fragment import Opensm, Rdma
from gpuprov.capabilities.topology.fragment import Topology
from gpuprov.core.errors import GpuprovError
from gpuprov.simulate.description import HcaRate, Kind
from gpuprov.spec.model import HostSpec

RATES: tuple[int, ...] = get_args(HcaRate)
MOST = 16
RAILS = 8
"""Number of HCAs beside a board of eight GPUs."""
REFUSED = {
    "iwarp": "whose devices are not simulated",
    "efa": "whose installer and libfabric are AWS's own, which find nothing to serve on a simulated host",
}


def needs_board(spec: HostSpec) -> bool:
    """True if the spec needs HCAs, which are simulated beside GPUs only."""
    rdma = spec.capabilities.get("rdma")
    return isinstance(rdma, Rdma) and rdma.fabric != "soft"


class Hcas(TypedDict, total=False):
    """The fields of a description."""

    hcas: int
    fabric: str
    rate: int
    erdma: bool


def plan_hcas(spec: HostSpec, kind: Kind, gpus: int, notes: list[str]) -> Hcas:
    """`hcas`, `fabric` and `rate` of the description, or `erdma`; empty where nothing asks for them.

    Raises GpuprovError where a kind of host has no such devices.
    """
    rdma = spec.capabilities.get("rdma")
    requested = count_hcas(spec)
    if not isinstance(rdma, Rdma):
        return {"hcas": min(requested, MOST)} if requested else {}
    if why := REFUSED.get(rdma.fabric):
        raise GpuprovError(
            f"{spec.name}: rdma.fabric is {rdma.fabric}, {why}",
            f"rehearse the rest: {spec.name} with rdma: false, or without its group in the inventory",
        )
    if rdma.fabric == "soft":
        if kind == "container":
            raise GpuprovError(
                f"{spec.name}: rdma.fabric is soft, which needs a kernel of the host's own",
                "rehearse it with --kind machine",
            )
        return {}
    if kind == "machine":
        raise GpuprovError(
            f"{spec.name}: rdma.fabric is {rdma.fabric}, and a machine's HCAs are PCI functions without RDMA devices",
            "rehearse it with --kind container",
        )
    if rdma.fabric == "erdma":
        return {"erdma": True}
    count = rdma.count or requested
    if not count:
        count = gpus or RAILS
        notes.append(f"the spec names no number of HCAs: {count} simulated")
    if count > MOST:
        notes.append(f"{MOST} of {count} HCAs are simulated: the simulation has no more")
    return {"hcas": min(count, MOST), "fabric": rdma.fabric, "rate": choose_rate(rdma.rate, spec.name)}


def count_hcas(spec: HostSpec) -> int:
    """Count the HCAs that the topology block counts or relies on."""
    block = spec.capabilities.get("topology")
    if not isinstance(block, Topology):
        return 0
    nearness = block.gpu_hca != "any" or block.rails != "any" or block.same_socket
    count = (spec.gpu.count if spec.gpu else None) or RAILS
    return block.hcas or (count if nearness else 0)


def choose_rate(minimum: int, host: str) -> int:
    """Choose the lowest sufficient rate; NDR's if the spec names none."""
    if not minimum:
        return 400
    enough = [candidate for candidate in RATES if candidate >= minimum]
    if not enough:
        raise GpuprovError(
            f"{host}: rdma.rate is {minimum}; simulated ports have up to {RATES[-1]} Gb/s", "ask for less"
        )
    return enough[0]


def remove_fabric(spec: HostSpec, notes: list[str]) -> HostSpec:
    """Remove the places of real devices, since the simulated ones have others, and what needs a live fabric, from the
    spec."""
    rdma = spec.capabilities.get("rdma")
    if not isinstance(rdma, Rdma) or rdma.fabric in ("soft", "erdma"):
        return spec
    changed: dict[str, Any] = {}
    if any(device.pci or device.netdev for device in rdma.devices):
        notes.append(
            "rdma.devices names PCI addresses or interfaces, which the simulated host has not: all HCAs are meant"
        )
        changed["devices"] = ()
    if rdma.ipoib:
        notes.append("rdma.ipoib is left out: simulated HCAs have no InfiniBand network interfaces")
        changed["ipoib"] = False
    if rdma.opensm.hosts:
        notes.append("rdma.opensm.hosts is left out: opensm finds no fabric that it could manage")
        changed["opensm"] = Opensm(elsewhere=True)
    if rdma.nccl.sharp:
        notes.append("rdma.nccl.sharp is left out: its plugin comes with HPC-X, which is not rehearsed")
        changed["nccl"] = msgspec.structs.replace(rdma.nccl, sharp=False)
    if not changed:
        return spec
    block = msgspec.structs.replace(rdma, **changed)
    return msgspec.structs.replace(spec, capabilities={**spec.capabilities, "rdma": block})
