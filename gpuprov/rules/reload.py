"""Compares the loaded driver with the desired one, and names its parameters. Standard library only."""

import re
from collections.abc import Mapping
from typing import NamedTuple

# The one parameter that the module shows under another name than it takes:
# https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/kernel-open/nvidia/nv-reg.h (CUSTOM_NAME)
PARAMETER_NAMES = {"RmProfilingAdminOnly": "NVreg_RestrictProfilingToAdminUsers"}


def shown_name(name: str) -> str:
    """Return the name by which /proc/driver/nvidia/params shows the parameter `name` (with or without the prefix
    NVreg_)."""
    bare = name.removeprefix("NVreg_")
    return PARAMETER_NAMES.get(bare, f"NVreg_{bare}")


def shown_value(value: object) -> str:
    """Return a parameter's value as the module shows it: C notation (0660, 0x10, -1) becomes an unsigned 32-bit
    decimal."""
    text = str(int(value)) if isinstance(value, bool) else str(value)
    match = re.fullmatch(r"(-?)(?:0x([0-9a-f]+)|0([0-7]+)|([0-9]+))", text.lower())
    if not match:
        return text.strip('"')
    sign, hexadecimal, octal, decimal = match.groups()
    number = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else int(decimal)
    return str((-number if sign else number) % 2**32)


class Driver(NamedTuple):
    """A driver in the kernel, or one that a spec asks for."""

    version: str
    flavour: str
    parameters: Mapping[str, str | int | bool]


def reload_reasons(loaded: Driver, desired: Driver) -> list[str]:
    """Return why the loaded driver must leave the kernel; nothing if it may stay or none is loaded. A parameter that
    the loaded module does not show is no reason."""
    if not loaded.version:
        return []
    reasons = []
    for what in ("version", "flavour"):
        actual, expected = getattr(loaded, what), getattr(desired, what)
        if expected and actual != expected:
            reasons.append(f"the loaded driver's {what} is {actual}, {expected} is wanted")
    shown = {shown_name(name): shown_value(value) for name, value in loaded.parameters.items()}
    for name, value in desired.parameters.items():
        if name in shown and shown[name] != shown_value(value):
            reasons.append(f"the loaded module has {name}={shown[name]}, {shown_value(value)} is wanted")
    return reasons
