"""Which of a host's RDMA devices the `rdma` block is about. Every part asks here; none names a device by number."""

from __future__ import annotations

import msgspec

from gpuprov.capabilities.rdma.fragment import Rdma, Selector
from gpuprov.catalog.rdma import SOFT_MODULES
from gpuprov.probe.rdma import RdmaDevice, hcas

IWARP = "RNIC"
"""Node type of an iWARP device."""


def speaks(fabric: str, device: RdmaDevice) -> bool:
    """Whether a device is one of this fabric: by link layer, node type and driver, never by its name."""
    layers = {port.link_layer for port in device.ports}
    if fabric == "soft" or device.soft:
        return fabric == "soft" and device.soft
    if fabric == "erdma" or device.driver == "erdma":
        return fabric == "erdma" and device.driver == "erdma"
    if fabric == "efa" or device.driver == "efa":
        return fabric == "efa" and device.driver == "efa"
    if fabric == "infiniband":
        return "InfiniBand" in layers
    if fabric == "iwarp":
        return device.node_type == IWARP
    return "Ethernet" in layers and device.node_type != IWARP


def matches(selector: Selector, device: RdmaDevice) -> bool:
    """Whether a selector means this device. A PCI address without a domain is in domain 0000."""
    pci = selector.pci if selector.pci.count(":") != 1 else f"0000:{selector.pci}"
    nets = {*device.netdevs, *device.macs}
    return (
        (not pci or device.address == pci)
        and (not selector.driver or device.driver == selector.driver)
        and (not selector.netdev or selector.netdev in nets)
    )


def selected(block: Rdma, devices: tuple[RdmaDevice, ...]) -> tuple[RdmaDevice, ...]:
    """The devices that the block is about: those that its selectors mean, or else all that speak its fabric. No NVLink bridges."""
    real = hcas(devices)
    if block.fabric == "soft":
        named = set(block.soft.netdevs)
        mine = tuple(device for device in real if device.driver == SOFT_MODULES[block.soft.driver])
        return tuple(device for device in mine if not named or named & {*device.netdevs, *device.macs})
    if block.devices:
        return tuple(device for device in real if any(matches(one, device) for one in block.devices))
    return tuple(device for device in real if speaks(block.fabric, device))


def unmet(block: Rdma, devices: tuple[RdmaDevice, ...]) -> list[Selector]:
    """The selectors that mean no device."""
    return [one for one in block.devices if not selected(msgspec.structs.replace(block, devices=(one,)), devices)]


def words(selector: Selector) -> str:
    """A selector as a person reads it: `pci 0000:3b:00.0, driver mlx5_core`."""
    given = (("pci", selector.pci), ("driver", selector.driver), ("netdev", selector.netdev))
    return ", ".join(f"{key} {value}" for key, value in given if value) or "nothing given"
