"""Files of a PCI function in sysfs, for containers. The module in pci/ makes the same functions in a machine."""

from __future__ import annotations

import struct

from gpuprov.simulate.devices import PciDevice
from gpuprov.simulate.devices_tree import Bridge, Port

GIGATRANSFERS = {3: "8.0", 4: "16.0", 5: "32.0"}
EXPRESS, VPD = 0x40, 0x80  # where the capabilities lie in the configuration space
ACS = 0x100  # where it lies in the extended one, which is 4096 bytes in all
BRIDGE_CLASS = 0x060400
# PCI id (a root port of Xeon processors, a PEX890xx switch), type in the Express capability, its ACS capabilities (0:
# none).
#
# https://pci-ids.ucw.cz/read/PC/8086/352c, https://pci-ids.ucw.cz/read/PC/1000/c030; PCI Express Base Specification,
# 7.5.3.2, 7.7.11.2
BRIDGES: dict[Port, tuple[str, int, int]] = {
    "root-port": ("8086:352c", 4, 0x1F),
    "upstream": ("1000:c030", 5, 0),
    "downstream": ("1000:c030", 6, 0x5F),
}
# SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+: enabled by Linux on each boot with an IOMMU (pci_std_enable_acs).
ACS_ENABLED = 0x1D
# Firmware default: read requests of 512 bytes, payloads of 256, relaxed ordering, no snoop, extended tags.
DEVICE_CONTROL = 0x2930


def files(function: PciDevice) -> dict[str, bytes]:
    """Return file name -> content."""
    numbers = [int(part, 16) for part in (*function.identifier.split(":"), *function.subsystem.split(":"))]
    numbers.append(int(function.pci_class, 16))
    speed = _generation(*numbers[:2])
    made = _texts(numbers, speed, function.numa_node, 0xA1)
    made["config"] = _configuration(numbers, speed, has_vpd=bool(function.vpd))
    if function.vpd:
        made["vpd"] = _product_data(function.name, function.vpd)
    return made


def bridge_files(bridge: Bridge) -> dict[str, bytes]:
    """Return the same for a port of a root complex or switch."""
    identifier, _, acs = BRIDGES[bridge.port]
    vendor, device = (int(part, 16) for part in identifier.split(":"))
    made = _texts([vendor, device, 0, 0, BRIDGE_CLASS], 5, bridge.numa_node, 0xB0)
    made |= {"secondary_bus_number": b"%d\n" % bridge.buses[1], "subordinate_bus_number": b"%d\n" % bridge.buses[2]}
    space = bytearray(4096)
    struct.pack_into("<HHHHI", space, 0, vendor, device, 0x0506, 0x0010, BRIDGE_CLASS << 8 | 0xB0)
    space[0x0E] = 1  # header of a bridge
    struct.pack_into("<BBB", space, 0x18, *bridge.buses)
    space[0x34] = EXPRESS
    _express(space, 5, BRIDGES[bridge.port][1])
    if acs:
        struct.pack_into("<IHH", space, ACS, 0x0001000D, acs, ACS_ENABLED)
    made["config"] = bytes(space)
    return made


def _texts(numbers: list[int], speed: int, node: int, revision: int) -> dict[str, bytes]:
    vendor, device, sub_vendor, sub_device, pci_class = numbers
    texts = {
        "vendor": f"0x{vendor:04x}",
        "device": f"0x{device:04x}",
        "subsystem_vendor": f"0x{sub_vendor:04x}",
        "subsystem_device": f"0x{sub_device:04x}",
        "class": f"0x{pci_class:06x}",
        "revision": f"0x{revision:02x}",
        "irq": "0",
        "enable": "1",
        "numa_node": str(node),
        "current_link_speed": f"{GIGATRANSFERS[speed]} GT/s PCIe",
        "max_link_speed": f"{GIGATRANSFERS[speed]} GT/s PCIe",
        "current_link_width": "16",
        "max_link_width": "16",
        "modalias": "pci:v{:08X}d{:08X}sv{:08X}sd{:08X}bc{:02X}sc{:02X}i{:02X}".format(
            *numbers[:4], *pci_class.to_bytes(3, "big")
        ),
        "resource": "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 13),
    }
    return {key: f"{value}\n".encode() for key, value in texts.items()}


def _generation(vendor: int, device: int) -> int:
    """Return the PCI Express generation by device id: Turing and before 3; Hopper, Blackwell and ConnectX-7 5; others
    4."""
    if vendor != 0x10DE:
        return 4 if device == 0x101B else 5
    if device >> 8 == 0x23 or device >> 8 >= 0x29:
        return 5
    return 3 if device < 0x1F00 and device != 0x1AF1 else 4


def _configuration(numbers: list[int], speed: int, *, has_vpd: bool) -> bytes:
    """Return the configuration space of an endpoint: header, PCI Express capability, VPD capability."""
    vendor, device, sub_vendor, sub_device, pci_class = numbers
    space = bytearray(4096)
    struct.pack_into("<HHHHI", space, 0, vendor, device, 0x0006, 0x0010, pci_class << 8 | 0xA1)
    struct.pack_into("<HH", space, 0x2C, sub_vendor, sub_device)
    space[0x34] = EXPRESS
    _express(space, speed, 0, VPD if has_vpd else 0)
    if has_vpd:
        space[VPD] = 0x03
    return bytes(space)


def _express(space: bytearray, speed: int, kind: int, following: int = 0) -> None:
    struct.pack_into("<BBHIH", space, EXPRESS, 0x10, following, kind << 4 | 2, 0x8001, DEVICE_CONTROL)
    struct.pack_into("<IHH", space, EXPRESS + 0x0C, 16 << 4 | speed, 0, 16 << 4 | speed)
    struct.pack_into("<IH", space, EXPRESS + 0x2C, (2 << speed) - 2, speed)


def _product_data(name: str, content: str) -> bytes:
    """Return the VPD. Layout and checksum: PCI Local Bus specification 3.0, appendix I."""
    fields = b"".join(
        key + bytes([len(value)]) + value for key, value in ((b"PN", b"SIMULATED"), (b"V3", content.encode()))
    )
    head = b"\x82" + struct.pack("<H", len(name)) + name.encode() + b"\x90" + struct.pack("<H", len(fields) + 4)
    body = head + fields + b"RV\x01"
    return body + bytes([-sum(body) % 256]) + b"\x78"
