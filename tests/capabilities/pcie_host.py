"""A host of one PCIe switch with a GPU and an HCA below it: as the probe prints it, and as a sysfs tree with
configuration spaces."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

ROOT_PORT, UPSTREAM, LEFT, RIGHT, HCA, GPU = (
    f"0000:{tail}" for tail in ("15:01.0", "16:00.0", "17:00.0", "17:01.0", "18:00.0", "19:00.0")
)
CONTROL = 0x2910
"""DevCtl as lspci shows it of a ConnectX-7: MaxReadReq 512 bytes, RlxdOrd+, ExtTag+."""
ON = 0x1D
"""SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+: what Linux enables with an IOMMU (pci_std_enable_acs)."""


def space(identifier: str, control: int | None = CONTROL, acs: int | None = None, size: int = 4096) -> bytes:
    """Configuration space: power management at 0x40, PCI Express at 0x68; device serial number at 0x100, AER at 0xfb4,
    and ACS at 0xf24, in the order in which a PEX switch links them (lspci -vvv of a PEX 9797)."""
    vendor, device = (int(part, 16) for part in identifier.split(":"))
    made = bytearray(4096)
    struct.pack_into("<HHHH", made, 0, vendor, device, 0x0006, 0x0010)
    made[0x34] = 0x40
    struct.pack_into("<BB", made, 0x40, 0x01, 0x68 if control is not None else 0x00)
    if control is not None:
        struct.pack_into("<BBHIH", made, 0x68, 0x10, 0x00, 0x0052, 0x8001, control)
    struct.pack_into("<HH", made, 0x100, 0x0003, 0xFB4 << 4 | 1)
    struct.pack_into("<HH", made, 0xFB4, 0x0001, (0xF24 << 4 if acs is not None else 0) | 1)
    if acs is not None:
        struct.pack_into("<HHHH", made, 0xF24, 0x000D, 1, 0x005F, acs)
    return bytes(made[:size])


class Part(NamedTuple):
    """A function of the tree."""

    address: str
    identifier: str
    above: tuple[str, ...]
    kind: str = "bridge"
    acs: int | None = 0


PARTS = (
    Part(ROOT_PORT, "8086:352a", ()),
    Part(UPSTREAM, "1000:c030", (ROOT_PORT,), acs=None),
    Part(LEFT, "1000:c030", (ROOT_PORT, UPSTREAM)),
    Part(RIGHT, "1000:c030", (ROOT_PORT, UPSTREAM)),
    Part(HCA, "15b3:1021", (ROOT_PORT, UPSTREAM, LEFT), "hca"),
    Part(GPU, "10de:2330", (ROOT_PORT, UPSTREAM, RIGHT), "gpu", None),
)


def tree(root: Path, acs: int = 0, control: int = CONTROL) -> Path:
    """The sysfs of that host below `root`, with a virtual function and an NVLink bridge beside; `acs` is in every
    bridge."""
    for part in PARTS:
        folder = root / "sys/devices/pci0000:15" / "/".join((*part.above, part.address))
        function(root, folder, part.identifier, "060400" if part.kind == "bridge" else "030200")
        own = None if part.acs is None else acs if part.kind == "bridge" else 0
        (folder / "config").write_bytes(space(part.identifier, control, own))
    hca = root / "sys/bus/pci/devices" / HCA
    (hca / "infiniband" / "ibp24s0").mkdir(parents=True)
    for number, listed in ((101, "0-31"), (102, "8-9")):
        (hca / "msi_irqs").mkdir(exist_ok=True)
        (hca / "msi_irqs" / str(number)).write_text("msix\n")
        (root / f"proc/irq/{number}").mkdir(parents=True)
        (root / f"proc/irq/{number}/smp_affinity_list").write_text(f"{listed}\n")
    for name, more in (("0000:18:00.1", "physfn"), ("0000:1b:00.0", "vpd")):
        folder = root / "sys/devices/pci0000:15" / ROOT_PORT / name
        function(root, folder, "15b3:101e" if more == "physfn" else "15b3:1021", "020700")
        (folder / "infiniband").mkdir()
        (folder / "config").write_bytes(space("15b3:101e", 0x0000, ON))
        if more == "physfn":
            (folder / "physfn").symlink_to(hca.resolve())
        else:
            (folder / "vpd").write_bytes(b"\x82\x05\x00\x00V3\x06SW_MNG")
    return root


def function(root: Path, folder: Path, identifier: str, pci_class: str) -> None:
    """What every function of the tree has."""
    folder.mkdir(parents=True, exist_ok=True)
    vendor, device = identifier.split(":")
    texts = {
        "vendor": f"0x{vendor}",
        "device": f"0x{device}",
        "class": f"0x{pci_class}",
        "numa_node": "0",
        "local_cpulist": "0-15",
    }
    for name, value in texts.items():
        (folder / name).write_text(f"{value}\n")
    link = root / "sys/bus/pci/devices" / folder.name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(folder)


def said(
    *more: str,
    acs: int = 0,
    control: int | None = CONTROL,
    request: int = 0,
    size: int = 4096,
    domain: str = "identity",
    driver: str = "nvidia",
    hca: bool = True,
    irq: str = "0-15",
    config: tuple[str, ...] | None = None,
    unit: tuple[str, str, str] = ("loaded", "active", "enabled"),
    port: str = "8086:352a",
) -> str:
    """What the probe prints of it. `acs` is of the left downstream port, `request` (DevCtl) of the HCA."""
    lines = []
    for part in PARTS:
        if part.kind == "hca" and not hca:
            continue
        own = acs if part.address == LEFT else part.acs
        value = request if request and part.kind == "hca" else control
        cells = (
            *(part.address, port if part.address == ROOT_PORT else part.identifier, part.kind),
            *(
                driver if part.kind == "gpu" else "pcieport",
                0,
                "0-15",
                " ".join(part.above),
                7 if domain else "",
                domain,
                "",
            ),
            *(size, "" if value is None or size <= 64 else value, "" if own is None or size <= 64 else own),
        )
        lines.append("function|" + "|".join(str(cell) for cell in cells))
    lines += [f"irq|{HCA}|101|{irq}", f"irq|{HCA}|102|8-9"] if hca and irq else []
    lines += ["vendor|GenuineIntel", "other|15b3:1021", "other|10de:2330"]
    lines += ["config|", *(f"config|{line}" for line in config)] if config is not None else []
    lines += [f"LoadState|{unit[0]}", f"ActiveState|{unit[1]}", f"UnitFileState|{unit[2]}"]
    return "\n".join([*lines, *more]) + "\n"


RDMA = f"device|ibp24s0|{HCA}|mlx5_core|0x15b3|0x1021|1: CA|0c42:a103|28.41.1000|0|||\n"
"""The HCA as the probe of RDMA devices prints it."""
PROBES = {"pcie": said("installed|", config=None, unit=("not-found", "inactive", ""))}
