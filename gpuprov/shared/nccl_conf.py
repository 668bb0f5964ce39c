"""What /etc/nccl.conf is to say, by the RDMA devices that a host has. Standard library only, Python 3.8: hosts carry this file too.

The file's grammar (NAME=VALUE, # in the first column, the first of two values counts) is that of setEnvFile() in
https://github.com/NVIDIA/nccl/blob/master/src/misc/param.cc, the variables are those of
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

import ipaddress
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

IWARP = "RNIC"
FAMILIES = {"ipv4": "AF_INET", "ipv6": "AF_INET6"}
ORDERING = {"never": 0, "required": 1, "automatic": 2}
MOST = 32  # NCCL's limit: env.html, NCCL_IB_HCA


class ConfError(ValueError):
    """Why the file cannot be written on this host; one line."""


def devices(text: str) -> list[dict[str, Any]]:
    """What the probe `rdma_devices` printed, as far as NCCL is concerned."""
    found: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        kind, name, *cells = line.split("|")
        if kind == "device":
            found[name] = {
                "name": name, "address": cells[0], "driver": cells[1], "node_type": cells[4].rpartition(":")[2].strip(),
                "netdevs": cells[8].split(), "macs": cells[9].split(), "bridge": bool(cells[10]), "ports": [],
            }  # fmt: skip
        elif kind == "port" and name in found:
            found[name]["ports"].append({"number": int(cells[0]), "link_layer": cells[3], "gids": []})
        elif kind == "gid" and name in found:
            for port in found[name]["ports"]:
                if port["number"] == int(cells[0]):
                    port["gids"].append({"index": int(cells[1]), "gid": cells[2], "kind": cells[3]})
    for device in found.values():
        device["ports"].sort(key=lambda port: port["number"])
        for port in device["ports"]:
            port["gids"].sort(key=lambda gid: gid["index"])
    return [found[name] for name in sorted(found)]


def selected(
    fabric: str, selectors: Sequence[Mapping[str, str]], every: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The devices that a spec is about, without NVLink bridges; the same as capabilities.rdma.common has it."""
    real = [device for device in every if not device["bridge"]]
    if selectors:
        return [device for device in real if any(_meant(one, device) for one in selectors)]
    return [device for device in real if _speaks(fabric, device)]


def _meant(selector: Mapping[str, str], device: dict[str, Any]) -> bool:
    pci, netdev = selector.get("pci", ""), selector.get("netdev", "")
    pci = f"0000:{pci}" if pci.count(":") == 1 else pci
    return (
        (not pci or device["address"] == pci)
        and (not selector.get("driver") or device["driver"] == selector["driver"])
        and (not netdev or netdev in device["netdevs"] or netdev in device["macs"])
    )


def _speaks(fabric: str, device: dict[str, Any]) -> bool:
    layers = {port["link_layer"] for port in device["ports"]}
    soft = not device["address"]
    if fabric == "soft" or soft:
        return fabric == "soft" and soft
    if fabric == "erdma" or device["driver"] == "erdma":
        return fabric == "erdma" and bool(device["driver"] == "erdma")
    if fabric == "efa" or device["driver"] == "efa":
        return fabric == "efa" and bool(device["driver"] == "efa")
    if fabric == "infiniband":
        return "InfiniBand" in layers
    if fabric == "iwarp":
        return bool(device["node_type"] == IWARP)
    return "Ethernet" in layers and device["node_type"] != IWARP


def lines(policy: Mapping[str, Any], every: Iterable[dict[str, Any]]) -> list[str]:
    """The file's lines but comments. `policy`: fabric, devices (selectors) and nccl, as the spec has them.

    Raises ConfError where the host has no such device, or none of their GIDs is as asked for.
    """
    nccl = policy["nccl"]
    chosen = selected(policy["fabric"], policy["devices"], every)
    if not chosen:
        raise ConfError(
            f"the host has no RDMA device of fabric {policy['fabric']}"
            + " that devices means" * bool(policy["devices"])
        )
    found: list[tuple[str, object]] = _network(policy["fabric"], nccl, chosen)
    plain = (("traffic_class", "NCCL_IB_TC"), ("service_level", "NCCL_IB_SL"))
    found += [(name, nccl[key]) for key, name in plain if nccl[key] >= 0]
    if nccl["socket_ifname"]:
        found.append(("NCCL_SOCKET_IFNAME", "=" + ",".join(nccl["socket_ifname"])))
    if nccl["relaxed_ordering"]:
        found.append(("NCCL_IB_PCI_RELAXED_ORDERING", ORDERING[nccl["relaxed_ordering"]]))
    if nccl["sharp"]:
        found.append(("NCCL_COLLNET_ENABLE", 1))
    texts = (("gdr_level", "NCCL_NET_GDR_LEVEL"), ("net_plugin", "NCCL_NET_PLUGIN"), ("topo_file", "NCCL_TOPO_FILE"))
    found += [(name, nccl[key]) for key, name in texts if nccl[key]]
    found += sorted(nccl["settings"].items())
    return [f"{name}={value}" for name, value in found]


def _network(fabric: str, nccl: Mapping[str, Any], chosen: Sequence[dict[str, Any]]) -> list[tuple[str, object]]:
    """Which devices NCCL uses, and by which GIDs. It connects its queue pairs itself, which an iWARP device does not do. AWS's EFA it
    uses by a plugin, which finds the devices itself."""
    if fabric == "efa":
        return []
    usable = [device for device in chosen if device["node_type"] != IWARP]
    if not usable:
        return [("NCCL_IB_DISABLE", 1)]
    layer = "InfiniBand" if fabric == "infiniband" else "Ethernet"
    names: list[str] = []
    ports: list[tuple[str, Mapping[str, Any]]] = []
    for device in usable:
        fitting = [port for port in device["ports"] if port["link_layer"] == layer]
        whole = len(fitting) == len(device["ports"])
        names += [device["name"]] if whole else [f"{device['name']}:{port['number']}" for port in fitting]
        ports += [(f"{device['name']} port {port['number']}", port) for port in fitting]
    if not names:
        raise ConfError(f"no port of {', '.join(device['name'] for device in usable)} has the link layer {layer}")
    if len(names) > MOST:
        raise ConfError(f"{len(names)} devices, and NCCL takes at most {MOST}: name fewer in rdma.devices")
    found: list[tuple[str, object]] = [("NCCL_IB_HCA", "=" + ",".join(names))]
    return found if layer == "InfiniBand" else found + _gids(nccl, ports)


def _gids(nccl: Mapping[str, Any], ports: Sequence[tuple[str, Mapping[str, Any]]]) -> list[tuple[str, object]]:
    if nccl["gid"] == "none":
        return []
    if nccl["gid"] == "automatic":
        found: list[tuple[str, object]] = [
            ("NCCL_IB_GID_INDEX", -1),
            ("NCCL_IB_ADDR_FAMILY", FAMILIES[nccl["addr_family"]]),
            ("NCCL_IB_ROCE_VERSION_NUM", nccl["roce_version"]),
        ]
        return found + ([("NCCL_IB_ADDR_RANGE", nccl["addr_range"])] if nccl["addr_range"] else [])
    fitting = {place: indices(nccl, port["gids"]) for place, port in ports}
    without = [place for place, found in fitting.items() if not found]
    if without:
        raise ConfError(f"{', '.join(without)} has no GID of {wanted(nccl)}")
    common = set.intersection(*(set(found) for found in fitting.values()))
    if not common:
        told = "; ".join(f"{place}: {', '.join(map(str, found))}" for place, found in fitting.items())
        raise ConfError(
            f"the GIDs of {wanted(nccl)} have no index in common ({told}), and NCCL_IB_GID_INDEX is one for all"
        )
    return [("NCCL_IB_GID_INDEX", min(common))]


def indices(nccl: Mapping[str, Any], gids: Iterable[Mapping[str, Any]]) -> list[int]:
    """Of a port's GIDs those of the wanted type and address."""
    kinds = ("RoCE v2",) if nccl["roce_version"] == 2 else ("IB/RoCE v1", "RoCE v1")
    network = ipaddress.ip_network(nccl["addr_range"], strict=False) if nccl["addr_range"] else None
    found = []
    for gid in gids:
        address: Any = ipaddress.IPv6Address(gid["gid"])
        mapped = address.ipv4_mapped
        if gid["kind"] not in kinds or bool(mapped) != (nccl["addr_family"] == "ipv4"):
            continue
        if not mapped and address.is_link_local:
            continue
        if network is None or (mapped or address) in network:
            found.append(gid["index"])
    return found


def wanted(nccl: Mapping[str, Any]) -> str:
    """The wanted GID in words."""
    family = {"ipv4": "IPv4", "ipv6": "IPv6"}[nccl["addr_family"]]
    return f"type RoCE v{nccl['roce_version']} with an {family} address" + (
        f" of {nccl['addr_range']}" if nccl["addr_range"] else ""
    )


def main() -> None:
    """The policy is the argument, what the probe printed is read; the lines, or what is in the way, are the answer, in JSON."""
    try:
        answer = {"lines": lines(json.loads(sys.argv[1]), devices(sys.stdin.read())), "problem": ""}
    except ConfError as error:
        answer = {"lines": [], "problem": str(error)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
