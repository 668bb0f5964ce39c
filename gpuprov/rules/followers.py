"""Packages that must have the driver's version under a name of their own: Fabric Manager, nvidia-imex, DCGM's NVSwitch
library.

Standard library only.

DCGM tries NVSDM first and then NSCQ: modules/nvswitch/DcgmModuleNvSwitch.cpp of https://github.com/NVIDIA/DCGM. NSCQ
queries the NVSwitch driver, whose version must match its own; NVSDM queries the switches of Blackwell boards through
InfiniBand, which no NVSwitch driver handles.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

DCGM = "dcgm"
FABRIC_MANAGER = "fabric_manager"
LIBRARIES = {"nscq": "libnvidia-nscq", "nvsdm": "libnvsdm"}
"""Base name of the library's file, by the part of the catalogue that has its packages."""

LIBRARY_FILES = tuple(
    f"{folder}/{name}"
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
    for name in ("libnvidia-nscq.so.2", "libnvsdm.so.1")
)
"""Libraries that DCGM's host engine loads, once, when its module starts: sdk/nvidia/nscq/dlwrap/posix.c and
sdk/nvidia/nvsdm/loader/nvsdm_loader.cpp of https://github.com/NVIDIA/DCGM"""


def of_tray(imex: Mapping[str, Any]) -> bool:
    """True if nvidia-imex is used in place of Fabric Manager."""
    return bool(imex.get("nodes")) or imex.get("service", "enabled") == "disabled"


def wants_library(setting: str, capabilities: Collection[str]) -> bool:
    """True if the library is part of the set: `auto` follows DCGM, its only user."""
    return setting == "always" or (setting == "auto" and DCGM in capabilities)


def library(gpus: Iterable[str], known: Mapping[str, Any]) -> str:
    """Return the library for boards with these GPUs (`10de:2330`): a key of LIBRARIES; empty if none is known."""
    return next((known["library"][gpu] for gpu in gpus if gpu in known["library"]), "")


def followers(gpus: Iterable[str], capabilities: Collection[str], imex: Mapping[str, Any], setting: str,
              known: Mapping[str, Any], platform: str) -> dict[str, Any]:  # fmt: skip
    """Return `{rules, names}`: for each package its rules, as `gpuprov.rules.resolve` takes them, and all names to look
    up in an index.

    imex, asked: the fields `imex` and `query_library` of fabric_manager. known: the catalogue's tables by platform."""
    if FABRIC_MANAGER not in capabilities:
        return {"rules": [], "names": []}
    parts = ["imex_"] if of_tray(imex) else [""]
    prefix = "" if of_tray(imex) or not wants_library(setting, capabilities) else library(gpus, known)
    # A platform may have no such package. Nobody named it in the spec, so that nothing is missing.
    if prefix and (known[f"{prefix}_rules"].get(platform) or setting == "always"):
        parts.append(f"{prefix}_")
    rules = [known[f"{part}rules"].get(platform, []) for part in parts]
    return {"rules": rules, "names": [known[f"{part}names"].get(platform, []) for part in parts]}
