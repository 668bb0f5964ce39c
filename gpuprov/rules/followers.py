"""Packages that must have the driver's version under a name of their own: Fabric Manager, nvidia-imex, DCGM's NVSwitch
library.

Standard library only.

DCGM tries NVSDM first and then NSCQ: modules/nvswitch/DcgmModuleNvSwitch.cpp of https://github.com/NVIDIA/DCGM. NSCQ
queries the NVSwitch driver, whose version must match its own; NVSDM queries the switches of Blackwell boards through
InfiniBand, which no NVSwitch driver handles.
"""

from collections.abc import Collection

DCGM = "dcgm"
FABRIC_MANAGER = "fabric_manager"
# Base name of the library's file, by the part of the catalogue that has its packages.
LIBRARIES = {"nscq": "libnvidia-nscq", "nvsdm": "libnvsdm"}

# Libraries that DCGM's host engine loads, once, when its module starts: sdk/nvidia/nscq/dlwrap/posix.c and
# sdk/nvidia/nvsdm/loader/nvsdm_loader.cpp of https://github.com/NVIDIA/DCGM
LIBRARY_FILES = tuple(
    f"{folder}/{name}"
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
    for name in ("libnvidia-nscq.so.2", "libnvsdm.so.1")
)


def wants_library(setting: str, capabilities: Collection[str]) -> bool:
    """True if the library is part of the set: `auto` follows DCGM, its only user."""
    return setting == "always" or (setting == "auto" and DCGM in capabilities)
