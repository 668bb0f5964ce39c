"""The `nvidia_driver` block, and what follows from it on a given host."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec

from gpuprov import package_lists, resolve
from gpuprov.catalog import cuda, fabric
from gpuprov.catalog.driver_sets import DriverPackages, driver_packages, kernel_module_table
from gpuprov.probe import modules, pci, system
from gpuprov.probe.base import Facts, ProbeFailed
from gpuprov.probe.family import family
from gpuprov.probe.modules import KernelModules
from gpuprov.probe.packages import PACKAGES, Package
from gpuprov.spec.kernel import ParameterName, Scalar
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.repository import Repository
from gpuprov.spec.signing import Signing

VERSION = r"^(any|[0-9]{3}|[0-9]{3}\.[0-9]{1,3}(\.[0-9]{1,2})?)$"
CUDA = r"^([0-9]{1,2}(\.[0-9]{1,2}){0,2})?$"
NO_SOURCE = "EL has no driver in its own repositories: source nvidia, or mirror with a repository"


class NvidiaDriver(Fragment, frozen=True):
    """One driver version, its whole package set from one source, built for every installed kernel and held."""

    version: Annotated[
        str,
        msgspec.Meta(pattern=VERSION, description='any, a branch ("535") or an exact version ("535.261.03")'),
    ] = "any"
    cuda: Annotated[
        str, msgspec.Meta(pattern=CUDA, description='a CUDA version that the driver must run, such as "12.8"')
    ] = ""
    kernel_modules: Annotated[
        Literal["auto", "open", "proprietary"],
        msgspec.Meta(description="auto decides by the GPU's PCI id and the branch"),
    ] = "auto"
    source: Annotated[
        Literal["auto", "distribution", "nvidia", "mirror"],
        msgspec.Meta(
            description="The distribution's own archive, NVIDIA's repository, or the site's mirror of the latter. auto is the "
            "first where the distribution has a driver (Debian, Ubuntu), else the second"
        ),
    ] = "auto"
    repository: Repository = Repository()
    module_parameters: Annotated[
        dict[ParameterName, Scalar],
        msgspec.Meta(description="Parameters of the nvidia module, e.g. NVreg_RestrictProfilingToAdminUsers"),
    ] = {}
    hold: Annotated[bool, msgspec.Meta(description="Hold every package of the set against upgrades")] = True
    signing: Signing = Signing()
    build_host: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^[\w.:%@+-]*$",
            description="a host of the inventory that builds the modules for this one (Debian and Ubuntu), or this host itself, "
            "which then packs them for others; empty: it builds its own",
        ),
    ] = ""


class Decision(msgspec.Struct, frozen=True):
    """The one version and flavour for a host (`gpuprov.resolve.decide`), with the package versions of the set."""

    flavour: str
    reason: str
    version: str
    branch: str
    packages: dict[str, str]
    kept: bool
    problem: str
    hint: str
    replaced: tuple[str, ...] = ()


def served(host: HostSpec, driver: NvidiaDriver) -> bool:
    """Whether another host builds this one's modules."""
    return driver.build_host not in ("", host.name)


BASE_PROBES = (system.OS_RELEASE, pci.NVIDIA_FUNCTIONS, PACKAGES)


def offered(driver: NvidiaDriver, facts: Facts) -> DriverPackages | None:
    """The driver's packages on this host's distribution; None if its driver is not managed, or not of the wanted source."""
    release = facts.get(system.OS_RELEASE)
    return driver_packages(release.id, release.version, driver.source)


def package_names(driver: NvidiaDriver, facts: Facts) -> DriverPackages:
    """The same, where there must be some."""
    names = offered(driver, facts)
    if names is None:
        release = facts.get(system.OS_RELEASE)
        if driver.source == "distribution" and family(release) == "redhat":
            raise ProbeFailed(NO_SOURCE)
        raise ProbeFailed(f"no driver package names are known for {release.name or release.id}")
    return names


def versions(facts: Facts) -> dict[str, str]:
    """The installed packages that concern the driver, with their versions."""
    return {name: package.version for name, package in facts.get(PACKAGES).items()}


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
    names = package_names(driver, facts)
    answer = resolve.decide(
        driver.version,
        driver.kernel_modules,
        [gpu.identifier for gpu in pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS))],
        kernel_module_table(),
        names.sets,
        index or {},
        versions(facts),
        beside=beside,
        cuda=cuda.floor(driver.cuda) if driver.cuda else "",
        others=names.others,
    )
    return msgspec.convert(answer, Decision)


def build_targets(facts: Facts) -> tuple[KernelModules, ...]:
    """The kernels that modules must exist for: every one that can boot, or, in a container, every one with headers."""
    kernels = facts.get(modules.KERNELS)
    return tuple(kernel for kernel in kernels if kernel.bootable) or kernels


def needed(driver: NvidiaDriver, facts: Facts, flavour: str) -> list[str]:
    """The names of the set on this host: for the branch whose kernel modules are installed, else for the wanted one."""
    sets = package_names(driver, facts).sets
    rules, installed = sets[flavour], versions(facts)
    kernel = resolve.kernel_package({flavour: rules}, installed).get(flavour, "")
    version = installed.get(kernel, "" if driver.version == "any" else driver.version)
    if not version:
        version = max((str(rule["max"]) for rule in rules if rule["max"] < resolve.NO_LIMIT), default="0")
    names = resolve.fitting(rules, version)
    exact = "." in version
    return [name for name, rule in names.items() if exact or "{version}" not in rule["name"]]


def installed_set(driver: NvidiaDriver, facts: Facts) -> dict[str, Package]:
    """The installed packages that must share the driver's version: the set, under whatever branch's names, and whatever else
    came from its source."""
    names = package_names(driver, facts)
    rules: Iterable[Any] = names.sets[decide(driver, facts).flavour]
    mine = resolve.other_names(list(rules), versions(facts))
    return {name: p for name, p in facts.get(PACKAGES).items() if name in mine or names.of_source(p.source)}


def module_package(driver: NvidiaDriver, facts: Facts) -> Package | None:
    """The installed package that the kernel modules come from."""
    found = resolve.kernel_package(package_names(driver, facts).sets, versions(facts))
    return next((facts.get(PACKAGES)[name] for name in found.values()), None)


def header_metapackages(facts: Facts) -> list[str]:
    """The metapackages that bring headers along with each kernel that an installed `linux-image-...` metapackage brings."""
    return package_lists.header_metapackages(facts.get(PACKAGES))
