"""The `container_toolkit` block, and what follows from it on a given host."""

import re
from typing import Annotated, Literal

from gpuprov.catalog import container_toolkit as catalogue
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.containers.container_engines import ENGINES
from gpuprov.facts.probes.containers.container_toolkit import TOOLKIT
from gpuprov.facts.probes.software import packages
from gpuprov.host_code.cdi import SPECIFICATION
from gpuprov.rules import engines as files
from gpuprov.rules import resolve
from gpuprov.rules.engine_output import Engine
from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment, HostSpec

Runtime = Literal["docker", "containerd", "crio", "podman", "k3s", "rke2", "microk8s"]
# Engines in which a container can be started by a command; the others start them for a kubelet.
STARTABLE = ("docker", "podman", "containerd")
UserName = Annotated[str, describe("a user's name", pattern=r"^[a-z_][a-z0-9_-]*[$]?$")]


class ContainerToolkit(Fragment, frozen=True):
    """NVIDIA's Container Toolkit at one version, its runtime registered in the container engines, and a CDI
    specification that always matches the current GPUs.

    Engines are configured only by the host's own nvidia-ctk; if it would lose any of the user's settings, that is an
    error, and undone. A daemon is reloaded or restarted only if its configuration changed, and must then have the
    runtime in force.
    """

    version: Annotated[
        str,
        describe(
            "any, or an exact version such as 1.20.1. It is that of all four packages", pattern=r"^(any|\d+\.\d+\.\d+)$"
        ),
    ] = "any"
    hold: Annotated[bool, describe("whether the four packages are held against upgrades")] = True
    runtimes: Annotated[
        tuple[Runtime, ...],
        describe(
            "docker, containerd, crio, podman, and the containerd of k3s, rke2 or microk8s, as the host has them; "
            "without any, all that it has (containerd only where it has no docker, which brings one along)"
        ),
    ] = ()
    default_runtime: Annotated[
        bool,
        describe(
            "whether NVIDIA's runtime runs every container. docker run --gpus on another default runtime uses"
            " the legacy hook, whose containers lose their GPUs at a daemon-reload where systemd has the "
            "cgroups"
        ),
    ] = False
    mode: Annotated[
        Literal["auto", "cdi", "legacy"],
        describe(
            "nvidia-container-runtime.mode. auto is CDI made on the fly from toolkit 1.18 on, and legacy "
            "before; cdi reads the CDI specification; legacy changes cgroups behind the engine's back"
        ),
    ] = "auto"
    cdi_directory: Annotated[
        Literal["/var/run/cdi", "/etc/cdi"],
        describe(
            "where the CDI specification lies: /var/run/cdi, which is empty after a boot until the refresh "
            "unit has run, or /etc/cdi, where it is kept"
        ),
    ] = "/var/run/cdi"
    rootless: Annotated[
        tuple[UserName, ...],
        describe(
            "users whose rootless docker gets the runtime, never in mode legacy; rootless podman needs no more than CDI"
        ),
    ] = ()
    cuda_image: Annotated[
        Annotated[str, describe("the name of an image", pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$")] | None,
        describe(
            "An image, whatever is in it, of which each engine (docker, podman, containerd) starts a container at "
            "each verify: CUDA is run in it on every GPU and MIG device, for a second; left out: no container is "
            "started"
        ),
    ] = None
    cuda_pull: Annotated[
        bool, describe("whether apply may pull cuda_image where an engine lacks it; verify never does")
    ] = False


def ask_image(host: HostSpec) -> dict[str, str]:
    """Return what the probes of CUDA in containers ask of the spec."""
    block = host.capabilities.get("container_toolkit")
    if not isinstance(block, ContainerToolkit) or not block.cuda_image:
        return {"cuda_image": "", "cuda_engines": ""}
    return {"cuda_image": block.cuda_image, "cuda_engines": " ".join(n for n in block.runtimes if n in STARTABLE)}


def engines(fragment: ContainerToolkit, facts: Facts) -> dict[str, Engine | None]:
    """Return the engines of the block, in the spec's order; None for an engine that the host does not have."""
    present = facts.get(ENGINES)
    selected = fragment.runtimes or [n for n in present if n != "containerd" or "docker" not in present]
    return {name: present.get(name) for name in selected}


def registrable(fragment: ContainerToolkit, facts: Facts) -> dict[str, Engine]:
    """Return those of the engines that have runtimes; podman takes GPUs by CDI only."""
    return {
        name: engine for name, engine in engines(fragment, facts).items() if engine is not None and name != "podman"
    }


def runners(fragment: ContainerToolkit, facts: Facts) -> list[str]:
    """Return the value of nvidia-container-runtime.runtimes on a host where none of its programs exists, and cri-o has
    some; else empty."""
    # Without such a program, no container of NVIDIA's runtime starts: https://github.com/NVIDIA/gpu-operator/pull/984
    toolkit = facts.get(TOOLKIT)
    if toolkit.runners or "crio" not in registrable(fragment, facts):
        return []
    runtimes = files.at(toolkit.settings, "nvidia-container-runtime", "runtimes")
    named = [*(map(str, runtimes) if isinstance(runtimes, list) else ("runc", "crun")), *toolkit.spares]
    plain = all(
        re.fullmatch(r"[A-Za-z0-9._/+-]+", name) for name in named
    )  # they become words of nvidia-ctk's and sed's
    return named if toolkit.spares and plain else []


def installed(facts: Facts) -> dict[str, packages.Package]:
    """Return the toolkit's packages on the host."""
    present = facts.get(packages.PACKAGES)
    return {name: present[name] for name in catalogue.PACKAGES if name in present}


def specification_file(fragment: ContainerToolkit) -> str:
    """Return the CDI specification's path."""
    return f"{fragment.cdi_directory}/{SPECIFICATION}"


def modern(version: str) -> bool:
    """Return whether this release has nvidia-cdi-refresh, and CDI as its automatic mode; true for one that is still to
    be installed."""
    return not version or resolve.order(version) >= resolve.order(catalogue.MODERN)


def effective_mode(mode: str, version: str) -> str:
    """Return cdi or legacy: the effective mode with a release on hosts with NVML."""
    return ("cdi" if modern(version) else "legacy") if mode == "auto" else "legacy" if mode == "legacy" else "cdi"
