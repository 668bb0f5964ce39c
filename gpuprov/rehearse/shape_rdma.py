"""What a spec with RDMA asks of its simulated host: HCAs, their fabric and rate; or why it cannot be simulated."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from gpuprov.capabilities.rdma.fragment import Opensm, Rdma
from gpuprov.errors import GpuprovError
from gpuprov.simulate.description import HcaRate, Kind
from gpuprov.spec.model import HostSpec

RATES: tuple[int, ...] = get_args(HcaRate)
MOST = 16
RAILS = 8
"""HCAs beside a board of eight GPUs."""
REFUSED = {
    "iwarp": "whose devices are not simulated",
    "efa": "whose installer and libfabric are AWS's own, which find nothing to serve on a simulated host",
}


def needs_board(spec: HostSpec) -> bool:
    """Whether it asks for HCAs, which are simulated beside GPUs only."""
    rdma = spec.capabilities.get("rdma")
    return isinstance(rdma, Rdma) and rdma.fabric != "soft"


def hcas(spec: HostSpec, kind: Kind, gpus: int, notes: list[str]) -> dict[str, Any]:
    """`hcas`, `fabric` and `rate` of the description, or `erdma`; empty where nothing asks for them.

    Raises GpuprovError where a kind of host has no such devices.
    """
    rdma = spec.capabilities.get("rdma")
    asked = topology(spec)
    if not isinstance(rdma, Rdma):
        return {"hcas": min(asked, MOST)} if asked else {}
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
    wanted = rdma.count or asked
    if not wanted:
        wanted = gpus or RAILS
        notes.append(f"the spec names no number of HCAs: {wanted} simulated")
    if wanted > MOST:
        notes.append(f"{MOST} of {wanted} HCAs are simulated: the simulation has no more")
    return {"hcas": min(wanted, MOST), "fabric": rdma.fabric, "rate": rate(rdma.rate, spec.name)}


def topology(spec: HostSpec) -> int:
    """HCAs that the topology block counts or relies on."""
    block = spec.capabilities.get("topology")
    told: dict[str, Any] = msgspec.to_builtins(block) if block is not None else {}
    nearness = (
        told.get("gpu_hca", "any") != "any" or told.get("rails", "any") != "any" or told.get("same_socket", False)
    )
    count = (spec.gpu.count if spec.gpu else None) or RAILS
    return int(told.get("hcas", 0)) or (count if nearness else 0)


def rate(wanted: int, host: str) -> int:
    """The lowest that is enough; NDR's where the spec names none."""
    if not wanted:
        return 400
    enough = [one for one in RATES if one >= wanted]
    if not enough:
        raise GpuprovError(
            f"{host}: rdma.rate is {wanted}; simulated ports have up to {RATES[-1]} Gb/s", "ask for less"
        )
    return enough[0]


def without_fabric(spec: HostSpec, notes: list[str]) -> HostSpec:
    """The spec without the places of real devices, since the simulated ones have others, and without what needs a live fabric."""
    rdma = spec.capabilities.get("rdma")
    if not isinstance(rdma, Rdma) or rdma.fabric in ("soft", "erdma"):
        return spec
    changed: dict[str, Any] = {}
    if any(one.pci or one.netdev for one in rdma.devices):
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
    if not changed:
        return spec
    block = msgspec.structs.replace(rdma, **changed)
    return msgspec.structs.replace(spec, capabilities={**spec.capabilities, "rdma": block})
