"""A host's rails: the ports to test, each with the GID and the address that others reach it by. Never a device by its
number."""

import os
from typing import Literal

import msgspec

from gpuprov.accept.model import Host
from gpuprov.facts.probes.rdma import Gid, RdmaDevice, RdmaPort

Speech = Literal["InfiniBand", "RoCE", "iWARP"]


class Rail(msgspec.Struct, frozen=True, kw_only=True):
    """A port."""

    device: str
    port: int
    speech: Speech
    driver: str = ""
    rate: float = 0.0
    lid: int = 0
    # Of RoCE only.
    gid: int | None = None
    # Target of the peer's TCP connection.
    address: str = ""
    # The nearest GPU's PCI address.
    gpu: str = ""
    # Why it cannot be tested.
    problem: str = ""


def list_rails(host: Host) -> list[Rail]:
    """List the host's ports that are up, in the order of their PCI addresses, which is the order of rails."""
    ordered = sorted(host.devices, key=lambda device: (not device.address, device.address, device.name))
    return [_make_rail(host, device, port) for device in ordered for port in device.ports if port.state == "ACTIVE"]


def describe_down(host: Host) -> str:
    """Describe the ports that are not up, of the devices that the spec selects; empty if all are up."""
    ports = [(device.name, port) for device in host.devices for port in device.ports if port.state != "ACTIVE"]
    return ", ".join(f"{name} port {port.number} is {port.state or 'in no state'}" for name, port in ports)


def pair_rails(rails: list[Rail], other: list[Rail]) -> list[tuple[Rail, Rail]]:
    """Pair rails in order, those with the same protocol."""
    pairs: list[tuple[Rail, Rail]] = []
    for speech in dict.fromkeys(rail.speech for rail in rails):
        ours, peers = ([rail for rail in side if rail.speech == speech] for side in (rails, other))
        pairs += zip(ours, peers, strict=False)
    return pairs


def _make_rail(host: Host, device: RdmaDevice, port: RdmaPort) -> Rail:
    speech: Speech = (
        "InfiniBand" if port.link_layer == "InfiniBand" else "iWARP" if device.node_type == "RNIC" else "RoCE"
    )
    on_netdev = [address for name in device.netdevs for address in host.network.addresses.get(name, ())]
    gid = _choose_gid(device, port, on_netdev) if speech == "RoCE" else None
    address, problem = "", ""
    if speech == "InfiniBand":
        address = (on_netdev or [host.network.main])[0]
        problem = "" if port.lid else f"{device.name} has no LID: no subnet manager"
        problem = problem or ("" if address else "no IPv4 address to start a test over")
    elif speech == "iWARP":
        address = on_netdev[0] if on_netdev else ""
        problem = (
            "" if address else f"no IPv4 address on {' '.join(device.netdevs) or 'the interface of ' + device.name}"
        )
    else:
        address = gid.ipv4 if gid else ""
        problem = "" if gid else f"{device.name} has no GID of RoCE v2 with an IPv4 address"
    return Rail(
        device=device.name,
        port=port.number,
        speech=speech,
        driver=device.driver,
        rate=port.rate,
        lid=port.lid,
        gid=gid.index if gid else None,
        address=address,
        gpu=find_nearest(host, device.name),
        problem=problem,
    )


def _choose_gid(device: RdmaDevice, port: RdmaPort, addresses: list[str]) -> Gid | None:
    """Choose a GID by type and address, since its index differs from device to device. One whose address its interface
    still has comes first."""
    usable = [gid for gid in port.gids if gid.kind == "RoCE v2" and gid.ipv4]
    current = [gid for gid in usable if gid.ipv4 in addresses]
    return next(iter([*current, *([] if addresses else usable)]), None)


def find_nearest(host: Host, device: str) -> str:
    """Return the PCI address of the GPU that shares the longest path through the PCI tree with an RDMA device; empty if
    none."""
    hca_path = host.network.hcas.get(device, "")
    shared = {
        gpu: len(os.path.commonpath([hca_path, path]).split("/")) for gpu, path in host.network.gpus.items() if hca_path
    }
    # "/sys/devices/pci0000:16" is the root complex: it starts the path below that, too.
    return max(sorted(shared), key=lambda gpu: shared[gpu], default="")
