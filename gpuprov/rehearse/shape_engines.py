"""Container engines of the simulated host of a spec with `container_toolkit`."""

from collections.abc import Mapping

from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.host_code.json_members import Json
from gpuprov.simulate.engines_built import RELEASES
from gpuprov.spec.model import HostSpec

# Engines in Debian's archive; docker brings a containerd along.
PACKAGED = ("docker", "podman")


def says_engines(values: Mapping[str, Json]) -> bool:
    """Whether the inventory says which engines the simulated host comes with."""
    return bool(values.get("containerd") or values.get("engines"))


def plan_engines(spec: HostSpec, override: Mapping[str, Json], notes: list[str]) -> dict[str, Json]:
    """`containerd` and `engines` of the description; empty where nothing asks for them, or the inventory says it.

    gpuprov registers GPUs in engines that a host has and installs none, so a new host has to come with one.
    """
    block = spec.capabilities.get("container_toolkit")
    if not isinstance(block, ContainerToolkit) or says_engines(override):
        return {}
    packaged = [name for name in PACKAGED if name in block.runtimes]
    if packaged:
        notes.append(f"the simulated host comes with Debian's {' and '.join(packaged)}")
    if "docker" in packaged or (packaged and "containerd" not in block.runtimes):
        return {"engines": packaged}
    notes.append(f"the simulated host comes with containerd {RELEASES[0]}, since production's hosts have an engine")
    return {"engines": packaged, "containerd": RELEASES[0]}
