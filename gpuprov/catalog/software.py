"""NVIDIA's software for GPUs, by the names of its packages: all that the catalogue knows, from any source."""

import re
from functools import cache

from gpuprov.catalog import container_toolkit, dcgm, gds
from gpuprov.catalog.cuda import packages as toolkits
from gpuprov.catalog.cuda.packages import find_toolkit
from gpuprov.catalog.drivers.any import build_pattern, group_patterns_by_family, join_patterns
from gpuprov.catalog.drivers.data import read_drivers_file
from gpuprov.catalog.rdma.gpudirect import read_gpudirect_file

# Parts of package sets that build modules, and belong to the distribution; of the last, `group_patterns_by_family` has
# those that are NVIDIA's.
TOOLS = ("compiler", "dkms", "kernel-headers", "support")
# A client of X, on which programs that are not NVIDIA's depend:
# https://packages.debian.org/bookworm/libhwloc-plugins
CLIENT = r"(lib|nvidia-lib)xnvctrl.*"
# Packages that Ubuntu's precompiled modules are linked with:
# https://packages.ubuntu.com/noble/linux-modules-nvidia-580-server-generic
SIGNATURES = "linux-signatures-nvidia-.*"


@cache
def build_software_pattern(family: str) -> re.Pattern[str]:
    """Return the pattern of the names of all packages of NVIDIA's software for GPUs on a family of distributions."""
    drivers, kits = read_drivers_file(), toolkits.read_toolkits_file()
    sets = [entry for entry in drivers.package_sets if entry.part not in TOOLS]
    named = [name for entry in sets for name in (*entry.packages, *entry.alternatives)]
    named += [name for row in kits.libraries for name in (*row.run, *row.build, *row.beside)]
    named += [*gds.list_other_packages(), *container_toolkit.PACKAGES, *container_toolkit.OLD_PACKAGES, dcgm.EXPORTER]
    named += [name for row in read_gpudirect_file().gdrcopy for name in (*row.packages, *row.tests)]
    patterns = [group_patterns_by_family().get(family, {}).get("driver", ""), SIGNATURES, *dcgm.PATTERNS.values()]
    patterns += [name for row in drivers.driver_names for name in row.names]
    patterns += [row.pattern for row in (*kits.metapackages, *kits.foreign)]
    whole = join_patterns([*map(build_pattern, named), *(f"({pattern})" for pattern in patterns if pattern)])
    return re.compile(f"(?!(?i:{CLIENT})\\Z)({whole})")


def is_software(name: str, family: str, *, of_driver: bool = False) -> bool:
    """Return whether a package is NVIDIA's software for GPUs. of_driver: it is built from a driver's source."""
    if of_driver and not re.fullmatch(CLIENT, name, re.IGNORECASE):
        return True
    return bool(find_toolkit(name) or build_software_pattern(family).fullmatch(name))


@cache
def list_beside() -> tuple[str, ...]:
    """Return packages that depend on NVIDIA's and are there for them alone: Debian's switch between libraries of GL."""
    support = [name for entry in read_drivers_file().package_sets if entry.part == "support" for name in entry.packages]
    return tuple(dict.fromkeys(name for name in support if "nvidia" not in name))
