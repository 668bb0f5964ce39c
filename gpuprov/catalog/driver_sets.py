"""The driver's packages on one distribution, in the form that the resolver and the roles take."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from gpuprov.catalog.gpus import Flavour, gpus
from gpuprov.catalog.packages import find_distribution, package_sets

MANAGED = {"debian12": "debian", "debian13": "debian"}
"""Distributions whose driver gpuprov installs, and the archive it comes from."""

PARTS = ("kernel-modules", "firmware", "user-space", "mps")
"""Parts that must share one version; the kernel modules first."""

SOURCES = {"debian": ("nvidia-graphics-drivers", "nvidia-open-gpu-kernel-modules")}
"""Source packages that a driver set is built from: whatever else of them is installed moves along with the set."""

CONFLICTS = {
    # NVIDIA's own repository: the metapackages that drag a driver in (not cuda-toolkit and its kind, which bring none), and
    # the driver's new names; Debian's legacy and tesla branches: other names for the same files.
    "debian": (
        r"cuda(-runtime|-demo-suite)?(-\d+-\d+)?",
        r"cuda-drivers.*",
        r"nvidia-open(-\d+)?",
        r"nvidia-driver-(pinning|open|\d+).*",
        r"nvidia-(tesla|legacy)-.*",
        r"libnvidia-compute.*",
    ),
}
"""Patterns of package names that bring another driver, unless they are built from SOURCES."""

GPU_SERVICES = [
    "nvidia-persistenced.service",
    "nvidia-dcgm.service",
    "dcgm.service",
    "dcgm-exporter.service",
    "nvidia-fabricmanager.service",
]
"""Services that hold GPUs, may be stopped for a driver change, and are started again afterwards. Fabric Manager's guide wants
DCGM and itself stopped before a reset; nvidia-persistenced keeps the module in use."""

ANY_BRANCH = "580"
"""Names in Debian's archive carry no branch, so any branch finds them."""


class DriverPackages(msgspec.Struct, frozen=True, kw_only=True):
    """`proprietary` and `open`: names that must share one version, kernel modules first. `extra`: their own version line.

    `modules` is the kernel module's name on disk by flavour, as modprobe and modinfo want it.
    """

    proprietary: tuple[str, ...]
    open: tuple[str, ...]
    extra: tuple[str, ...]
    sources: tuple[str, ...]
    conflicts: tuple[str, ...]
    modules: dict[str, str]


@cache
def driver_packages(os_id: str, version_id: str) -> DriverPackages | None:
    """The names for a distribution as /etc/os-release has it; None where gpuprov does not manage the driver."""
    distribution = find_distribution(os_id, version_id)
    if distribution is None or distribution.key not in MANAGED:
        return None
    key, origin = distribution.key, MANAGED[distribution.key]

    def names(parts: tuple[str, ...], flavour: Flavour | None) -> tuple[str, ...]:
        sets = [s for part in parts for s in package_sets(key, part, ANY_BRANCH, origin=origin, flavour=flavour)]
        return tuple(name for entry in sets for name in entry.packages)

    kernel: tuple[Flavour, ...] = ("proprietary", "open")
    return DriverPackages(
        proprietary=names(PARTS, "proprietary"),
        open=names(PARTS, "open"),
        extra=names(("modprobe",), None),
        sources=SOURCES[origin],
        conflicts=CONFLICTS[origin],
        modules={f: package_sets(key, PARTS[0], ANY_BRANCH, origin=origin, flavour=f)[0].module_name for f in kernel},
    )


def supported_distributions() -> tuple[str, ...]:
    """`debian 12` and its like, for messages and preflight."""
    return tuple(f"{key.rstrip('0123456789')} {key.lstrip('abcdefghijklmnopqrstuvwxyz')}" for key in MANAGED)


def all_driver_packages() -> dict[str, dict[str, Any]]:
    """`driver_packages` of every managed distribution by `id-version`, for the roles."""
    result: dict[str, dict[str, Any]] = {}
    for name in supported_distributions():
        os_id, version = name.split()
        result[f"{os_id}-{version}"] = msgspec.to_builtins(driver_packages(os_id, version))
    return result


@cache
def kernel_module_table() -> dict[str, str]:
    """What each GPU's PCI id (`10de:2330`) needs: `open-required`, `proprietary-required` or `either`."""
    return {entry.id: gpu.kernel_modules.flavour for gpu in gpus() for entry in gpu.pci_ids}
