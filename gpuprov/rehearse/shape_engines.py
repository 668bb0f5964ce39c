"""Container engines of the simulated host of a spec with `container_toolkit`; or why it cannot be simulated."""

from collections.abc import Mapping

from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.core.errors import GpuprovError
from gpuprov.host_code.json_members import Json
from gpuprov.simulate import distributions
from gpuprov.simulate.engines_built import RELEASES
from gpuprov.spec.model import HostSpec

PACKAGED = ("docker", "podman")
"""Engines in Debian's archive; docker brings a containerd along."""


def plan_engines(spec: HostSpec, distribution: str, override: Mapping[str, Json], notes: list[str]) -> dict[str, Json]:
    """`containerd` and `engines` of the description; empty where nothing asks for them, or the inventory says it.

    gpuprov registers GPUs in engines that a host has and installs none, so a new host has to come with one.
    Raises GpuprovError where no simulated host of this distribution has them.
    """
    block = spec.capabilities.get("container_toolkit")
    if not isinstance(block, ContainerToolkit) or override.get("containerd") or override.get("engines"):
        return {}
    if "crio" in block.runtimes:
        raise GpuprovError(
            f"{spec.name}: container_toolkit.runtimes has crio, which no simulated host has",
            f"rehearse the rest: {spec.name} with runtimes: [containerd], or without its group in the inventory",
        )
    if block.rootless:
        raise GpuprovError(
            f"{spec.name}: container_toolkit.rootless names {', '.join(block.rootless)}, whom no simulated host knows",
            f"rehearse the rest: {spec.name} with rootless: []",
        )
    packaged = [name for name in PACKAGED if name in block.runtimes]
    if packaged and distribution not in distributions.REAL:
        raise GpuprovError(
            f"{spec.name}: container_toolkit.runtimes has {', '.join(packaged)}, and a simulated {distribution} has no packages of it",
            f"rehearse it with --distribution {' or '.join(distributions.REAL)}, or with runtimes: [containerd]",
        )
    if packaged:
        notes.append(f"the simulated host comes with {distribution}'s own {' and '.join(packaged)}")
    if "docker" in packaged or (packaged and "containerd" not in block.runtimes):
        return {"engines": packaged}
    notes.append(f"the simulated host comes with containerd {RELEASES[0]}, since production's hosts have an engine")
    return {"engines": packaged, "containerd": RELEASES[0]}
