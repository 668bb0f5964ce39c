"""HCAs of the simulated host of a spec with RDMA, their fabric and rate."""

from typing import Any, TypedDict, get_args

import msgspec

from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.topology.fragment import Topology
from gpuprov.simulate import image
from gpuprov.simulate.description import HcaRate
from gpuprov.simulate.standins import erdma
from gpuprov.spec.model import HostSpec

RATES: tuple[int, ...] = get_args(HcaRate)
MOST = 16
# Number of HCAs beside a board of eight GPUs.
RAILS = 8


def needs_board(spec: HostSpec) -> bool:
    """True if the spec needs HCAs, which are simulated beside GPUs only."""
    rdma = spec.capabilities.get("rdma")
    return isinstance(rdma, Rdma) and rdma.fabric != "soft"


def needs_ofed(spec: HostSpec) -> bool:
    rdma = spec.capabilities.get("rdma")
    return isinstance(rdma, Rdma) and rdma.stack == "doca-ofed"


class Hcas(TypedDict, total=False):
    """The fields of a description."""

    hcas: int
    fabric: str
    rate: int
    erdma: bool


def plan_hcas(spec: HostSpec, gpus: int, notes: list[str]) -> Hcas:
    """`hcas`, `fabric` and `rate` of the description, or `erdma`; empty where nothing asks for them."""
    rdma = spec.capabilities.get("rdma")
    requested = count_hcas(spec)
    if not isinstance(rdma, Rdma):
        return {"hcas": min(requested, MOST)} if requested else {}
    if rdma.fabric == "soft":
        return {}
    if rdma.fabric == "erdma":
        return {"erdma": True}
    count = rdma.count or requested
    if not count:
        count = gpus or RAILS
        notes.append(f"the spec names no number of HCAs: {count} simulated")
    return {"hcas": count, "fabric": rdma.fabric, "rate": choose_rate(rdma.rate)}


def count_hcas(spec: HostSpec) -> int:
    """Count the HCAs that the topology block counts or relies on."""
    block = spec.capabilities.get("topology")
    if not isinstance(block, Topology):
        return 0
    nearness = block.gpu_hca != "any" or block.rails != "any" or block.same_socket
    count = (spec.gpu.count if spec.gpu else None) or RAILS
    return block.hcas or (count if nearness else 0)


def choose_rate(minimum: int) -> int:
    """Choose the lowest sufficient rate; NDR's if the spec names none."""
    return next(candidate for candidate in RATES if candidate >= minimum) if minimum else 400


def replace_places(spec: HostSpec, notes: list[str]) -> HostSpec:
    """Take the places of real devices, and the source of their stack, from the spec: the simulated ones have others."""
    rdma = spec.capabilities.get("rdma")
    if not isinstance(rdma, Rdma) or rdma.fabric == "soft":
        return spec
    if rdma.fabric == "erdma":
        return _replace_block(spec, _add_stand_in(rdma, notes))
    changed: dict[str, Any] = {}
    if any(device.pci or device.netdev for device in rdma.devices):
        notes.append(
            "rdma.devices names PCI addresses or interfaces, which the simulated host has not: all HCAs are meant"
        )
        changed["devices"] = ()
    if needs_ofed(spec):
        notes.append(
            "rdma.stack is doca-ofed: a stand-in of NVIDIA's doca-host is on the simulated host, of any version"
        )
        changed["ofed"] = msgspec.structs.replace(rdma.ofed, version="", url="", file="", sha256="")
    return _replace_block(spec, msgspec.structs.replace(rdma, **changed)) if changed else spec


def _replace_block(spec: HostSpec, rdma: Rdma) -> HostSpec:
    return msgspec.structs.replace(spec, capabilities={**spec.capabilities, "rdma": rdma})


def _add_stand_in(rdma: Rdma, notes: list[str]) -> Rdma:
    """Return the block with a stand-in of Alibaba's installer, which is kept in the cache."""
    file, digest = erdma.write(image.cache_dir() / "installers")
    notes.append("rdma.erdma: eRDMA's driver comes from a stand-in of Alibaba's installer, of any version")
    source = {"installer": "", "url": "", "packages": (), "file": str(file), "sha256": digest}
    return msgspec.structs.replace(rdma, erdma=msgspec.structs.replace(rdma.erdma, **source))
