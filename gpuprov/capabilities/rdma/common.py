"""Which of a host's RDMA devices the `rdma` block is about. Every part asks here, as the programs at boot do; none names a device by
number."""

from __future__ import annotations

from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog.rdma import SOFT_MODULES
from gpuprov.onhost.at_boot import devices as onhost
from gpuprov.onhost.at_boot.devices import IWARP, RdmaDevice, Selector, hcas, speaks, words

__all__ = ("IWARP", "selected", "selectors", "speaks", "unmet", "words")


def selectors(block: Rdma) -> list[Selector]:
    """Those of the block, as they are on the host."""
    return [Selector(one.pci, one.driver, one.netdev) for one in block.devices]


def selected(block: Rdma, devices: tuple[RdmaDevice, ...]) -> tuple[RdmaDevice, ...]:
    """The devices that the block is about: those that its selectors mean, or else all that speak its fabric. No NVLink bridges."""
    if block.fabric == "soft":
        named = set(block.soft.netdevs)
        mine = tuple(device for device in hcas(devices) if device.driver == SOFT_MODULES[block.soft.driver])
        return tuple(device for device in mine if not named or named & {*device.netdevs, *device.macs})
    return onhost.selected(block.fabric, selectors(block), devices)


def unmet(block: Rdma, devices: tuple[RdmaDevice, ...]) -> list[Selector]:
    """The selectors that mean no device."""
    return onhost.unmet(selectors(block), devices)
