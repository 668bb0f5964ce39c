"""Content of /etc/nccl.conf for the RDMA devices of a host.

The file's grammar (NAME=VALUE, # in the first column, the first of two values counts) is that of setEnvFile() in
https://github.com/NVIDIA/nccl/blob/master/src/misc/param.cc, the variables are those of
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

import ipaddress
from collections.abc import Iterable, Sequence

from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl.fragment import Nccl
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.rdma import Gid, RdmaDevice, RdmaPort
from gpuprov.hardware.topology.ports import select_devices
from gpuprov.host_code.at_boot.devices import IWARP

FAMILIES = {"ipv4": "AF_INET", "ipv6": "AF_INET6"}
ORDERING = {"never": 0, "required": 1, "automatic": 2}
# NCCL's limit: env.html, NCCL_IB_HCA.
MOST = 32
Line = tuple[str, object]


class ConfError(ValueError):
    """The reason why the file cannot be written on this host; one line."""


def lines(block: Rdma, devices: Iterable[RdmaDevice]) -> tuple[str, ...]:
    """Return the file's lines without comments. Raises ConfError if the host has no such device, or none of their GIDs
    matches the spec."""
    nccl = block.nccl
    chosen = select_devices(block, tuple(devices))
    if not chosen:
        meant = " that devices means" if block.devices else ""
        raise ConfError(f"the host has no RDMA device of fabric {block.fabric}{meant}")
    settings: list[Line] = _list_network_lines(block, chosen)
    plain = ((nccl.traffic_class, "NCCL_IB_TC"), (nccl.service_level, "NCCL_IB_SL"))
    settings += [(name, value) for value, name in plain if value >= 0]
    if nccl.socket_ifname:
        settings.append(("NCCL_SOCKET_IFNAME", "=" + ",".join(nccl.socket_ifname)))
    if nccl.relaxed_ordering:
        settings.append(("NCCL_IB_PCI_RELAXED_ORDERING", ORDERING[nccl.relaxed_ordering]))
    if nccl.sharp:
        settings.append(("NCCL_COLLNET_ENABLE", 1))
    texts = (
        (nccl.gdr_level, "NCCL_NET_GDR_LEVEL"),
        (nccl.net_plugin, "NCCL_NET_PLUGIN"),
        (nccl.topo_file, "NCCL_TOPO_FILE"),
    )
    settings += [(name, text) for text, name in texts if text]
    settings += sorted(nccl.settings.items())
    return tuple(f"{name}={value}" for name, value in settings)


def choosing(block: Rdma, devices: Iterable[RdmaDevice]) -> list[tuple[str, RdmaPort]]:
    """Return the Ethernet ports whose GIDs NCCL chooses from, each with its place."""
    # NCCL connects its queue pairs itself, which an iWARP device does not support.
    return [
        (f"{device.name} port {port.number}", port)
        for device in select_devices(block, tuple(devices))
        for port in device.ports
        if port.link_layer == "Ethernet" and device.node_type != IWARP
    ]


def _list_network_lines(block: Rdma, chosen: Sequence[RdmaDevice]) -> list[Line]:
    """Return the lines for the devices that NCCL uses, and their GIDs."""
    # NCCL uses AWS's EFA through a plugin, which finds the devices itself.
    if block.fabric == "efa":
        return []
    usable = [device for device in chosen if device.node_type != IWARP]
    if not usable:
        return [("NCCL_IB_DISABLE", 1)]
    layer = "InfiniBand" if block.fabric == "infiniband" else "Ethernet"
    names: list[str] = []
    ports: list[tuple[str, RdmaPort]] = []
    for device in usable:
        fitting = [port for port in device.ports if port.link_layer == layer]
        whole = len(fitting) == len(device.ports)
        names += [device.name] if whole else [f"{device.name}:{port.number}" for port in fitting]
        ports += [(f"{device.name} port {port.number}", port) for port in fitting]
    if not names:
        raise ConfError(f"no port of {', '.join(device.name for device in usable)} has the link layer {layer}")
    if len(names) > MOST:
        raise ConfError(f"{counted(len(names), 'device')}, and NCCL takes at most {MOST}: name fewer in rdma.devices")
    settings: list[Line] = [("NCCL_IB_HCA", "=" + ",".join(names))]
    return settings if layer == "InfiniBand" else settings + _list_gid_lines(block.nccl, ports)


def _list_gid_lines(nccl: Nccl, ports: Sequence[tuple[str, RdmaPort]]) -> list[Line]:
    if nccl.gid == "none":
        return []
    if nccl.gid == "automatic":
        settings: list[Line] = [
            ("NCCL_IB_GID_INDEX", -1),
            ("NCCL_IB_ADDR_FAMILY", FAMILIES[nccl.addr_family]),
            ("NCCL_IB_ROCE_VERSION_NUM", nccl.roce_version),
        ]
        return settings + ([("NCCL_IB_ADDR_RANGE", nccl.addr_range)] if nccl.addr_range else [])
    fitting = {place: indices(nccl, port.gids) for place, port in ports}
    without = [place for place, indexes in fitting.items() if not indexes]
    if without:
        raise ConfError(f"{', '.join(without)} has no GID of {describe_gid(nccl)}")
    common = set.intersection(*(set(indexes) for indexes in fitting.values()))
    if not common:
        listing = "; ".join(f"{place}: {', '.join(map(str, indexes))}" for place, indexes in fitting.items())
        raise ConfError(
            f"the GIDs of {describe_gid(nccl)} have no index in common ({listing}), and NCCL_IB_GID_INDEX is one "
            "for all"
        )
    return [("NCCL_IB_GID_INDEX", min(common))]


def indices(nccl: Nccl, gids: Iterable[Gid]) -> list[int]:
    """Return the indices of a port's GIDs that have the wanted type and address."""
    kinds = ("RoCE v2",) if nccl.roce_version == 2 else ("IB/RoCE v1", "RoCE v1")
    network = ipaddress.ip_network(nccl.addr_range, strict=False) if nccl.addr_range else None
    fitting = []
    for gid in gids:
        address = ipaddress.IPv6Address(gid.gid)
        mapped = address.ipv4_mapped
        if gid.kind not in kinds or bool(mapped) != (nccl.addr_family == "ipv4"):
            continue
        if not mapped and address.is_link_local:
            continue
        if network is None or (mapped or address) in network:
            fitting.append(gid.index)
    return fitting


def describe_gid(nccl: Nccl) -> str:
    """Return the wanted GID in words."""
    family = {"ipv4": "IPv4", "ipv6": "IPv6"}[nccl.addr_family]
    network = f" of {nccl.addr_range}" if nccl.addr_range else ""
    return f"type RoCE v{nccl.roce_version} with an {family} address{network}"
