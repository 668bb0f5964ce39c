"""A topology file of NCCL (NCCL_TOPO_FILE): the machine that it describes, and how far that matches this machine.

The format is NCCL's own: https://github.com/NVIDIA/nccl/blob/master/src/graph/xml.cc (nodes and attributes, version 1).
NCCL takes the place of a device from the file, and detects the place of devices that the file does not name; devices in
the file that the machine does not have are ignored silently. So a file of another machine type neither fails nor helps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xml.etree.ElementTree as xml

# Maximum size of the file in bytes; NCCL itself accepts at most 1024 nodes.
MOST = 1 << 20
VERSION = "1"
# NCCL's dump of an H100 host (tests/real/h100-nccl-topo-old-kernel):
#     <system version="1">
#       <cpu numaid="1">
#         <pci busid="0000:d9:00.0" class="0x030200" vendor="0x10de" device="0x2330" ...>
#           <gpu dev="7" sm="90" rank="7" gdr="1">
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
GPU, NETWORK = ("0x0302", "0x0300"), ("0x02",)


class TopologyError(ValueError):
    """Reason why NCCL could not read it; one line."""


@dataclass(frozen=True)
class Topology:
    """PCI addresses of the GPUs and of the network adapters that the file names. Bridges are its own invention, and do
    not count."""

    gpus: tuple[str, ...]
    adapters: tuple[str, ...]


def parse(text: str) -> Topology:
    """Parse a topology file. Raises TopologyError."""
    import xml.etree.ElementTree as xml

    if len(text) > MOST:
        raise TopologyError(f"it is longer than {MOST >> 20} MiB")
    if re.search(r"<!(DOCTYPE|ENTITY)", text, re.IGNORECASE):
        raise TopologyError("it has a DOCTYPE, which NCCL's reader does not know")
    try:
        root = xml.fromstring(text)
    except xml.ParseError as error:
        raise TopologyError(f"it is not well-formed: {error}") from error
    if root.tag != "system":
        raise TopologyError(f"its root is <{root.tag[:40]}>, and NCCL wants <system>")
    if root.get("version") != VERSION:
        raise TopologyError(f'its version is "{root.get("version", "")[:20]}", and NCCL wants {VERSION}')
    functions = dict(_list_functions(root))
    if not functions:
        raise TopologyError("it names no PCI function")
    return Topology(
        gpus=tuple(address for address, kind in functions.items() if kind.startswith(GPU)),
        adapters=tuple(address for address, kind in functions.items() if kind.startswith(NETWORK)),
    )


def _list_functions(root: xml.Element) -> Iterator[tuple[str, str]]:
    for node in root.iter("pci"):
        address = node.get("busid", "").lower()
        if not ADDRESS.fullmatch(address):
            raise TopologyError(f'a <pci> has busid "{address[:40]}", which is not a PCI address')
        yield address, node.get("class", "").lower()


def strange(topology: Topology, gpus: Iterable[str], adapters: Iterable[str], every: Iterable[str]) -> list[str]:
    """Describe mismatches. `gpus`: of the machine; `adapters`: those that NCCL is to use; `every`: all adapters."""
    own_gpus, used, known = ({address.lower() for address in group} for group in (gpus, adapters, every))
    rows = (
        ("names GPUs that the host has not", set(topology.gpus) - own_gpus),
        ("names network adapters that the host has not", set(topology.adapters) - known),
        ("lacks GPUs of the host", own_gpus - set(topology.gpus)),
        ("lacks RDMA devices of the host", used - set(topology.adapters)),
    )
    return [f"it {text}: {_shorten(addresses)}" for text, addresses in rows if addresses]


def _shorten(addresses: Iterable[str]) -> str:
    names = sorted(addresses)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
