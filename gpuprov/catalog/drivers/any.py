"""A driver of whatever source: which one is installed, and which packages bring one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from gpuprov.catalog.distributions import managed
from gpuprov.catalog.drivers.data import drivers_file
from gpuprov.catalog.drivers.rules import PARTS
from gpuprov.catalog.drivers.sets import BUILDS, SOURCES, DriverPackages, driver_packages
from gpuprov.shared import resolve

MODULES = (PARTS[0], "prebuilt-modules", "prebuilt-objects")
BESIDE = ("support", "modprobe", "persistence")
"""Parts that come with a driver in versions of their own."""
NONE = "(?!)"


def installed_driver(os_id: str, version_id: str, installed: dict[str, str]) -> str:
    """The package version of the installed driver, by its kernel modules, of whatever source; empty if there are none."""
    kernels = [
        name for names in _sets(os_id, version_id) for name in resolve.kernel_package(names.sets, installed).values()
    ]
    return installed[kernels[0]] if kernels else ""


@cache
def of_any_driver(os_id: str, version_id: str) -> tuple[str, str]:
    """Patterns of the names of packages, and of source packages, that bring a driver, of whatever source."""
    found = _sets(os_id, version_id)
    sources_of = [pattern for names in found for pattern in names.sources]
    return _either(_patterns(found)), _either(sources_of)


@cache
def names_by_family() -> dict[str, dict[str, str]]:
    """By family of distributions, patterns of the names of packages: `driver`, a driver's of whatever source; of those `modules`, its
    kernel modules, and `own`, what may have a version line of its own."""
    file = drivers_file()
    tables: dict[str, dict[str, str]] = {}
    for family in dict.fromkeys(one.family for one in managed()):
        keys = {one.key for one in managed() if one.family == family}
        sets = [names for one in managed() if one.key in keys for names in _sets(one.id, one.version_id)]
        here = [entry for entry in file.package_sets if keys.intersection(entry.distributions)]
        more = [entry for entry in file.driver_names if entry.family == family]
        beside = [name for entry in here if entry.part in BESIDE for name in entry.packages if "nvidia" in name]
        added = [name for entry in more if entry.driver for name in entry.names]
        mine = _either([*_patterns(sets), *map(_pattern, beside), *added])
        none = _either(name for entry in more if not entry.driver for name in entry.names)
        own = {name for entry in here if entry.version == "own" for name in entry.packages if re.fullmatch(mine, name)}
        modules = [name for entry in here if entry.part in MODULES for name in (*entry.packages, *entry.alternatives)]
        tables[family] = {
            "driver": f"(?!({none})$)({mine})",
            "modules": _either(map(_pattern, modules)),
            "own": _either(map(_pattern, sorted(own))),
        }
    return tables


def _sets(os_id: str, version_id: str) -> list[DriverPackages]:
    kinds = [(source, build) for source in SOURCES for build in BUILDS]
    return [names for source, build in kinds if (names := driver_packages(os_id, version_id, source, build))]


def _patterns(found: Iterable[DriverPackages]) -> list[str]:
    rules = [one["name"] for names in found for kind in names.sets.values() for one in (*kind, *names.others)]
    conflicts = [pattern for names in found for pattern in names.conflicts]
    return [*map(_pattern, dict.fromkeys(rules)), *conflicts]


def _pattern(name: str) -> str:
    """The name of a rule as a pattern, with its places filled in."""
    return re.sub(r"\\{(\w+)\\}", lambda match: resolve.PLACES.get(match[1], r"[\d.]+"), re.escape(name))


def _either(patterns: Iterable[str]) -> str:
    return "|".join(dict.fromkeys(patterns)) or NONE
