"""What lspci and the tools of RDMA print, laid out as sysfs has it; configuration space too, as far as lspci decodes
it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.real.tree import Tree

PCI = "/sys/bus/pci/devices"
ADDRESS = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
VENDORS = {
    "NVIDIA Corporation": 0x10DE,
    "Mellanox Technologies": 0x15B3,
    "Broadcom / LSI": 0x1000,
    "PLX Technology": 0x10B5,
}
CLASSES = {
    "VGA compatible controller": 0x030000,
    "3D controller": 0x030200,
    "Infiniband controller": 0x020700,
    "Ethernet controller": 0x020000,
    "PCI bridge": 0x060400,
    "Bridge": 0x068000,
}
SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def whole(address: str) -> str:
    """With its domain, which lspci leaves out where there is but one."""
    return address if address.count(":") == 2 else f"0000:{address}"


def lspci_verbose(tree: Tree, text: str, _: str) -> None:
    """`lspci -vv`, with or without -nn and -xxxx. The buses of bridges tell what is below what."""
    blocks = {}
    for block in re.split(rf"^(?={ADDRESS} )", text, flags=re.MULTILINE):
        if match := re.match(rf"({ADDRESS}) ", block):
            blocks[whole(match[1])] = block
    below = {}
    for address, block in blocks.items():
        if match := re.search(r"Bus: primary=\w+, secondary=(\w+), subordinate=(\w+)", block):
            below[address] = (address[:5], int(match[1], 16))
    for address, block in blocks.items():
        way, at = [address], address
        while above := next((one for one, bus in below.items() if bus == (at[:5], int(at.split(":")[1], 16))), None):
            way.insert(0, above)
            at = above
        real = f"/sys/devices/pci{way[0].rsplit(':', 1)[0]}/" + "/".join(way)
        tree.folder(real)
        tree.link(f"{PCI}/{address}", real)
        _function(tree, real, block)


def _function(tree: Tree, real: str, block: str) -> None:
    head = block.splitlines()[0]
    ids = re.search(r"\[([0-9a-f]{4})\]: .*\[([0-9a-f]{4}):([0-9a-f]{4})\]", head)
    kind = next((number for name, number in CLASSES.items() if f" {name}" in head), 0xFF0000)
    vendor = next((number for name, number in VENDORS.items() if f": {name}" in head), 0)
    device = int(found[1], 16) if (found := re.search(r" Device ([0-9a-f]{4})\b", head)) else 0
    if ids:
        kind, vendor, device = int(ids[1], 16) << 8, int(ids[2], 16), int(ids[3], 16)
    node = re.search(r"NUMA node: (\d+)", block)
    told = {
        "vendor": f"0x{vendor:04x}",
        "device": f"0x{device:04x}",
        "class": f"0x{kind:06x}",
        "numa_node": node[1] if node else "-1",
    }
    for which, names in (
        ("LnkCap", ("max_link_speed", "max_link_width")),
        ("LnkSta", ("current_link_speed", "current_link_width")),
    ):
        if link := re.search(rf"{which}:.*?Speed ([\d.]+)GT/s.*?Width x(\d+)", block):
            told |= {names[0]: f"{float(link[1]):.1f} GT/s PCIe", names[1]: link[2]}
    for name, value in told.items():
        tree.file(f"{real}/{name}", value + "\n")
    if driver := re.search(r"Kernel driver in use: (\S+)", block):
        tree.folder(f"/sys/bus/pci/drivers/{driver[1]}")
        tree.link(f"{real}/driver", f"/sys/bus/pci/drivers/{driver[1]}")
    if group := re.search(r"IOMMU group: (\d+)", block):
        tree.folder(f"/sys/kernel/iommu_groups/{group[1]}")
        tree.link(f"{real}/iommu_group", f"/sys/kernel/iommu_groups/{group[1]}")
    tree.file(f"{real}/resource", "".join(_regions(block)))
    tree.file(f"{real}/config", _dumped(block) or _configuration(block))
    if "SW_MNG" in block:
        tree.file(f"{real}/vpd", "SW_MNG")


def _regions(block: str) -> list[str]:
    rows = ["0x0000000000000000 0x0000000000000000 0x0000000000000000\n"] * 6
    pattern = (
        r"Region (\d): Memory at (<\w+>|[0-9a-f]+) \((32|64)-bit, (non-)?prefetchable\)(.*?)\[size=(\d+)([KMG]?)\]"
    )
    for number, start, bits, plain, _, size, unit in re.findall(pattern, block):
        length = int(size) * SIZES[unit]
        first = 0 if start.startswith("<") else int(start, 16)
        flags = (
            0x40200
            | (0 if plain else 0x2008)
            | (0x100004 if bits == "64" else 0)
            | (0x20000000 if start.startswith("<") else 0)
        )
        rows[int(number)] = f"0x{first:016x} 0x{first + length - 1:016x} 0x{flags:016x}\n"
    return rows


def _dumped(block: str) -> bytes:
    """What `-xxx` shows of it."""
    rows = re.findall(r"^([0-9a-f]{2,3}): ((?:[0-9a-f]{2} ?){16})\s*$", block, re.MULTILINE)
    return bytes(int(cell, 16) for _, row in rows for cell in row.split())


def _configuration(block: str) -> bytes:
    """DevCtl and ACSCtl where lspci found them (PCI Express 7.5.3.4, 7.7.11.3); users without root see the header
    alone."""
    if "<access denied>" in block:
        return bytes(64)
    space = bytearray(4096)
    chain = 0x34
    for place in re.findall(r"Capabilities: \[([0-9a-f]{2})\]", block):
        at = int(place, 16)
        space[6], space[chain], chain = 0x10, at, at + 1
        part = block.partition(f"Capabilities: [{place}]")[2].partition("Capabilities: [")[0]
        if "Express" in part.splitlines()[0]:
            space[at] = 0x10
            control = _bits(
                part,
                "DevCtl",
                {"CorrErr": 0, "NonFatalErr": 1, "FatalErr": 2, "UnsupReq": 3, "RlxdOrd": 4, "NoSnoop": 11},
            )
            if size := re.search(r"MaxReadReq (\d+) bytes", part):
                control |= (int(size[1]).bit_length() - 8) << 12
            space[at + 8 : at + 10] = control.to_bytes(2, "little")
        else:
            space[at] = 0x01
    places = [int(one, 16) for one in re.findall(r"Capabilities: \[([0-9a-f]{3}) v\d+\]", block)]
    if places and places[0] != 0x100:
        places.insert(0, 0x100)
    for at, following in zip(places, [*places[1:], 0], strict=False):
        part = re.split(rf"Capabilities: \[{at:x} v\d+\]", block)[-1].partition("Capabilities: [")[0]
        acs = "Access Control" in part[:40]
        space[at : at + 4] = ((0x0D if acs else 0x0B) | 1 << 16 | following << 20).to_bytes(4, "little")
        if acs:
            names = {
                "SrcValid": 0,
                "TransBlk": 1,
                "ReqRedir": 2,
                "CmpltRedir": 3,
                "UpstreamFwd": 4,
                "EgressCtrl": 5,
                "DirectTrans": 6,
            }
            space[at + 6 : at + 8] = _bits(part, "ACSCtl", names).to_bytes(2, "little")
    return bytes(space)


def _bits(text: str, word: str, names: dict[str, int]) -> int:
    shown = re.search(rf"{word}:((?:.|\n\t\t\t)*)", text)
    told = shown[1] if shown else ""
    return sum(1 << bit for name, bit in names.items() if f"{name}+" in told)


# RDMA

CLASS = "/sys/class/infiniband"
STATES = {"Active": "4: ACTIVE", "Initializing": "2: INIT", "Down": "1: DOWN", "Armed": "3: ARMED"}


def ibstat(tree: Tree, text: str, _: str) -> None:
    for block in re.split(r"^\s*(?=CA ')", text, flags=re.MULTILINE):
        if not (name := re.match(r"CA '(\S+)'", block)):
            continue
        values = dict(re.findall(r"^\s*(CA type|Firmware version|Node GUID): ?(.*?)\s*$", block, re.MULTILINE))
        kind = re.search(r"MT(\d+)", values.get("CA type", ""))
        _device(
            tree,
            name[1],
            values.get("Firmware version", ""),
            values.get("Node GUID", ""),
            int(kind[1]) if kind else None,
        )
        if kind:
            tree.file(f"{CLASS}/{name[1]}/hca_type", f"{values['CA type']}\n")
        for number, part in re.findall(r"Port (\d+):\n((?:.*\n?)*?)(?=\s*Port \d+:|\Z)", block):
            port = dict(re.findall(r"^\s*([\w ]+?): ?(.*?)\s*$", part, re.MULTILINE))
            rows = {
                "state": STATES.get(port.get("State", ""), ""),
                "phys_state": f"5: {port['Physical state']}" if "Physical state" in port else "",
                "rate": f"{port['Rate']} Gb/sec (4X)" if "Rate" in port else "",
                "lid": hex(int(port.get("Base lid", "0"), 0)),
                "sm_lid": hex(int(port.get("SM lid", "0"), 0)),
                "link_layer": port.get("Link layer", ""),
            }
            _port(tree, name[1], number, rows)


def ibv_devinfo(tree: Tree, text: str, _: str) -> None:
    for block in re.split(r"^\s*(?=hca_id:)", text, flags=re.MULTILINE):
        if not (name := re.match(r"hca_id:\s*(\S+)", block)):
            continue
        values = dict(re.findall(r"^\s*(fw_ver|node_guid|vendor_id|vendor_part_id):\s*(.*?)\s*$", block, re.MULTILINE))
        soft = int(values.get("vendor_part_id", "0")) == 0
        _device(
            tree,
            name[1],
            values.get("fw_ver", ""),
            values.get("node_guid", ""),
            None if soft else int(values["vendor_part_id"]),
            # Mellanox devices tell their OUI here, those of AWS the PCI vendor.
            "0x1d0f" if values.get("vendor_id") == "0x1d0f" else "0x15b3",
        )
        if soft:
            tree.file(f"{CLASS}/{name[1]}/parent", "")
        if board := re.search(r"^\s*board_id:\s*(\S+)", block, re.MULTILINE):
            tree.file(f"{CLASS}/{name[1]}/board_id", f"{board[1]}\n")
        for number, part in re.findall(r"port:\s*(\d+)\n((?:.*\n?)*?)(?=\s*port:\s*\d+|\Z)", block):
            port = dict(re.findall(r"^\s*(\w+):\s*(.*?)\s*$", part, re.MULTILINE))
            state = re.search(r"PORT_(\w+) \((\d)\)", port.get("state", ""))
            physical = re.search(r"(\w+) \((\d)\)", port.get("phys_state", ""))
            rows = {
                "state": f"{state[2]}: {state[1]}" if state else "",
                "phys_state": f"{physical[2]}: {physical[1].title().replace('_', '')}" if physical else "",
                "lid": hex(int(port.get("port_lid", "0"))),
                "sm_lid": hex(int(port.get("sm_lid", "0"))),
                "link_layer": port.get("link_layer", ""),
            }
            _port(tree, name[1], number, rows)
            for index, gid, kind in re.findall(r"GID\[\s*(\d+)\]:\s*([0-9a-f:.]+)(?:, (.*?))?\s*$", part, re.MULTILINE):
                _gid(tree, name[1], number, index, gid, {"RoCE v1": "IB/RoCE v1"}.get(kind, kind), "")


def show_gids(tree: Tree, text: str, _: str) -> None:
    for line in text.splitlines():
        if found := re.match(
            r"(\w+)\s+(\d)\s+(\d+)\s+((?:[0-9a-f]{4}:){7}[0-9a-f]{4})\s+(?:[\d.]+\s+)?(v[12])\s*(\S*)", line
        ):
            name, number, index, gid, version, netdev = found.groups()
            tree.folder(f"{CLASS}/{name}/ports/{number}")
            _gid(tree, name, number, index, gid, {"v1": "IB/RoCE v1", "v2": "RoCE v2"}[version], netdev)


def ibdev2netdev(tree: Tree, text: str, _: str) -> None:
    for name, number, netdev, state in re.findall(r"(\w+)\s+port\s+(\d+)\s+==>\s+(\S+)\s+\((\w+)\)", text):
        tree.file(f"{CLASS}/{name}/ports/{number}/gid_attrs/ndevs/0", netdev + "\n")
        tree.file(f"/sys/class/net/{netdev}/operstate", state.lower() + "\n")
        tree.file(f"/sys/class/net/{netdev}/type", "\n")


def _device(tree: Tree, name: str, firmware: str, guid: str, part: int | None, vendor: str = "0x15b3") -> None:
    digits = guid.removeprefix("0x").replace(":", "").rjust(16, "0")
    folder = f"{CLASS}/{name}"
    tree.file(f"{folder}/node_type", "1: CA\n")
    tree.file(f"{folder}/node_guid", ":".join(digits[n : n + 4] for n in (0, 4, 8, 12)) + "\n")
    tree.file(f"{folder}/fw_ver", firmware + "\n")
    if part is not None:
        tree.folder(f"/sys/devices/{name}")
        tree.link(f"{folder}/device", f"/sys/devices/{name}")
        tree.file(f"{folder}/device/vendor", f"{vendor}\n")
        tree.file(f"{folder}/device/device", f"0x{part:04x}\n")


def _port(tree: Tree, name: str, number: str, rows: dict[str, str]) -> None:
    for key, value in rows.items():
        tree.file(f"{CLASS}/{name}/ports/{number}/{key}", value + "\n")


def _gid(tree: Tree, name: str, number: str, index: str, gid: str, kind: str, netdev: str) -> None:
    folder = f"{CLASS}/{name}/ports/{number}"
    tree.file(f"{folder}/gids/{index}", _spelled(gid) + "\n")
    tree.file(f"{folder}/gid_attrs/types/{index}", kind + "\n")
    tree.file(f"{folder}/gid_attrs/ndevs/{index}", netdev + "\n")


def _spelled(gid: str) -> str:
    """ibv_devinfo shortens GIDs, as IPv6 addresses are; sysfs does not."""
    from ipaddress import IPv6Address

    return IPv6Address(gid).exploded


def nccl_topology(tree: Tree, text: str, _: str) -> None:
    """NCCL's dump of the machine (NCCL_TOPO_DUMP_FILE): the tree of PCI functions with their links, and the sockets."""
    from xml.etree import ElementTree

    for cpu in ElementTree.fromstring(text).iter("cpu"):
        node = cpu.get("numaid", "0")
        tree.file(f"/sys/devices/system/node/node{node}/cpulist", f"{int(node)}\n")
        tree.file(f"/sys/devices/system/cpu/cpu{int(node)}/topology/physical_package_id", f"{node}\n")
        for pci in cpu.findall("pci"):
            _branch(tree, pci, f"/sys/devices/pci{pci.get('busid', '')[:5]}{pci.get('busid', '')[5:7]}", node)


def _branch(tree: Tree, pci: object, above: str, node: str) -> None:
    from xml.etree.ElementTree import Element

    assert isinstance(pci, Element)
    address = pci.get("busid", "")
    real = f"{above}/{address}"
    tree.folder(real)
    tree.link(f"{PCI}/{address}", real)
    rows = {
        "vendor": pci.get("vendor", ""),
        "device": pci.get("device", ""),
        "class": pci.get("class", ""),
        "numa_node": node,
        "current_link_speed": pci.get("link_speed", ""),
        "max_link_speed": pci.get("link_speed", ""),
        "current_link_width": pci.get("link_width", ""),
        "max_link_width": pci.get("link_width", ""),
    }
    for name, value in rows.items():
        tree.file(f"{real}/{name}", value + "\n")
    for nic in pci.iter("net"):
        if pci.find("nic") is not None:
            tree.folder(f"{real}/infiniband/{Path(nic.get('name', '')).name}")
    for child in pci.findall("pci"):
        _branch(tree, child, real, node)
