"""The `nvidia_driver` block, and what follows from it on a given host."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from gpuprov import resolve
from gpuprov.catalog import fabric
from gpuprov.catalog.driver_sets import DriverPackages, driver_packages, kernel_module_table
from gpuprov.probe import dpkg, modules, pci, system
from gpuprov.probe.base import Facts, ProbeFailed
from gpuprov.probe.modules import KernelModules
from gpuprov.spec.kernel import ParameterName, Scalar
from gpuprov.spec.model import Fragment, HostSpec

VERSION = r"^(any|[0-9]{3}|[0-9]{3}\.[0-9]{1,3}(\.[0-9]{1,2})?)$"


class NvidiaDriver(Fragment, frozen=True):
    """One driver version, its whole package set, built for every installed kernel and held."""

    version: Annotated[
        str,
        msgspec.Meta(pattern=VERSION, description='any, a branch ("535") or an exact version ("535.261.03")'),
    ] = "any"
    kernel_modules: Annotated[
        Literal["auto", "open", "proprietary"],
        msgspec.Meta(description="auto decides by the GPU's PCI id and the branch"),
    ] = "auto"
    module_parameters: Annotated[
        dict[ParameterName, Scalar],
        msgspec.Meta(description="Parameters of the nvidia module, e.g. NVreg_RestrictProfilingToAdminUsers"),
    ] = {}
    hold: Annotated[bool, msgspec.Meta(description="Hold every package of the set against upgrades")] = True


class Decision(msgspec.Struct, frozen=True):
    """The one version and flavour for a host (`gpuprov.resolve.decide`), with the package versions of the set."""

    flavour: str
    reason: str
    version: str
    packages: dict[str, str]
    kept: bool
    problem: str
    hint: str
    replaced: tuple[str, ...] = ()


BASE_PROBES = (system.OS_RELEASE, pci.NVIDIA_FUNCTIONS, dpkg.PACKAGES)


def package_names(facts: Facts) -> DriverPackages:
    """The driver's package names on this host's distribution."""
    release = facts.get(system.OS_RELEASE)
    names = driver_packages(release.id, release.version)
    if names is None:
        raise ProbeFailed(f"no driver package names are known for {release.name or release.id}")
    return names


def followers(host: HostSpec, facts: Facts) -> tuple[resolve.Rules, ...]:
    """Rules for the packages that the spec wants in the driver's version under names of their own: Fabric Manager."""
    release = facts.get(system.OS_RELEASE)
    return (fabric.rules(release.id, release.version),) if "fabric_manager" in host.capabilities else ()


def decide(
    driver: NvidiaDriver,
    facts: Facts,
    index: dict[str, list[str]] | None = None,
    beside: tuple[resolve.Rules, ...] = (),
) -> Decision:
    """What this host shall have. Without an index only an installed whole set can be the answer."""
    names = package_names(facts)
    identifiers = [gpu.identifier for gpu in pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS))]
    installed = {name: package.version for name, package in facts.get(dpkg.PACKAGES).items()}
    sets = {"proprietary": list(names.proprietary), "open": list(names.open)}
    answer = resolve.decide(
        driver.version,
        driver.kernel_modules,
        identifiers,
        kernel_module_table(),
        sets,
        index or {},
        installed,
        beside=beside,
    )
    return msgspec.convert(answer, Decision)


def build_targets(facts: Facts) -> tuple[KernelModules, ...]:
    """The kernels that modules must exist for: every one that can boot, or, in a container, every one with headers."""
    kernels = facts.get(modules.KERNELS)
    return tuple(kernel for kernel in kernels if kernel.bootable) or kernels


def installed_set(driver: NvidiaDriver, facts: Facts) -> dict[str, dpkg.Package]:
    """The installed packages that must share the driver's version: the set, and whatever else came from its source."""
    names = package_names(facts)
    decision = decide(driver, facts)
    needed = names.open if decision.flavour == "open" else names.proprietary
    packages = facts.get(dpkg.PACKAGES)
    return {name: p for name, p in packages.items() if name in needed or p.source in names.sources}


def module_package(facts: Facts) -> dpkg.Package | None:
    """The installed package that the kernel modules come from."""
    names, found = package_names(facts), facts.get(dpkg.PACKAGES)
    return next((found[name] for name in (names.proprietary[0], names.open[0]) if name in found), None)


def header_metapackages(facts: Facts) -> list[str]:
    """The metapackages that bring headers along with each kernel that an installed `linux-image-...` metapackage brings."""
    installed = facts.get(dpkg.PACKAGES)
    images = [name.removeprefix("linux-image-") for name in installed if re.match(r"linux-image-[a-z]", name)]
    return [f"linux-headers-{image}" for image in images if not image.endswith(("-dbg", "-unsigned"))]
