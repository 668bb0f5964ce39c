"""RDMA devices, their types and ports as sysfs shows them: found by PCI address, driver and netdev, never by number."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Mapping, NamedTuple, Sequence

# Node type of an iWARP device.
IWARP = "RNIC"
# Types of devices: an adapter for work, an NVLink bridge, an SR-IOV function, a sub-device for the subnet manager,
# which shows the planes of its parent's port and carries no data (kernel 6.11:
# https://lore.kernel.org/r/cover.1718553901.git.leon@kernel.org), and a subfunction of a PCI function, for a container
# or virtual machine (https://docs.kernel.org/networking/device_drivers/ethernet/mellanox/mlx5/switchdev.html).
HCA, BRIDGE, VIRTUAL, SMI, SUBFUNCTION = "hca", "bridge", "virtual", "smi", "sf"
# The name of a port of an embedded switch that stands for a function behind it; that of a physical port is `p0`:
# devlink_port_phys_port_name_get, https://github.com/torvalds/linux/blob/master/net/devlink/port.c
REPRESENTOR = re.compile(r"(c[0-9]+)?pf[0-9]+([vs]f[0-9]+)?")
# Device id of ConnectX-8's function for Data Direct, which does DMA for an HCA and is neither an RDMA device nor an
# interface: https://github.com/torvalds/linux/blob/master/drivers/infiniband/hw/mlx5/data_direct.c
DATA_DIRECT = "2100"


@dataclass(frozen=True)
class Gid:
    """An entry of a port's GID table that is set. `kind`: `IB/RoCE v1` or `RoCE v2`, as the kernel writes it; `netdev`
    may be empty."""

    index: int
    gid: str
    kind: str = ""
    netdev: str = ""

    @property
    def ipv4(self) -> str:
        """The IPv4 address of an IPv4-mapped GID, else empty."""
        words = self.gid.split(":")
        if len(words) != 8 or words[:6] != ["0000"] * 5 + ["ffff"]:
            return ""
        return ".".join(str(int(half, 16)) for word in words[6:] for half in (word[:2], word[2:]))


@dataclass(frozen=True)
class RdmaPort:
    """`state` is `ACTIVE`, `INIT`, `DOWN`; `link_layer` is `InfiniBand` or `Ethernet`; `rate` is in Gb/s (0:
    unknown)."""

    number: int
    state: str = ""
    physical: str = ""
    link_layer: str = ""
    rate: float = 0.0
    lid: int = 0
    sm_lid: int = 0
    gids: tuple[Gid, ...] = ()


@dataclass(frozen=True)
class RdmaDevice:
    """`address` is its PCI function, empty for software devices, whose `driver` is `rdma_rxe` or `siw`.

    `node_type`: `CA` (InfiniBand, RoCE) or `RNIC` (iWARP).

    `netdevs` are the network interfaces of its ports, `macs` their Ethernet addresses; `numa_node` is -1 if the machine
    has none. `type`: `bridge` is an NVLink bridge of an NVSwitch board (SW_MNG in its VPD), `virtual` an SR-IOV
    function whose physical function this host sees, too (a virtual machine only sees its own), `smi` or another word a
    sub-device of `parent`, which for `sf` is a PCI function; all others are `hca`. `ports`: without those that stand
    for other functions (REPRESENTOR). `legs`: interfaces of its bond that carry nothing, as
    `ens1f1np1 of bond0 is down`; the port of the device is up while any is.
    """

    name: str
    driver: str = ""
    address: str = ""
    identifier: str = ""
    node_type: str = ""
    node_guid: str = ""
    firmware: str = ""
    numa_node: int = -1
    netdevs: tuple[str, ...] = ()
    macs: tuple[str, ...] = ()
    type: str = HCA
    parent: str = ""
    legs: tuple[str, ...] = ()
    ports: tuple[RdmaPort, ...] = ()

    @property
    def soft(self) -> bool:
        return not self.address and self.type == HCA

    @property
    def bridge(self) -> bool:
        return self.type == BRIDGE

    @property
    def virtual(self) -> bool:
        return self.type == VIRTUAL

    @property
    def works(self) -> bool:
        """True for an adapter that carries data: no NVLink bridge, and no sub-device."""
        return self.type in (HCA, VIRTUAL)


def parse(text: str) -> tuple[RdmaDevice, ...]:
    """Parse the reader's output."""
    devices: list[list[str]] = []
    ports: dict[str, list[list[str]]] = {}
    gids: dict[tuple[str, str], list[Gid]] = {}
    legs: dict[str, list[str]] = {}
    subs: dict[str, tuple[str, str]] = {}
    nets: dict[tuple[str, str], str] = {}
    for line in text.splitlines():
        kind, name, *cells = line.split("|")
        if kind == "device":
            devices.append([name, *cells])
        elif kind == "port":
            ports.setdefault(name, []).append(cells)
        elif kind == "sub" and len(cells) == 2:
            subs[name] = (cells[0].lower(), cells[1])
        elif kind == "net" and len(cells) == 2:
            nets[name, cells[0]] = cells[1]
        elif kind == "leg" and (wrong := describe_bond_problem(cells)):
            legs.setdefault(name, []).append(wrong)
        elif kind == "gid":
            number, index, gid, of_kind, netdev = cells
            gids.setdefault((name, number), []).append(Gid(int(index), gid, of_kind, netdev))
    made = {}
    for name, address, driver, *cells in devices:
        rows = select_ports(driver, ports.get(name, []), {port: net for (of, port), net in nets.items() if of == name})
        own_ports = [parse_port(row, gids.get((name, row[0]), [])) for row in rows]
        own_ports.sort(key=lambda port: port.number)
        device = _build_device(name, address, driver, cells)
        type_, parent = subs.get(name, (device.type, ""))
        made[name] = replace(device, type=type_, parent=parent, legs=tuple(legs.get(name, ())), ports=tuple(own_ports))
    return tuple(find_sub_devices([made[name] for name in sorted(made)]))


def _build_device(name: str, address: str, driver: str, cells: Sequence[str]) -> RdmaDevice:
    vendor, identifier, node_type, guid, firmware, numa, netdevs, macs, kind = cells
    return RdmaDevice(
        name=name,
        driver=driver,
        address=address,
        identifier=f"{vendor}:{identifier}".replace("0x", "") if vendor else "",
        node_type=parse_word(node_type),
        node_guid=guid,
        firmware=firmware,
        numa_node=int(numa) if numa else -1,
        netdevs=tuple(dict.fromkeys(netdevs.split())),
        macs=tuple(dict.fromkeys(macs.split())),
        type=kind if kind in (BRIDGE, VIRTUAL) else HCA,
    )


def select_ports(driver: str, rows: list[list[str]], nets: Mapping[str, str]) -> list[list[str]]:
    """Return the ports of a device without those that stand for other functions. `nets`: by port, the name of its
    interface's physical port; empty if the interface has none."""
    # While mlx5's embedded switch is in switchdev mode, the device has a port for each function behind it, with or
    # without an interface (mlx5_ib_vport_rep_load,
    # https://github.com/torvalds/linux/blob/master/drivers/infiniband/hw/mlx5/ib_rep.c). A device that joins the ports
    # of two functions has two.
    if driver != "mlx5_core" or not nets:
        return rows
    kept = [row for row in rows if not REPRESENTOR.fullmatch(nets.get(row[0], ""))]
    of_switch = len(kept) < len(rows) or len(rows) > 2
    return [row for row in kept if row[0] in nets] or kept if of_switch else kept


def find_sub_devices(devices: list[RdmaDevice]) -> list[RdmaDevice]:
    """Return the devices with types of sub-devices if no `rdma` reports them, such as that of iproute2 before 6.11.

    A sub-device has its parent's PCI function and node GUID.
    """
    # The parent has one port, made from its planes; an SMI device has a port for each plane (mlx5_ib_add_sub_dev and
    # num_plane, drivers/infiniband/hw/mlx5/main.c).
    alike: dict[tuple[str, str], list[RdmaDevice]] = {}
    for device in devices:
        if device.driver == "mlx5_core" and device.address and device.type == HCA and device.ports:
            alike.setdefault((device.address, device.node_guid), []).append(device)
    subs: dict[str, RdmaDevice] = {}
    for group in alike.values():
        parents = [device.name for device in group if len(device.ports) == 1]
        if len(parents) == 1:
            subs.update((dev.name, replace(dev, type=SMI, parent=parents[0])) for dev in group if len(dev.ports) > 1)
    return [subs.get(device.name, device) for device in devices]


def parse_port(cells: list[str], gids: list[Gid]) -> RdmaPort:
    number, state, physical, layer, rate, lid, sm_lid = cells
    return RdmaPort(
        number=int(number),
        state=parse_word(state),
        physical=parse_word(physical),
        link_layer=layer,
        rate=float(rate.split(maxsplit=1)[0]) if rate else 0.0,
        lid=int(lid, 16) if lid else 0,
        sm_lid=int(sm_lid, 16) if sm_lid else 0,
        gids=tuple(sorted(gids, key=lambda gid: gid.index)),
    )


def describe_bond_problem(cells: list[str]) -> str:
    """Return the problem with an interface of a bond; `own_aggregator`, `active`: LACP's aggregators, of the interface
    and of the bond."""
    bond, netdev, state, own_aggregator, active = cells
    if "down" in state.split():
        return f"{netdev} of {bond} is down"
    apart = own_aggregator.isdigit() and active.isdigit() and own_aggregator != active
    return f"{netdev} of {bond} is not in its active LACP aggregator" if apart else ""


def parse_word(numbered: str) -> str:
    """Return `ACTIVE` of `4: ACTIVE`."""
    return numbered.rpartition(":")[2].strip()


class Selector(NamedTuple):
    """Devices by properties that do not change: all given ones must match."""

    pci: str = ""
    driver: str = ""
    netdev: str = ""


def list_hcas(devices: Sequence[RdmaDevice]) -> tuple[RdmaDevice, ...]:
    """Return the adapters for work, without NVLink bridges and sub-devices."""
    return tuple(device for device in devices if device.works)


def is_of_fabric(fabric: str, device: RdmaDevice) -> bool:
    """Return whether a device belongs to this fabric: by link layer, node type and driver, never by its name."""
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
    """Return whether a selector matches this device. A PCI address without a domain is in domain 0000."""
    pci = selector.pci if selector.pci.count(":") != 1 else f"0000:{selector.pci}"
    return (
        (not pci or device.address == pci)
        and (not selector.driver or device.driver == selector.driver)
        and (not selector.netdev or selector.netdev in (*device.netdevs, *device.macs))
    )


def select_devices(fabric: str, selectors: Sequence[Selector], devices: Sequence[RdmaDevice]) -> tuple[RdmaDevice, ...]:
    """Return the devices that the selectors match, or else all of the fabric. No NVLink bridges.

    SR-IOV functions belong to virtual machines and pods: they only match by PCI address or netdev, or if there are no
    others.
    """
    real = list_hcas(devices)
    if selectors:
        named = [selector for selector in selectors if selector.pci or selector.netdev]
        matching = [device for device in real if any(matches(selector, device) for selector in selectors)]
    else:
        named, matching = [], [device for device in real if is_of_fabric(fabric, device)]
    kept = [device for device in matching if not device.virtual or any(matches(selector, device) for selector in named)]
    return tuple(kept or matching)


def find_unmatched(selectors: Sequence[Selector], devices: Sequence[RdmaDevice]) -> list[Selector]:
    """Return the selectors that match no device."""
    return [selector for selector in selectors if not any(matches(selector, device) for device in list_hcas(devices))]


def format_selector(selector: Selector) -> str:
    """Return a selector for people: `pci 0000:3b:00.0, driver mlx5_core`."""
    return ", ".join(f"{key} {value}" for key, value in selector._asdict().items() if value) or "nothing given"
