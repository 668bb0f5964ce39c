"""Reads and sets sysctls, hugepages and governors by the names of a receipt."""

from __future__ import annotations

import os
import re
from typing import Sequence

from .. import running_kernel
from ..at_boot import governor, program
from ..lasting import Lasting, Place
from .kinds import find_key

PAGES = "/sys/kernel/mm/hugepages"
# KiB of the units of hugepages, whose folders are named by their size in KiB.
KIB = {"M": 1 << 10, "G": 1 << 20}


def read_files(settings: Sequence[Lasting]) -> dict[Place, str]:
    """Return the values of those settings that have a file here."""
    values: dict[Place, str] = {}
    for setting in settings:
        path = find_path(setting)
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                values[setting.key] = " ".join(file.read().split())
    return values


def put_files(settings: Sequence[Lasting]) -> dict[Place, str]:
    """Write the values before; return the errors."""
    return {setting.key: program.write(find_path(setting), setting.before) for setting in settings}


def find_path(setting: Lasting) -> str:
    """Return the file of the kernel that has this setting."""
    if setting.check == "kernel.governor":
        return os.path.join(governor.POLICIES, os.path.basename(setting.device), "scaling_governor")
    if setting.check != "kernel.hugepages":
        return running_kernel.find_sysctl_path(setting.name)
    # The kernel has a folder for each size: /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages.
    size = re.fullmatch(r"hugepages (\d+)([MG])", find_key(setting))
    kib = int(size[1]) * KIB[size[2]] if size else 0
    return os.path.join(PAGES, f"hugepages-{kib}kB", "nr_hugepages")
