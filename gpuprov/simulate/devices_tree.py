"""Topology of a simulated container's PCI functions: root complexes of two sockets, root ports, PCIe switches.

On boards (SXM) each GPU shares a PCIe switch with the HCA of its rail, and the NVSwitches have a PCIe switch of their
own. Cards sit on root ports, as do the HCAs beside them. Each complex has 16 bus numbers, so that an address identifies
a function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpuprov.simulate.description import Description

# PCI domain of simulated functions; domain 0 belongs to the machine under the simulation.
DOMAIN = 1
# The first bus: of GPUs, of HCAs that share no switch with a GPU, of NVSwitches or of the bridges to them.
RAILS, ADAPTERS, NVLINK = 0x10, 0x90, 0xD0
# The first bus of an empty slot, by NUMA node.
SPARES = (0xF0, 0xF8)
Port = Literal["root-port", "upstream", "downstream"]
Key = tuple[str, int]


@dataclass(frozen=True)
class Place:
    """An address, its folder below /sys/devices, its NUMA node."""

    address: str
    path: str
    numa_node: int


@dataclass(frozen=True)
class Bridge(Place):
    """A port of a root complex or of a switch."""

    port: Port
    # Its own, the secondary, and the last one behind it.
    buses: tuple[int, int, int]


@dataclass(frozen=True)
class Tree:
    """`places` by role and index."""

    bridges: tuple[Bridge, ...]
    places: dict[Key, Place]
    # An empty slot on each NUMA node, by its number.
    spares: tuple[Place, ...]


def tree(description: Description, nvlink: list[Key]) -> Tree | None:
    """Return the place of every function; None for a machine, and for GPUs without HCAs and NVSwitches: each is alone
    on a bus then.

    `nvlink`: the NVSwitches, or the bridges to them.
    """
    gpu = description.gpu
    if gpu is None or description.kind != "container" or not (description.hcas or nvlink):
        return None
    bridges: list[Bridge] = []
    places: dict[Key, Place] = {}
    board = gpu.known.form_factor.startswith("SXM") or bool(nvlink)
    rails: list[list[Key]] = [[("gpu", index)] for index in range(gpu.count)]
    for index in range(description.hcas if board else 0):
        # Two HCAs on a rail where there are twice as many; with fewer than GPUs, some rails have none.
        rails[index * gpu.count // max(description.hcas, gpu.count)].append(("hca", index))
    for rail, keys in enumerate(rails):
        node = int(rail >= (gpu.count + 1) // 2)
        places |= _complex(bridges, RAILS + 0x10 * rail, node, keys, switch=board)
    for index in range(0 if board else description.hcas):
        node = int(index >= (description.hcas + 1) // 2)
        places |= _complex(bridges, ADAPTERS + 4 * index, node, [("hca", index)], switch=False)
    if nvlink:
        places |= _complex(bridges, NVLINK, 0, nvlink, switch=True)
    spares = [
        _complex(bridges, first, node, [("spare", node)], switch=False)["spare", node]
        for node, first in enumerate(SPARES if description.hcas else ())
    ]
    return Tree(tuple(bridges), places, tuple(spares))


def _complex(bridges: list[Bridge], first: int, node: int, keys: list[Key], *, switch: bool) -> dict[Key, Place]:
    """Return a root complex with one root port, and these functions behind it; its ports are added to `bridges`."""
    root = f"pci{DOMAIN:04x}:{first:02x}"
    last = first + (len(keys) + 2 if switch else 1)
    port = _port(bridges, "root-port", root, node, 1, (first, first + 1, last))
    if not switch:
        return {key: _place(port, first + 1, node) for key in keys}
    upstream = _port(bridges, "upstream", port, node, 0, (first + 1, first + 2, last))
    places = {}
    for number, key in enumerate(keys):
        bus = first + 3 + number
        downstream = _port(bridges, "downstream", upstream, node, number, (first + 2, bus, bus))
        places[key] = _place(downstream, bus, node)
    return places


def _port(bridges: list[Bridge], port: Port, above: str, node: int, slot: int, buses: tuple[int, int, int]) -> str:
    """Add the port and return its folder."""
    address = f"{DOMAIN:04x}:{buses[0]:02x}:{slot:02x}.0"
    bridges.append(Bridge(address, f"{above}/{address}", node, port, buses))
    return bridges[-1].path


def _place(above: str, bus: int, node: int) -> Place:
    address = f"{DOMAIN:04x}:{bus:02x}:00.0"
    return Place(address, f"{above}/{address}", node)
