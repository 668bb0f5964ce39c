"""The files that sysfs has for a PCI function, for containers. The module in pci/ makes the same function in a machine."""

from __future__ import annotations

import struct

from gpuprov.simulate.devices import PciDevice

GIGATRANSFERS = {3: "8.0", 4: "16.0", 5: "32.0"}
EXPRESS, VPD = 0x40, 0x80  # where the capabilities lie in the configuration space


def files(function: PciDevice) -> dict[str, bytes]:
    """File name -> content."""
    vendor, device = function.identifier.split(":")
    sub_vendor, sub_device = function.subsystem.split(":")
    numbers = [int(part, 16) for part in (vendor, device, sub_vendor, sub_device, function.pci_class)]
    speed = _generation(*numbers[:2])
    texts = {
        "vendor": f"0x{vendor}",
        "device": f"0x{device}",
        "subsystem_vendor": f"0x{sub_vendor}",
        "subsystem_device": f"0x{sub_device}",
        "class": f"0x{function.pci_class}",
        "revision": "0xa1",
        "irq": "0",
        "enable": "1",
        "numa_node": str(function.numa_node),
        "current_link_speed": f"{GIGATRANSFERS[speed]} GT/s PCIe",
        "max_link_speed": f"{GIGATRANSFERS[speed]} GT/s PCIe",
        "current_link_width": "16",
        "max_link_width": "16",
        "modalias": "pci:v{:08X}d{:08X}sv{:08X}sd{:08X}bc{:02X}sc{:02X}i{:02X}".format(
            *numbers[:4], *numbers[4].to_bytes(3, "big")
        ),
        "resource": "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 13),
    }
    made = {key: f"{value}\n".encode() for key, value in texts.items()}
    made["config"] = _configuration(numbers, speed, has_vpd=bool(function.vpd))
    if function.vpd:
        made["vpd"] = _product_data(function.name, function.vpd)
    return made


def _generation(vendor: int, device: int) -> int:
    """PCI Express generation by device id: Turing and before 3; Hopper, Blackwell and ConnectX-7 5; others 4."""
    if vendor != 0x10DE or device >> 8 == 0x23 or device >> 8 >= 0x29:
        return 5
    return 3 if device < 0x1F00 and device != 0x1AF1 else 4


def _configuration(numbers: list[int], speed: int, *, has_vpd: bool) -> bytes:
    """256 bytes of configuration space: header, PCI Express capability, VPD capability."""
    vendor, device, sub_vendor, sub_device, pci_class = numbers
    space = bytearray(256)
    struct.pack_into("<HHHHI", space, 0, vendor, device, 0x0002, 0x0010, pci_class << 8 | 0xA1)
    struct.pack_into("<HH", space, 0x2C, sub_vendor, sub_device)
    space[0x34] = EXPRESS
    struct.pack_into("<BBHI", space, EXPRESS, 0x10, VPD if has_vpd else 0, 2, 0x8001)
    struct.pack_into("<IHH", space, EXPRESS + 0x0C, 16 << 4 | speed, 0, 16 << 4 | speed)
    struct.pack_into("<I", space, EXPRESS + 0x2C, (2 << speed) - 2)
    if has_vpd:
        space[VPD] = 0x03
    return bytes(space)


def _product_data(name: str, content: str) -> bytes:
    """Layout and checksum: PCI Local Bus specification 3.0, appendix I."""
    fields = b"".join(
        key + bytes([len(value)]) + value for key, value in ((b"PN", b"SIMULATED"), (b"V3", content.encode()))
    )
    head = b"\x82" + struct.pack("<H", len(name)) + name.encode() + b"\x90" + struct.pack("<H", len(fields) + 4)
    body = head + fields + b"RV\x01"
    return body + bytes([-sum(body) % 256]) + b"\x78"
