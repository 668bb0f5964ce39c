"""Resources as the values that a role hands to its modules."""

from collections.abc import Iterable
from typing import Any

from gpuprov.host_code.files import PYTHON
from gpuprov.resources.file import PROGRAM, Absent, File, Lines, Program
from gpuprov.resources.unit import Unit

LISTS = ("absent", "lines", "on", "off", "run")


def role_values(resources: Iterable[object], *kinds: str) -> dict[str, Any]:
    """Collect the values of these kinds for a role's modules; every file must be of one of them.

    `files`, `programs`, and with an interpreter of the host's `units`: text by path; `program`: by path the file that
    the role carries; `absent`: paths of what should not be there; `lines`: `path`, `keys`, and whether a file is
    `made`; `on` and `off`: names of units by whether they start at a boot; `run`: of those that should run, `name` and
    the `state` that gpuprov_unit brings it to.
    """
    values: dict[str, Any] = {kind: [] if kind in LISTS else {} for kind in kinds}
    for resource in resources:
        if isinstance(resource, File):
            kind = "programs" if resource.mode == PROGRAM else "units" if PYTHON in resource.text else "files"
            values[kind][resource.path] = resource.text
        elif isinstance(resource, Program):
            values["program"][resource.path] = resource.name
        elif isinstance(resource, Absent):
            values["absent"].append(resource.path)
        elif isinstance(resource, Lines):
            values["lines"].append({"path": resource.path, "keys": dict(resource.keys), "made": resource.made})
        elif isinstance(resource, Unit):
            if resource.enabled is not None:
                values["on" if resource.enabled else "off"].append(resource.name)
            runs = resource.active or (resource.active is None and resource.reads and not resource.waits)
            if runs and not resource.reboot and "run" in values:
                values["run"].append(started(resource))
    return values


def started(unit: Unit, fix: str = "") -> dict[str, Any]:
    """Return the options of gpuprov_unit for a unit that should run: what reads files is restarted after them. fix:
    what to do where it does not."""
    more = {"fix": fix} if fix else {}
    if not unit.reads:
        return {"name": unit.name, "state": "restarted" if unit.outdated else "started", **more}
    more |= {key: text for key, text in (("differs", unit.outdated), ("process", unit.process)) if text}
    return {"name": unit.name, "state": "alive" if unit.active else "renewed", "files": list(unit.reads), **more}
