"""Sysfs data for the container's program: /usr/lib/gpuprov-sim/sysfs.json."""

from __future__ import annotations

import msgspec

from gpuprov.simulate.description import Description
from gpuprov.simulate.devices import NVLINK_ROLES, devices
from gpuprov.simulate.devices_tree import Place, tree
from gpuprov.simulate.parts import rdma
from gpuprov.simulate.parts.rdma import RdmaTree
from gpuprov.simulate.parts.silicon_files import sysfs


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A PCI function at its place. `role` is `bridge` or from `gpuprov.simulate.devices`. `files` by name, each byte a
    character of Latin-1; `config`, 4096 bytes, without zeros at its end."""

    role: str
    index: int
    address: str
    path: str
    node: int
    files: dict[str, str]
    rdma: RdmaTree | None = None


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """`spares`: empty slots, one on each NUMA node, as address and path."""

    functions: tuple[Function, ...]
    spares: tuple[Place, ...] = ()


def make_file(name: str, description: Description) -> bytes:
    """Return the file, for the host of this name."""
    ends = devices(name, description)
    hung = tree(description, [(end.role, end.index) for end in ends if end.role in NVLINK_ROLES])
    made = [
        Function(
            role="bridge",
            index=index,
            address=bridge.address,
            path=bridge.path,
            node=bridge.numa_node,
            files=_texts(sysfs.bridge_files(bridge)),
        )
        for index, bridge in enumerate(hung.bridges if hung else ())
    ]
    made += [
        Function(
            role=end.role,
            index=end.index,
            address=end.address,
            path=end.path,
            node=end.numa_node,
            files=_texts(sysfs.files(end)),
            rdma=rdma.device(name, description, end),
        )
        for end in ends
    ]
    return msgspec.json.encode(Told(functions=tuple(made), spares=hung.spares if hung else ()))


def _texts(files: dict[str, bytes]) -> dict[str, str]:
    return {
        name: (content.rstrip(b"\0") if name == "config" else content).decode("latin-1")
        for name, content in files.items()
    }
