"""Reasons why this host waits for a reboot, one file for each capability, in /run, so that a reboot deletes them."""

from __future__ import annotations

import os
from typing import Sequence

from .files import read, remove, write

FOLDER = "/run/gpuprov/reboot-required.d"


def read_reasons() -> dict[str, str]:
    """Return the reasons by capability; the first line of each file."""
    try:
        names = sorted(name for name in os.listdir(FOLDER) if not name.startswith("."))
    except FileNotFoundError:
        return {}
    files = {name: f"{FOLDER}/{name}" for name in names}
    return {name: read(path).partition("\n")[0] for name, path in files.items() if os.path.isfile(path)}


def keep(capability: str, reason: str, *, check: bool = False) -> tuple[str, str]:
    """Store the reason of this capability, or remove it if it is empty. Return the file's text before and after."""
    if not capability.replace("_", "").isalnum():
        raise ValueError(f'capability is "{capability}"; allowed: letters, digits and underscores')
    path = f"{FOLDER}/{capability}"
    flat = " ".join(reason.split())
    before, after = read(path), f"{flat}\n" if flat else ""
    if before != after and not check:
        write(path, after) if after else remove(path)
    return before, after


def describe_forbidden(lines: Sequence[str]) -> str:
    """Return the message for a host that must be rebooted and may not."""
    why = "; ".join(lines)
    return (
        f'reboot required: {why}. gpuprov.reboot is "never": reboot the host yourself, or allow it with reboot: '
        "if-needed"
    )
