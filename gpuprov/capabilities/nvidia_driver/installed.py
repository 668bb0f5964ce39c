"""The installed packages of the driver, and their version."""

from collections.abc import Iterable
from typing import Any

from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver, decide, package_names, versions
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.software.packages import PACKAGES, Package
from gpuprov.rules import package_lists, resolve


def installed_set(driver: NvidiaDriver, facts: Facts) -> dict[str, Package]:
    """Return the installed packages that must share the driver's version: the set, under any branch's names, and
    whatever else came from its source."""
    names = package_names(driver, facts)
    rules: Iterable[Any] = names.sets[decide(driver, facts).flavour]
    own_names = resolve.other_names(list(rules), versions(facts))
    present = facts.get(PACKAGES)
    return {
        name: package
        for name, package in present.items()
        if name in own_names or names.of_source(package.source, package.version)
    }


def module_package(driver: NvidiaDriver, facts: Facts) -> Package | None:
    """Return the installed package that the kernel modules come from."""

    def find() -> Package | None:
        names = resolve.kernel_package(package_names(driver, facts).sets, versions(facts))
        return next((facts.get(PACKAGES)[name] for name in names.values()), None)

    return facts.once("nvidia_driver.module_package", driver, find)


def installed_version(driver: NvidiaDriver, facts: Facts) -> str:
    """Return the driver version of the installed modules: of their package, or the runfile's; empty if there are
    none."""
    if driver.source == "runfile":
        return driver.version
    package = module_package(driver, facts)
    return resolve.upstream(package.version) if package else ""


def header_metapackages(driver: NvidiaDriver, facts: Facts) -> list[str]:
    """Return the metapackages that bring headers along with each kernel that an installed `linux-image-...` metapackage
    brings, if DKMS is to build for those. None if kernels are held: the newest headers would have DKMS build for a
    kernel that is kept away."""
    comes = driver.build == "dkms" and driver.kernel_upgrades != "hold"
    return package_lists.header_metapackages(facts.get(PACKAGES)) if comes else []
