"""What NVIDIA's runtime must have of the one that an engine uses without it; nvidia-ctk copies what the main file has of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAME = "nvidia"
DEFAULTS = {"containerd": "default_runtime_name", "crio": "default_runtime"}
COPIED = {"containerd": ("options", "SystemdCgroup"), "crio": ("monitor_path",)}
"""Without the first, pods are outside the kubelet's slices and limits. Without the second, cri-o looks for conmon on its PATH, where
its own packages have none, and does not start: https://github.com/NVIDIA/nvidia-container-toolkit/issues/681"""
ON_PATH = ("", *(f"{folder}/{kind}" for folder in ("/usr/local", "/usr", "") for kind in ("sbin", "bin")))


def at(config: object, *path: str, default: object = None) -> Any:
    """The value at a path; None, or the default, where there is none."""
    for key in path:
        config = config.get(key, default) if isinstance(config, Mapping) else default
    return config


def copied(name: str, section: object) -> tuple[str, Any]:
    """The runtime, and its value of COPIED; empty where NVIDIA's needs none. `section`: where the engine has its runtimes."""
    for one in (str(at(section, DEFAULTS[name])), "runc", "crun"):
        if one != NAME and (table := at(section, "runtimes", one)):
            value = at(table, *COPIED[name])
            elsewhere = isinstance(value, str) and value.rpartition("/")[0] not in ON_PATH
            return (one, value) if value is True or elsewhere else ("", None)
    return "", None


def uncopied(name: str, section: object) -> str:
    """What NVIDIA's runtime lacks of it, in words; empty where there is no such runtime, or nothing is missing."""
    (other, _), mine = copied(name, section), at(section, "runtimes", NAME)
    return (
        f"runtime {NAME} has no {COPIED[name][-1]}, which {other} has"
        if other and mine and not at(mine, *COPIED[name])
        else ""
    )
