"""The PCI functions of a simulated host: GPUs, NVSwitches and HCAs, computed from its description and the catalogue."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from gpuprov.simulate.description import Description
from gpuprov.simulate.devices_tree import DOMAIN, tree

GPU_CLASS, NVSWITCH_CLASS, INFINIBAND_CLASS, ETHERNET_CLASS = "030200", "068000", "020700", "020000"
# Generation -> PCI id and number on a board of 8 GPUs:
# https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
NVSWITCHES: dict[int, tuple[str, int]] = {1: ("10de:1ac2", 6), 2: ("10de:1af1", 6), 3: ("10de:22a3", 4)}
CONNECTX6, CONNECTX7, CONNECTX8 = "15b3:101b", "15b3:1021", "15b3:1023"
# Rate of a port in Gb/s -> PCI id and name of an adapter that has it: https://pci-ids.ucw.cz/read/PC/15b3
HCAS = {
    100: (CONNECTX6, "ConnectX-6"),
    200: (CONNECTX6, "ConnectX-6"),
    400: (CONNECTX7, "ConnectX-7"),
    800: (CONNECTX8, "ConnectX-8"),
}
# The NVLink bridges of NVSwitch generation 4 boards are ConnectX-7 functions; only their VPD tells them from HCAs.
BRIDGES = 4
BRIDGE_VPD = "SW_MNG"
Role = Literal["gpu", "nvswitch", "hca", "nvlink-bridge"]
NVLINK_ROLES: tuple[Role, ...] = ("nvswitch", "nvlink-bridge")
_NAMESPACE = uuid.UUID("7d0a4f0e-6c1b-5d0c-9a55-0c5a2f6f8a11")


@dataclass(frozen=True)
class PciDevice:
    """One function. `address` is `0001:1b:00.0`; `identifier` and `subsystem` are `10de:2330`; `pci_class` six hex
    digits.

    `uuid` (GPUs only) is the one that NVML reports. `vpd` is the vendor-specific field V3 of its VPD, mostly empty.
    `path` is its folder below /sys/devices.
    """

    role: Role
    index: int
    address: str
    identifier: str
    subsystem: str
    pci_class: str
    numa_node: int
    name: str
    uuid: str = ""
    vpd: str = ""
    path: str = ""


def devices(name: str, description: Description) -> tuple[PciDevice, ...]:
    """Return all functions of the host of this name, in bus order. The same name and description give the same
    devices."""
    made = [*_list_gpus(name, description), *_list_nvswitches(description), *_list_hcas(description)]
    if hung := tree(description, [(device.role, device.index) for device in made if device.role in NVLINK_ROLES]):
        places = [hung.places[device.role, device.index] for device in made]
        made = [
            replace(device, address=place.address, path=place.path, numa_node=place.numa_node)
            for device, place in zip(made, places, strict=True)
        ]
    return tuple(sorted(made, key=lambda device: device.address))


def _list_gpus(name: str, description: Description) -> Iterator[PciDevice]:
    if not (gpu := description.gpu):
        return
    known = gpu.known
    pci_id = known.pci_ids[0]
    subsystem = pci_id.subsystems[0] if pci_id.subsystems else pci_id.id
    printed = known.aliases[0].name if known.aliases else known.name  # one entry may be of several products
    for index in range(gpu.count):
        uuid_ = f"GPU-{uuid.uuid5(_NAMESPACE, f'{name}/{known.key}/{index}')}"
        yield _build_device("gpu", index, 0x10, gpu.count, pci_id.id, subsystem, GPU_CLASS, printed, uuid_)


def _list_nvswitches(description: Description) -> Iterator[PciDevice]:
    """Yield the NVSwitches; those of generation 4 are reached through bridges."""
    if description.nvswitch in NVSWITCHES:
        identifier, count = NVSWITCHES[description.nvswitch]
        for index in range(count):
            yield _build_device("nvswitch", index, 0xC0, count, identifier, identifier, NVSWITCH_CLASS, "NVSwitch")
    if description.nvswitch == 4:
        bridge = (BRIDGES, CONNECTX7, CONNECTX7, INFINIBAND_CLASS, "NVLink bridge")
        yield from (_build_device("nvlink-bridge", index, 0xD0, *bridge, vpd=BRIDGE_VPD) for index in range(BRIDGES))


def _list_hcas(description: Description) -> Iterator[PciDevice]:
    identifier, adapter = HCAS[description.rate]
    pci_class = ETHERNET_CLASS if description.fabric == "roce" else INFINIBAND_CLASS
    for index in range(description.hcas):
        yield _build_device("hca", index, 0x90, description.hcas, identifier, identifier, pci_class, adapter)


def _build_device(  # noqa: PLR0917
    role: Role,
    index: int,
    first_bus: int,
    count: int,
    identifier: str,
    subsystem: str,
    pci_class: str,
    name: str,
    identity: str = "",
    vpd: str = "",
) -> PciDevice:
    # Two sockets: the first half of each kind hangs on NUMA node 0.
    node = 0 if index < (count + 1) // 2 else 1
    address = f"{DOMAIN:04x}:{first_bus + index:02x}:00.0"
    path = f"pci{address[:7]}/{address}"
    return PciDevice(role, index, address, identifier, subsystem, pci_class, node, name, identity, vpd, path)


def table(made: tuple[PciDevice, ...]) -> str:
    """Return the devices as tab-separated lines, for the programs on the host: /etc/gpuprov-sim/devices."""
    return "".join(
        "\t".join(
            [
                d.role,
                str(d.index),
                d.address,
                d.identifier,
                d.subsystem,
                d.pci_class,
                str(d.numa_node),
                d.name,
                d.uuid or "-",
                d.vpd or "-",
            ]
        )
        + "\n"
        for d in made
    )
