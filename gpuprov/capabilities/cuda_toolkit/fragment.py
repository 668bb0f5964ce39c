"""The `cuda_toolkit` block, and what follows from it on a given host."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from gpuprov.catalog import cuda
from gpuprov.catalog import toolkits as catalogue
from gpuprov.probe import cuda_toolkit, family, nvidia, system
from gpuprov.probe.base import Facts, ProbeFailed
from gpuprov.probe.packages import Package
from gpuprov.shared import toolchain
from gpuprov.spec.model import Fragment, HostSpec

Version = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[0-9]{1,2}\.[0-9]{1,2}(\.[0-9]{1,2})?$", description='a toolkit ("12.4") or a release ("12.4.1")'
    ),
]


class CudaToolkit(Fragment, frozen=True):
    """CUDA toolkits beside each other, each of one exact release, with cuDNN and NCCL; no driver ever comes along with them.

    A transaction that would install, move or remove a package of a driver is refused before anything changes.
    A toolkit that is taken out of versions stays installed; `only` removes it.
    """

    versions: Annotated[
        tuple[Version, ...],
        msgspec.Meta(
            description='toolkits ("12.4") or releases ("12.4.1"). An installed release of a toolkit is kept; of a '
            "release that is named, every component is of that release too. Without any: those that are "
            "installed, else the newest that the driver runs"
        ),
    ] = ()
    default: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^([0-9]{1,2}\.[0-9]{1,2})?$",
            description='a toolkit as "12.4", or nothing. /usr/local/cuda leads to it; empty: to the newest of versions',
        ),
    ] = ""
    parts: Annotated[
        catalogue.Part,
        msgspec.Meta(
            description="of every toolkit: toolkit is all of it (8 GB each), minimal-build what compiling needs, "
            "libraries what running needs, without a compiler and headers"
        ),
    ] = "toolkit"
    cudnn: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^([0-9]{1,2}(\.[0-9]{1,3}){0,3})?$",
            description='"9", "9.5.1" or "9.5.1.17". cuDNN for the CUDA major of the default toolkit; empty: none',
        ),
    ] = ""
    nccl: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^([0-9]{1,2}(\.[0-9]{1,3}){0,2})?$",
            description='"2", "2.21" or "2.21.5". NCCL built for the CUDA major of the default toolkit; empty: none',
        ),
    ] = ""
    path: Annotated[
        bool,
        msgspec.Meta(
            description="whether login shells have /usr/local/cuda/bin in their PATH (/etc/profile.d/gpuprov-cuda.sh)"
        ),
    ] = True
    hold: Annotated[
        bool,
        msgspec.Meta(description="whether every package of the toolkits, of cuDNN and NCCL is held against upgrades"),
    ] = True
    only: Annotated[
        bool,
        msgspec.Meta(
            description="whether toolkits that are not in versions are removed, and metapackages that bring a driver or "
            "follow the newest toolkit"
        ),
    ] = False


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What the host shall have (`gpuprov.shared.toolchain.decide`)."""

    releases: dict[str, str]
    default: str
    packages: dict[str, str]
    remove: tuple[str, ...]
    problem: str
    hint: str


BASE = (system.OS_RELEASE, cuda_toolkit.PACKAGES, nvidia.LIBRARIES, nvidia.DRIVER)


def kind(facts: Facts) -> family.Family:
    """The host's family. Raises ProbeFailed on a host of neither."""
    release = facts.get(system.OS_RELEASE)
    found = family.family(release)
    if found is None:
        raise ProbeFailed(f"no packages of the CUDA toolkit are known for {release.name or release.id}")
    return found


def installed(facts: Facts) -> dict[str, str]:
    """Package versions by name."""
    return {name: package.version for name, package in facts.get(cuda_toolkit.PACKAGES).items()}


def driver_of(host: HostSpec, facts: Facts) -> str:
    """The driver that the toolkits will run on: the installed (or loaded) one if it is as the spec wants it, else the spec's."""
    found = facts.get(nvidia.LIBRARIES).get("libcuda", "") or facts.get(nvidia.DRIVER).version
    named, least = named_driver(host), asked_driver(host)
    kept = (not named or toolchain.satisfies(found, named)) and toolchain.order(found) >= toolchain.order(least)
    return found if kept else least


def named_driver(host: HostSpec) -> str:
    """The driver version or branch that the spec names; empty where it names none."""
    version = getattr(host.capabilities.get("nvidia_driver"), "version", "any")
    return "" if version == "any" else str(version)


def asked_driver(host: HostSpec) -> str:
    """The least driver that the spec leads to: what it names, or the oldest of that which runs the CUDA of `nvidia_driver.cuda`."""
    named = named_driver(host)
    floor = cuda.floors().get(getattr(host.capabilities.get("nvidia_driver"), "cuda", ""), "")
    return floor if floor and (not named or named == toolchain.major(floor)) else named


def way_to(host: HostSpec, version: str, floor: str) -> str:
    """What to write into the spec for a driver that runs this toolkit."""
    asked = f'cuda: "{toolchain.minor(version)}"'
    if not named_driver(host):
        return f"nvidia_driver: {{{asked}}}"
    return f'nvidia_driver: {{version: "{toolchain.major(floor)}", {asked}}} (or a newer branch)'


def decide(block: CudaToolkit, facts: Facts, index: dict[str, list[str]] | None = None, driver: str = "") -> Decision:
    """What this host shall have. Without an index only what is installed can be the answer."""
    wanted: dict[str, Any] = msgspec.to_builtins(block)
    answer = toolchain.decide(wanted, catalogue.tables(), kind(facts), index or {}, installed(facts), driver)
    return msgspec.convert(answer, Decision)


def mine(block: CudaToolkit, facts: Facts) -> dict[str, Package]:
    """The installed packages that the block is about: of its toolkits, of cuDNN and of NCCL where they are asked for."""
    found = facts.get(cuda_toolkit.PACKAGES)
    minors = wanted_minors(block, facts)
    libraries = [
        entry.replace("{cuda}", toolchain.major(default(block, facts)))
        for row in catalogue.toolkits_file().libraries
        if getattr(block, row.library) and row.family == kind(facts)
        for entry in (*row.run, *row.build, *row.beside)
    ]
    return {name: p for name, p in found.items() if toolchain.toolkit_of(name) in minors or name in libraries}


def wanted_minors(block: CudaToolkit, facts: Facts) -> list[str]:
    """The toolkits (`12.4`) that are asked for; without versions, those that are installed."""
    named = [toolchain.minor(version) for version in block.versions]
    return named or list(decide(block, facts).releases)


def default(block: CudaToolkit, facts: Facts) -> str:
    """The toolkit that /usr/local/cuda shall lead to; empty where there is none."""
    return block.default or max(wanted_minors(block, facts), key=toolchain.order, default="")
