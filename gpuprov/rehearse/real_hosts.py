"""The parts of a spec that are true of the real host alone: its addresses, its GPUs by name, its firmware, and modules
of others."""

import re
from collections.abc import Iterator

import msgspec

from gpuprov.capabilities.dcgm.fragment import Dcgm
from gpuprov.capabilities.fabric_manager.fragment import FabricManager
from gpuprov.capabilities.health.fragment import Health
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog import dcgm as catalogue
from gpuprov.catalog.gds import MODULE as NVIDIA_FS
from gpuprov.host_code.json_members import Json
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.repository import Repository

# A PCI address or a UUID.
NAME = re.compile(r"GPU-[0-9a-f-]+|([0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
# Fields of `health`.
OF_HARDWARE = ("firmware_versions", "sockets", "cores", "memory", "swap", "nvme", "mounts", "interfaces")
EVERYWHERE = ("ALL:", "127.", "/")


def leave_out_names(blocks: dict[str, Fragment], left: list[str]) -> None:
    """Remove from the blocks what only the real host has."""
    _remove_named_gpus(blocks, left)
    kernel, health, dcgm = blocks.get("kernel"), blocks.get("health"), blocks.get("dcgm")
    if isinstance(kernel, Kernel) and (others := [name for name in kernel.modules_built if name != NVIDIA_FS]):
        left.append(f"kernel.modules_built {', '.join(others)}: built by others, and here by nobody")
        own = tuple(name for name in kernel.modules_built if name == NVIDIA_FS)  # gds builds it, and asks for it
        blocks["kernel"] = msgspec.structs.replace(kernel, modules_built=own)
    if isinstance(health, Health):
        usual = {field: getattr(Health(), field) for field in OF_HARDWARE}
        changed = {field: value for field, value in usual.items() if getattr(health, field) != value}
        blocks["health"] = msgspec.structs.replace(health, **changed)
        left += [f"health.{', '.join(changed)}: of the real host's hardware"] * bool(changed)
    if isinstance(dcgm, Dcgm) and not dcgm.listen.startswith(EVERYWHERE):
        left.append(f"dcgm.listen {dcgm.listen}: the simulated host has another address")
        blocks["dcgm"] = msgspec.structs.replace(dcgm, listen=catalogue.LISTEN)


def _remove_named_gpus(blocks: dict[str, Fragment], left: list[str]) -> None:
    for block in [name for name, fragment in blocks.items() if not isinstance(fragment, Kernel | Rdma)]:
        named = next(filter(NAME.fullmatch, _list_words(msgspec.to_builtins(blocks[block]))), "")
        if named:
            del blocks[block]
            left.append(f"{block}: it names GPU {named}, which no simulated host has; indexes can be rehearsed")


def _list_words(value: Json) -> Iterator[str]:
    """Yield all texts of a value, the keys of its mappings among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _list_words(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _list_words(inner)


def replace_driver_sources(spec: HostSpec, notes: list[str]) -> HostSpec:
    """Return the spec with the driver built on the host, of packages that it serves itself."""
    driver = spec.capabilities.get("nvidia_driver")
    if not isinstance(driver, NvidiaDriver):
        return spec
    if driver.build_host:
        notes.append(f"nvidia_driver.build_host {driver.build_host}: the simulated host builds its modules itself")
        driver = msgspec.structs.replace(driver, build_host="")
    if driver.source == "mirror":
        notes.append("nvidia_driver.repository: a stand-in of NVIDIA's repository takes the place of the site's mirror")
        driver = msgspec.structs.replace(driver, source="nvidia", repository=Repository())
    return msgspec.structs.replace(spec, capabilities={**spec.capabilities, "nvidia_driver": driver})


def is_in_domain(spec: HostSpec) -> bool:
    """True for a member of an IMEX domain, by the addresses of its members."""
    block = spec.capabilities.get("fabric_manager")
    return isinstance(block, FabricManager) and bool(block.imex.nodes)


def put_into_own_domain(spec: HostSpec, address: str) -> HostSpec:
    """Return the spec of a host that is alone in its IMEX domain, under its own address."""
    block = spec.capabilities.get("fabric_manager")
    if not isinstance(block, FabricManager) or not is_in_domain(spec):
        return spec
    alone = msgspec.structs.replace(block, imex=msgspec.structs.replace(block.imex, nodes=(address,)))
    return msgspec.structs.replace(spec, capabilities={**spec.capabilities, "fabric_manager": alone})
