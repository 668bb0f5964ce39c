"""The PCI tree above a host's devices, for drawing: host bridge, root port, switches, devices."""

from __future__ import annotations

from typing import Literal

import msgspec

from gpuprov.facts.probes.gpus.topology import Function
from gpuprov.hardware.topology.links import format_link
from gpuprov.hardware.topology.model import Wiring, parse_place

Kind = Literal["host", "port", "switch", "gpu", "hca", "nvswitch", "bridge"]


class Node(msgspec.Struct, kw_only=True):
    """A box of the picture."""

    kind: Kind
    name: str
    # Its PCI address (of a host bridge: domain and bus).
    address: str
    # The present PCIe link above it.
    link: str = ""
    # Further text, most important first.
    words: tuple[str, ...] = ()
    children: list[Node] = msgspec.field(default_factory=list)


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The host bridges of a NUMA node; `name` in words: `socket 0, NUMA node 0`. `socket` None: unknown."""

    name: str
    socket: int | None
    hosts: tuple[Node, ...]


def group_devices(wiring: Wiring) -> tuple[Group, ...]:
    """List all devices on the bus that are drawn, by NUMA node, in the order of PCI addresses."""
    ends = [*_list_gpus(wiring), *_list_hcas(wiring), *_list_rest(wiring)]
    by_node: dict[int, dict[str, Node]] = {}
    for node, function in sorted(ends, key=lambda pair: parse_place(pair[1].address)):
        hosts = by_node.setdefault(function.numa_node, {})
        above = hosts.setdefault(
            function.root, Node(kind="host", name="host bridge", address=function.root.rpartition("/pci")[2])
        )
        for number, address in enumerate(function.bridges):
            # Of a switch's ports only the upstream one is drawn: it is the switch.
            if number and number % 2 == 0:
                continue
            above = _build_branch(above, wiring, address, "switch" if number else "port")
        above.children.append(node)
    return tuple(
        Group(name=_format_name(wiring, number), socket=_find_socket(wiring, number), hosts=tuple(hosts.values()))
        for number, hosts in sorted(by_node.items())
    )


def _build_branch(above: Node, wiring: Wiring, address: str, kind: Kind) -> Node:
    for child in above.children:
        if child.address == address:
            return child
    name = "PCIe switch" if kind == "switch" else "root port"
    function = wiring.tree.functions.get(address)
    link = _format_link(function) if function and kind == "switch" else ""
    above.children.append(Node(kind=kind, name=name, address=address, link=link))
    return above.children[-1]


def _list_gpus(wiring: Wiring) -> list[tuple[Node, Function]]:
    nodes = []
    for gpu in wiring.gpus:
        links = f"{gpu.nvlink.active} NVLinks" if gpu.nvlink and gpu.nvlink.links else ""
        function = gpu.function
        words = tuple(filter(None, (gpu.model, links)))
        node = Node(kind="gpu", name=gpu.name, address=function.address, link=_format_link(function), words=words)
        nodes.append((node, function))
    return nodes


def _list_hcas(wiring: Wiring) -> list[tuple[Node, Function]]:
    nodes = []
    for hca in wiring.hcas:
        ends = [f"to {end}" for end in wiring.find_ends(hca)]
        words = tuple(filter(None, (hca.port, *hca.device.netdevs, *ends)))
        function = hca.function
        node = Node(kind="hca", name=hca.name, address=function.address, link=_format_link(function), words=words)
        nodes.append((node, function))
    return nodes


def _list_rest(wiring: Wiring) -> list[tuple[Node, Function]]:
    switches = [
        (Node(kind="nvswitch", name=f"NVSwitch{number}", address=switch.address, link=_format_link(switch)), switch)
        for number, switch in enumerate(wiring.nvswitches)
    ]
    bridges = [
        (
            Node(kind="bridge", name=bridge.name, address=bridge.function.address, words=("NVLink bridge, no HCA",)),
            bridge.function,
        )
        for bridge in wiring.bridges
    ]
    return [*switches, *bridges]


def _format_link(function: Function) -> str:
    link = function.link
    text = format_link(link.width, link.speed)
    return f"{text} of x{link.max_width}" if 0 < link.width < link.max_width else text


def _find_socket(wiring: Wiring, node: int) -> int | None:
    sockets = wiring.tree.sockets
    if node < 0:
        return next(iter(sockets.values())) if len(set(sockets.values())) == 1 else None
    socket = sockets.get(node, -1)
    return node if socket < 0 else socket


def _format_name(wiring: Wiring, node: int) -> str:
    if node < 0:
        return "NUMA node not told"
    socket = wiring.tree.sockets.get(node, -1)
    return f"NUMA node {node}" if socket < 0 else f"socket {socket}, NUMA node {node}"
