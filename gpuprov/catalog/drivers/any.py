"""A driver from any source: the installed one, and the packages that provide one."""

import re
from collections.abc import Iterable
from functools import cache

from gpuprov.catalog.distributions import list_managed
from gpuprov.catalog.drivers.data import read_drivers_file
from gpuprov.catalog.drivers.rules import PARTS
from gpuprov.catalog.drivers.sets import BUILDS, SOURCES, DriverPackages, find_packages
from gpuprov.rules import resolve

MODULES = (PARTS[0], "prebuilt-modules", "prebuilt-objects")
# Parts of a driver that have versions of their own.
BESIDE = ("support", "modprobe", "persistence")
NONE = "(?!)"


def find_installed_driver(os_id: str, version_id: str, installed: dict[str, str]) -> str:
    """Return the package version of the installed driver, by its kernel modules, from any source; "" if there are
    none."""
    kernels = [
        name
        for names in list_sets(os_id, version_id)
        for name in resolve.kernel_package(names.sets, installed).values()
    ]
    return installed[kernels[0]] if kernels else ""


@cache
def build_patterns(os_id: str, version_id: str) -> tuple[str, str]:
    """Return patterns of the names of packages, and of source packages, that provide a driver, from any source."""
    package_sets = list_sets(os_id, version_id)
    sources_of = [pattern for names in package_sets for pattern in names.sources]
    return join_patterns(list_patterns(package_sets)), join_patterns(sources_of)


@cache
def group_patterns_by_family() -> dict[str, dict[str, str]]:
    """Return patterns of package names by family of distributions: `driver`, of a driver from any source; of these
    `modules`, its kernel modules, and `own`, those that may have versions of their own."""
    file = read_drivers_file()
    tables: dict[str, dict[str, str]] = {}
    for family in dict.fromkeys(dist.family for dist in list_managed()):
        keys = {dist.key for dist in list_managed() if dist.family == family}
        sets = [names for dist in list_managed() if dist.key in keys for names in list_sets(dist.id, dist.version_id)]
        entries = [entry for entry in file.package_sets if keys.intersection(entry.distributions)]
        more = [entry for entry in file.driver_names if entry.family == family]
        beside = [name for entry in entries if entry.part in BESIDE for name in entry.packages if "nvidia" in name]
        added = [name for entry in more if entry.driver for name in entry.names]
        pattern = join_patterns([*list_patterns(sets), *map(build_pattern, beside), *added])
        none = join_patterns(name for entry in more if not entry.driver for name in entry.names)
        own_names = {
            name
            for entry in entries
            if entry.version == "own"
            for name in entry.packages
            if re.fullmatch(pattern, name)
        }
        modules = [
            name for entry in entries if entry.part in MODULES for name in (*entry.packages, *entry.alternatives)
        ]
        tables[family] = {
            "driver": f"(?!({none})$)({pattern})",
            "modules": join_patterns(map(build_pattern, modules)),
            "own": join_patterns(map(build_pattern, sorted(own_names))),
        }
    return tables


def list_sets(os_id: str, version_id: str) -> list[DriverPackages]:
    kinds = [(source, build) for source in SOURCES for build in BUILDS]
    return [names for source, build in kinds if (names := find_packages(os_id, version_id, source, build))]


def list_patterns(package_sets: Iterable[DriverPackages]) -> list[str]:
    rules = [rule["name"] for names in package_sets for kind in names.sets.values() for rule in (*kind, *names.others)]
    conflicts = [pattern for names in package_sets for pattern in names.conflicts]
    return [*map(build_pattern, dict.fromkeys(rules)), *conflicts]


def build_pattern(name: str) -> str:
    """Return the name of a rule as a pattern, with its placeholders filled in."""
    return re.sub(r"\\{(\w+)\\}", lambda match: resolve.PLACES.get(match[1], r"[\d.]+"), re.escape(name))


def join_patterns(patterns: Iterable[str]) -> str:
    return "|".join(dict.fromkeys(patterns)) or NONE
