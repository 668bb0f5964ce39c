"""Resources as the values that a role hands to its modules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpuprov.onhost.files import PYTHON
from gpuprov.resources.file import PROGRAM, Absent, File, Lines, Program
from gpuprov.resources.unit import Unit

LISTS = ("absent", "lines", "on", "off", "run")


def role_values(resources: Iterable[object], *kinds: str) -> dict[str, Any]:
    """Collect the values of these kinds for a role's modules; every file must be of one of them.

    `files`, `programs`, and with an interpreter of the host's `units`: text by path; `program`: by path the file that the role
    carries; `absent`: paths of what should not be there; `lines`: `path`, `keys`, and whether a file is `made`; `on` and
    `off`: names of units by whether they start at a boot; `run`: of those that should run, `name` and the `state` that gpuprov_unit
    brings it to.
    """
    values: dict[str, Any] = {kind: [] if kind in LISTS else {} for kind in kinds}
    for one in resources:
        if isinstance(one, File):
            kind = "programs" if one.mode == PROGRAM else "units" if PYTHON in one.text else "files"
            values[kind][one.path] = one.text
        elif isinstance(one, Program):
            values["program"][one.path] = one.name
        elif isinstance(one, Absent):
            values["absent"].append(one.path)
        elif isinstance(one, Lines):
            values["lines"].append({"path": one.path, "keys": dict(one.keys), "made": one.made})
        elif isinstance(one, Unit):
            if one.enabled is not None:
                values["on" if one.enabled else "off"].append(one.name)
            if one.active and not one.reboot and "run" in values:
                values["run"].append({"name": one.name, "state": "restarted" if one.outdated else "started"})
    return values
