"""A capability's desired state as the arguments of gpuprov's modules: the tasks of its role only name the
capability."""

from typing import Any

from gpuprov.core.safe_parse import Tree, TreeView
from gpuprov.resources import packages_of

TRANSACTION = ("install", "remove", "may_remove")
HOLDS = ("hold", "release")
# Options of gpuprov_files, and the names of their values in `resources.role_values`.
FILES = {
    "files": "files",
    "programs": "programs",
    "role_files": "program",
    "units": "units",
    "absent": "absent",
    "lines": "lines",
    "enabled": "on",
    "disabled": "off",
    "problem": "problem",
}

# The result of a task of which nothing is desired: the host is not contacted.
NOT_NEEDED = {"changed": False, "skipped": True, "msg": "not needed on this host"}


def find_desired(variables: TreeView, place: str) -> Tree:
    """Return the desired state of a capability, or of a part of it (`rdma.ofed`), as computed by the judge of this
    play.

    Raises KeyError.
    """
    values: Any = variables["gpuprov_judged"]["desired"]
    for name in place.split("."):
        values = values[name]
    return dict(values)


def task_arguments(variables: TreeView, capability: str, task: str) -> Tree | None:
    """Return what is desired of a task, by its key; None if it is not needed. Of a list, one item is the task's, as its
    loop says."""
    arguments = find_desired(variables, capability)["tasks"].get(task)
    if isinstance(arguments, list):
        arguments = variables["item"]
    return None if arguments is None else dict(arguments)


def package_arguments(values: TreeView, action: str) -> Tree:
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


def file_arguments(values: TreeView, capability: str) -> Tree:
    """Return the arguments for files, and for units at each boot; empty if nothing is desired. A reason for a reboot is
    one also if it is empty: it takes an earlier one back."""
    reboot = {"reboot": {capability: values["reboot"]}} if "reboot" in values else {}
    return {**{option: values[name] for option, name in FILES.items() if values.get(name)}, **reboot}
