"""A capability's desired state as the arguments of the modules gpuprov_packages and gpuprov_files: tasks name the capability alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuprov.resources import packages_of

TRANSACTION = ("install", "remove", "may_remove")
HOLDS = ("hold", "release")
FILES = {
    "files": "files",
    "programs": "programs",
    "role_files": "program",
    "units": "units",
    "absent": "absent",
    "lines": "lines",
    "enabled": "on",
    "disabled": "off",
}
"""Options of gpuprov_files, and what `resources.role_values` calls their values."""


def find_desired(variables: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """Return what is desired of a capability, or of a part of it (`rdma.ofed`), as the judge of this play worked it out.

    Raises KeyError.
    """
    values: Any = variables["gpuprov_judged"]["desired"]
    for name in place.split("."):
        values = values[name]
    return dict(values)


def package_arguments(values: Mapping[str, Any], action: str) -> dict[str, Any]:
    """Return the arguments for a transaction; empty where there is nothing to do.

    `action`: try, judge, install (without what is held after it), hold (that alone), or settle (both).
    """
    packages = packages_of(values)
    moves, holds = any(getattr(packages, name) for name in TRANSACTION), any(getattr(packages, name) for name in HOLDS)
    if not ((moves and action != "hold") or (holds and action in ("hold", "settle"))):
        return {}
    left_out = {"judge", "is_driver", *(TRANSACTION if action == "hold" else HOLDS if action != "settle" else ())}
    given = {name: getattr(packages, name) for name in packages.__struct_fields__ if name not in left_out}
    arguments = {name: [*value] if isinstance(value, tuple) else value for name, value in given.items() if value}
    return {**arguments, "action": action if action in ("try", "judge") else "settle"}


def file_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for files, and for units at each boot; empty where nothing is desired."""
    return {option: values[name] for option, name in FILES.items() if values.get(name)}
