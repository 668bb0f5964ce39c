"""Ports of RDMA devices that are down or slower than they should be, and the devices that an `rdma` block selects."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from gpuprov.catalog.rdma import SOFT_MODULES
from gpuprov.facts.probes.rdma import list_hcas, slow_ports
from gpuprov.host_code.at_boot import devices as onhost
from gpuprov.host_code.at_boot.devices import RdmaDevice, RdmaPort, Selector


class BadPort(msgspec.Struct, frozen=True, kw_only=True):
    """A port that is down or too slow, as a message."""

    device: str
    address: str
    port: int
    message: str
    # No spec says that it should be used.
    unused: bool = False

    def __str__(self) -> str:
        return f"port {self.port} of {self.device}{f' ({self.address})' if self.address else ''} {self.message}"


def convert_selectors(block: Any) -> list[Selector]:
    """Convert the selectors of an `rdma` block to those of the host code."""
    return [Selector(device.pci, device.driver, device.netdev) for device in block.devices]


def select_devices(block: Any, devices: tuple[RdmaDevice, ...]) -> tuple[RdmaDevice, ...]:
    """Return the devices that the block selects: by its selectors, or else all of its fabric. NVLink bridges are
    excluded."""
    if block.fabric == "soft":
        named = set(block.soft.netdevs)
        soft = tuple(device for device in list_hcas(devices) if device.driver == SOFT_MODULES[block.soft.driver])
        return tuple(device for device in soft if not named or named & {*device.netdevs, *device.macs})
    return onhost.select_devices(block.fabric, convert_selectors(block), devices)


def find_bad_ports(devices: tuple[RdmaDevice, ...], block: Any = None) -> list[BadPort]:
    """Find ports that are down, and ports that are slower than similar ones. `block`: the spec's `rdma` block, if any.
    A port of a selected device must be up, at the rate that the block asks for. Any other port must be up if more than
    half of the similar ones are: the first, or the further, ports of the same model and link layer that are not
    switched off; a port without a cable is no defect by itself."""
    meant = {device.name for device in select_devices(block, devices)} if block else set()
    real = [device for device in list_hcas(devices) if not (device.soft or device.virtual) or device.name in meant]
    down = [_check_port(device, port, real, device.name in meant) for device in real for port in device.ports]
    required = getattr(block, "rate", 0) or 0
    slow = [
        BadPort(
            device=slow.device,
            address=slow.address,
            port=slow.port,
            message=f"runs at {slow.rate:g} Gb/s, its like here at {slow.usual:g}",
        )
        for slow in slow_ports(device for device in devices if is_rate_known(device))
        if not (slow.device in meant and required and slow.rate >= required)
    ]
    reported = {(port.device, port.port) for port in slow}
    slow += [
        BadPort(
            device=device.name,
            address=device.address,
            port=port.number,
            message=f"runs at {port.rate:g} Gb/s, the spec asks for {required:g}",
        )
        for device in real
        for port in device.ports
        if device.name in meant and 0 < port.rate < required and port.state == "ACTIVE"
        if (device.name, port.number) not in reported
    ]
    legs = [
        BadPort(device=device.name, address=device.address, port=1, message=f"carries half of a bond: {leg}")
        for device in real
        for leg in device.legs
    ]
    return [*(port for port in down if port), *legs, *slow]


def is_rate_known(device: RdmaDevice) -> bool:
    """Return whether the device reports its true rate: Alibaba's eRDMA always shows 100 Gb/s."""
    # https://github.com/alibaba/elastic-rdma-drivers
    return device.driver != "erdma"


def _check_port(device: RdmaDevice, port: RdmaPort, devices: Sequence[RdmaDevice], meant: bool) -> BadPort | None:
    if port.state == "ACTIVE":
        return None
    alike = [
        other
        for candidate in devices
        if candidate.identifier == device.identifier
        for other in candidate.ports
        if other.link_layer == port.link_layer
        and other.physical != "Disabled"
        and _is_further(candidate, other) == _is_further(device, port)
    ]
    up = sum(port.state == "ACTIVE" for port in alike)
    used = meant or (up * 2 > len(alike) and port.physical != "Disabled")
    why = "" if meant or not used else f", {up} of its {len(alike)} like here are ACTIVE"
    shown = f"is {port.state or 'unknown'} ({port.physical or 'physical state unknown'}){why}"
    return BadPort(device=device.name, address=device.address, port=port.number, message=shown, unused=not used)


def _is_further(device: RdmaDevice, port: RdmaPort) -> bool:
    """Return whether it is not the first port of its card: second ports often have no cable."""
    return port.number > 1 or device.address[-2:] not in ("", ".0")


# Address of a device whose PCI function a record does not say: it is real, and taken for the first port of its card.
UNPLACED = "unknown.0"


def find_bad_recorded_ports(devices: tuple[RdmaDevice, ...], block: Any = None) -> list[BadPort]:
    """Find the same in what `ibstat` says. Devices that the block selects one by one are not known there."""
    placed = tuple(replace(device, address=UNPLACED) if device.identifier else device for device in devices)
    whole = None if block is None or block.devices else block
    return [msgspec.structs.replace(port, address="") for port in find_bad_ports(placed, whole)]
