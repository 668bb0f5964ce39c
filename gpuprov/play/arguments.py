"""A capability's desired state as the arguments of the modules gpuprov_packages and gpuprov_files: tasks only name the capability."""

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
"""Options of gpuprov_files, and the names of their values in `resources.role_values`."""


def find_desired(variables: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """Return the desired state of a capability, or of a part of it (`rdma.ofed`), as computed by the judge of this play.

    Raises KeyError.
    """
    values: Any = variables["gpuprov_judged"]["desired"]
    for name in place.split("."):
        values = values[name]
    return dict(values)


def package_arguments(values: Mapping[str, Any], action: str) -> dict[str, Any]:
    """Return the arguments for a transaction; empty if there is nothing to do.

    `action`: try, judge, install (without the holds after it), hold (only that), or settle (both).
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
    """Return the arguments for files, and for units at each boot; empty if nothing is desired."""
    return {option: values[name] for option, name in FILES.items() if values.get(name)}
