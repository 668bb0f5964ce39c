"""Decision which versions of the packages a host should have, by what is installed and offered."""

from collections.abc import Iterable

import msgspec

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.driver import find_current_version, find_requested_version
from gpuprov.capabilities.gds.fragment import Gds, packages
from gpuprov.catalog import cuda
from gpuprov.catalog import gds as catalogue
from gpuprov.catalog.cuda.packages import find_toolkit, format_dashed
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.driver import gds as probe
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family
from gpuprov.facts.probes.software.packages import Index
from gpuprov.rules import resolve

Ctx = Context[Gds]
BASE = (system.OS_RELEASE, probe.PACKAGES)
RESOLVING = (*BASE, probe.INDEX, nvidia.LIBRARIES, nvidia.DRIVER)
UNKNOWN = "X.Y"
SOURCE = (
    "nvidia_driver.source: nvidia, or a mirror of NVIDIA's repository that has them; from CUDA 13.4 on nvidia-fs is "
    "a download of its own (https://developer.nvidia.com/nvidia-fs-downloads)"
)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """`versions` by package."""

    versions: dict[str, str] = {}
    # Packages that no package source has, in one version where they have one.
    missing: tuple[str, ...] = ()


def find_release(ctx: Ctx, offered: Iterable[str] = ()) -> str:
    """Return the CUDA release whose packages the host should have: the named one, else the newest installed, else the
    newest of these packages that the driver runs; X.Y if there is none, for messages."""
    library = catalogue.user_packages(UNKNOWN)[0].removesuffix(format_dashed(UNKNOWN))

    def newest(names: Iterable[str]) -> str:
        return max((find_toolkit(name) for name in names if name.startswith(library)), key=resolve.order, default="")

    named = probe.toolkit(ctx.host, ctx.fragment) or newest(ctx.facts.get(probe.PACKAGES))
    if named or not offered:
        return named or UNKNOWN
    driver = find_requested_version(ctx.host) or find_current_version(ctx.facts)
    known = [name for name in offered if find_toolkit(name)]
    return (
        newest(name for name in known if not driver or cuda.check_support(driver, find_toolkit(name)).runs is not False)
        or UNKNOWN
    )


def decide(ctx: Ctx) -> Decision:
    """Decide: libcufile and the tools in one version, the installed one of libcufile if the tools are offered in it,
    else the newest that both have; installed packages of nvidia-fs stay as they are. Raises ProbeFailed on a host of no
    known family."""
    release = ctx.facts.get(system.OS_RELEASE)
    if family(release) is None:
        message = f"gds: no packages of GPUDirect Storage are known for {release.name or release.id}"
        raise ProbeFailed(message, "take gds out of the spec")
    installed = {name: package.version for name, package in ctx.facts.get(probe.PACKAGES).items()}
    offered = ctx.facts.get(probe.INDEX)
    cuda_release = find_release(ctx, offered)
    names = catalogue.user_packages(cuda_release)
    common = _find_common_version(names, installed, offered)
    versions = dict.fromkeys(names, common) if common else {}
    requested = packages(ctx.fragment, cuda_release)
    for name in requested[len(names) :]:
        if version := installed.get(name) or next(iter(offered.get(name, ())), ""):
            versions[name] = version
    return Decision(versions=versions, missing=tuple(name for name in requested if name not in versions))


def _find_common_version(names: tuple[str, ...], installed: dict[str, str], offered: Index) -> str:
    """Return one version for all of these packages; empty if there is none. The installed one of the library goes
    first."""
    have = installed.get(names[0], "")
    candidates: list[str] = [have] * bool(have) + offered.get(names[0], [])
    for version in candidates:
        if all(version == installed.get(name) or version in offered.get(name, ()) for name in names):
            return version
    return ""
