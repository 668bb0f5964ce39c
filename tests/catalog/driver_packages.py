"""Packages of the driver, of all platforms and sources."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuprov.catalog.distributions import list_managed
from gpuprov.catalog.drivers.sets import DriverPackages, build_packages, build_precompiled, list_sources


def list_driver_packages() -> dict[str, dict[str, Any]]:
    """Return the packages by platform (the catalogue's key of a distribution) and source; those of a host with
    precompiled modules as `SOURCE-precompiled`."""
    tables: dict[str, dict[str, Any]] = {}
    for entry in list_managed():
        known: dict[str, DriverPackages] = {source: build_packages(entry, source) for source in list_sources(entry)}
        more = {f"{source}-precompiled": build_precompiled(entry, source) for source in list_sources(entry)}
        known |= {key: names for key, names in more.items() if names}
        tables[entry.key] = {key: msgspec.to_builtins(names) for key, names in known.items()}
    return tables
