"""Ports of RDMA devices that are down or slower than they should be, and which devices an `rdma` block is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gpuprov.catalog.rdma import SOFT_MODULES
from gpuprov.onhost.at_boot import devices as onhost
from gpuprov.onhost.at_boot.devices import RdmaDevice, RdmaPort, Selector
from gpuprov.probe.rdma import hcas, slow_ports


class BadPort(msgspec.Struct, frozen=True, kw_only=True):
    """A port that does not carry what it should, in words. `unused`: nobody says that it should."""

    device: str
    address: str
    port: int
    found: str
    unused: bool = False

    def __str__(self) -> str:
        return f"port {self.port} of {self.device}{f' ({self.address})' if self.address else ''} {self.found}"


def selectors(block: Any) -> list[Selector]:
    """Those of an `rdma` block, as they are on the host."""
    return [Selector(one.pci, one.driver, one.netdev) for one in block.devices]


def selected(block: Any, devices: tuple[RdmaDevice, ...]) -> tuple[RdmaDevice, ...]:
    """The devices that the block is about: those that its selectors mean, or else all that speak its fabric. No NVLink bridges."""
    if block.fabric == "soft":
        named = set(block.soft.netdevs)
        mine = tuple(device for device in hcas(devices) if device.driver == SOFT_MODULES[block.soft.driver])
        return tuple(device for device in mine if not named or named & {*device.netdevs, *device.macs})
    return onhost.selected(block.fabric, selectors(block), devices)


def bad_ports(devices: tuple[RdmaDevice, ...], block: Any = None) -> list[BadPort]:
    """Ports that are down, and those that are slower than their like. `block`: what the spec asks of RDMA devices, if it does.

    A port of a device that the block is about must be up. Any other must where more than half of its like are: the first, or the
    further, ports of the same model and link layer that nobody has switched off; a port without a cable is no defect by itself.
    """
    meant = {device.name for device in selected(block, devices)} if block else set()
    real = [one for one in hcas(devices) if not (one.soft or one.virtual) or one.name in meant]
    found = [_down(device, port, real, device.name in meant) for device in real for port in device.ports]
    asked = getattr(block, "rate", 0) or 0
    slow = [
        BadPort(
            device=one.device, address=one.address, port=one.port,
            found=f"runs at {one.rate:g} Gb/s, its like here at {one.usual:g}",
        )
        for one in slow_ports(device for device in devices if tells_rate(device))
        if not (one.device in meant and asked and one.rate >= asked)
    ]  # fmt: skip
    legs = [
        BadPort(device=one.name, address=one.address, port=1, found=f"carries half of a bond: {leg}")
        for one in real
        for leg in one.legs
    ]
    return [*(one for one in found if one), *legs, *slow]


def tells_rate(device: RdmaDevice) -> bool:
    """Alibaba's eRDMA shows 100 Gb/s whatever it has: https://github.com/alibaba/elastic-rdma-drivers"""
    return device.driver != "erdma"


def _down(device: RdmaDevice, port: RdmaPort, devices: Sequence[RdmaDevice], meant: bool) -> BadPort | None:
    if port.state == "ACTIVE":
        return None
    alike = [
        other
        for one in devices
        if one.identifier == device.identifier
        for other in one.ports
        if other.link_layer == port.link_layer
        and other.physical != "Disabled"
        and _is_further(one, other) == _is_further(device, port)
    ]
    up = sum(one.state == "ACTIVE" for one in alike)
    used = meant or (up * 2 > len(alike) and port.physical != "Disabled")
    why = "" if meant or not used else f", {up} of its {len(alike)} like here are ACTIVE"
    shown = f"is {port.state or 'unknown'} ({port.physical or 'physical state unknown'}){why}"
    return BadPort(device=device.name, address=device.address, port=port.number, found=shown, unused=not used)


def _is_further(device: RdmaDevice, port: RdmaPort) -> bool:
    """Whether it is not the first port of its card: of such cards, second ports often have no cable."""
    return port.number > 1 or device.address[-2:] not in ("", ".0")
