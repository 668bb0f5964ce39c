"""A driver of whatever source: which one is installed, and which packages bring one."""

from __future__ import annotations

import re
from functools import cache

from gpuprov.catalog.drivers.sets import BUILDS, SOURCES, driver_packages
from gpuprov.shared import resolve


def installed_driver(os_id: str, version_id: str, installed: dict[str, str]) -> str:
    """The package version of the installed driver, by its kernel modules, of whatever source; empty if there are none."""
    kinds = [(source, build) for source in SOURCES for build in BUILDS]
    found = [names for source, build in kinds if (names := driver_packages(os_id, version_id, source, build))]
    kernels = [name for names in found for name in resolve.kernel_package(names.sets, installed).values()]
    return installed[kernels[0]] if kernels else ""


@cache
def of_any_driver(os_id: str, version_id: str) -> tuple[str, str]:
    """Patterns of the names of packages, and of source packages, that bring a driver, of whatever source."""
    found = [names for s in SOURCES for b in BUILDS if (names := driver_packages(os_id, version_id, s, b))]
    rules = [one["name"] for names in found for kind in names.sets.values() for one in (*kind, *names.others)]
    place = r"\\{(\w+)\\}"
    mine = [
        re.sub(place, lambda m: resolve.PLACES.get(m[1], r"[\d.]+"), re.escape(name)) for name in dict.fromkeys(rules)
    ]
    conflicts = [pattern for names in found for pattern in names.conflicts]
    sources_of = [pattern for names in found for pattern in names.sources]
    return "|".join(dict.fromkeys([*mine, *conflicts])) or "(?!)", "|".join(dict.fromkeys(sources_of)) or "(?!)"
