"""Packages that provide each part of a driver stack, by distribution, archive and branch."""

from gpuprov.catalog.drivers import derive_branch
from gpuprov.catalog.drivers.data import Offer, Origin, PackageSet, list_same_packages, read_drivers_file
from gpuprov.catalog.gpus import Flavour
from gpuprov.catalog.reader import choose_fix
from gpuprov.core.errors import GpuprovError


def list_origins(distribution: str) -> tuple[Origin, ...]:
    """The archives that have packages for the distribution (its key)."""
    return tuple(entry for entry in read_drivers_file().origins if distribution in entry.distributions)


def list_offers(distribution: str, package: str) -> tuple[Offer, ...]:
    """Return versions of the package that were seen for the distribution; for offline advice only."""
    return tuple(e for e in read_drivers_file().offers if (e.distribution, e.package) == (distribution, package))


def is_covering(entry: PackageSet, branch: str) -> bool:
    number = int(derive_branch(branch))
    return (not entry.min_branch or number >= int(entry.min_branch)) and (
        not entry.max_branch or number <= int(entry.max_branch)
    )


def list_package_sets(
    distribution: str, part: str, branch: str, *, origin: str, flavour: Flavour | None = None
) -> tuple[PackageSet, ...]:
    """Return the sets for a part ("kernel-modules", "user-space", "fabric-manager", ...), usually one; empty: unknown.

    `branch` may be a full version. A set without flavour fits both; without `flavour`, sets of either are returned.
    """
    return tuple(
        entry
        for entry in read_drivers_file().package_sets
        if entry.part == part
        and distribution in entry.distributions
        and entry.origin in list_same_packages(origin)
        and flavour in (None, entry.flavour or flavour)
        and is_covering(entry, branch)
    )


def list_package_names(
    entry: PackageSet, version: str, *, kernel: str = "", kernel_flavour: str = ""
) -> tuple[str, ...]:
    """The names of the set with branch, version and kernel filled in."""
    fill = {"branch": derive_branch(version), "version": version, "kernel": kernel, "kernel_flavour": kernel_flavour}
    try:
        names = tuple(name.format(**fill) for name in entry.packages)
    except (KeyError, IndexError, ValueError) as error:
        place = (
            f"gpuprov/catalog/data/drivers.yaml: package_sets[{entry.part}].packages of "
            f"{', '.join(entry.distributions)}"
        )
        raise GpuprovError(f"{place}: unknown placeholder {error}; allowed: {', '.join(fill)}", choose_fix()) from error
    return names
