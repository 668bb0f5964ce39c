"""What the probe of gpuprov's own files prints on a host that has them as they are written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from gpuprov.capabilities import BY_NAME, CAPABILITIES
from gpuprov.capabilities.base import Capability, Context
from gpuprov.capabilities.gds.fragment import Gds
from gpuprov.capabilities.generated import asks, desired
from gpuprov.catalog import fabric
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.host_code import json_members
from gpuprov.host_code.files import PYTHON
from gpuprov.host_code.unit_files import derive_unit, is_drop_in
from gpuprov.resources import Absent, File, Lines, Resource, Unit
from gpuprov.spec.model import HostSpec

INTERPRETER = "/usr/bin/python3"
ON = (
    *("nvidia-persistenced.service", "gpuprov-readings.timer", "gpuprov-gpudirect.service"),
    *("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service"),
    *("nvidia-dcgm.service", "nvidia-fabricmanager.service"),
    *("docker.service", "containerd.service", "crio.service"),
)
"""Units of the good host that run, and start at a boot."""


class Also(str):
    """Lines that a host's output has after those of what is as it should be."""


def unit(name: str, active: str, file: str, said: str = "") -> Also:
    """How systemd has a unit, and what it printed last where it failed; of one without a file systemd has none."""
    load = "loaded" if file else "not-found"
    folder = "/etc/systemd/system" if name.startswith("gpuprov-") else "/usr/lib/systemd/system"
    fragment = f"{folder}/{name}" if file else ""
    shown = f"Id={name}\nLoadState={load}\nFragmentPath={fragment}\nActiveState={active}\nUnitFileState={file}\n\n"
    return Also("".join([*(f"unit|{line}\n" for line in shown.split("\n")[:-1]), f"said|{name}|{said}\n" * bool(said)]))


def with_lines(path: str, *lines: str) -> str:
    """A file of others with these lines; of a JSON document each is the member of a path."""
    if path.endswith(json_members.SUFFIX):
        lines = tuple(json_members.with_keys("", dict(line.split("=", 1) for line in lines)).splitlines())
    return "\n".join([f"entry|f|644|0|0|{path}", f"lines|{path}", *(f"text|{line}" for line in lines)])


def resources(capability: Capability, ctx: Context[Any]) -> list[Resource]:
    """What a host with these facts should have; nothing where nobody can say it."""
    try:
        return desired(capability, ctx)
    except ProbeFailed:
        return []


def own(wanted: list[Resource], changed: Mapping[str, str] | None = None, *more: str) -> str:
    """The probe's output on a host that has all of these as they should be. `changed`: other lines of a path (empty: it
    is not there); `more`: lines at the end."""
    files = [one for one in wanted if isinstance(one, File)]
    lines = ["@contents", *(f"none|{one.path}" for one in wanted if isinstance(one, Absent))]
    for one in files:
        said = one.text.replace(PYTHON, INTERPRETER)
        given = f"entry|f|{one.mode:o}|0|0|{one.path}\nsum|{hashlib.sha256(said.encode()).hexdigest()}  {one.path}"
        lines.append((changed or {}).get(one.path, given) or f"none|{one.path}")
        if PYTHON in one.text:
            lines += [f"python|{one.path}|{INTERPRETER}", f"sound|755|0|{INTERPRETER}"]
    for shared in (one for one in wanted if isinstance(one, Lines)):
        given = with_lines(shared.path, *(f"{key}={value}" for key, value in shared.keys.items()))
        lines.append((changed or {}).get(shared.path, given) or f"none|{shared.path}")
    states = {one.name: one for one in wanted if isinstance(one, Unit)}
    for name in dict.fromkeys([*filter(None, (derive_unit(one.path) for one in files)), *states]):
        mine = [one.path for one in files if derive_unit(one.path) == name]
        whole = [path for path in mine if not is_drop_in(path)]
        state = states.get(name, Unit(name=name, enabled=True, active=True))
        shown = (
            f"Id={name}",
            "LoadState=loaded",
            f"FragmentPath={whole[0] if whole else f'/usr/lib/systemd/system/{name}'}",
            f"DropInPaths={' '.join(path for path in mine if is_drop_in(path))}",
            "NeedDaemonReload=no",
            f"ActiveState={'inactive' if state.active is False else 'active'}",
            f"UnitFileState={'disabled' if state.enabled is False else 'enabled'}",
            "",
        )
        lines += [f"unit|{line}" for line in shown]
    return "\n".join([*lines, *more]) + "\n"


@cache
def nothing() -> str:
    """A host of whose files gpuprov has written none, with Fabric Manager's own; ON are on."""
    blocks = {one.name: one.fragment() for one in CAPABILITIES if one.resources}
    blocks["gds"] = Gds(toolkit="12.8", compat_mode="deny")  # whose file depends on the release
    asked = asks(HostSpec(name="gpu1", capabilities=blocks), BY_NAME)
    units = [
        unit(name, "active", "enabled") if name in ON else unit(name, "inactive", "")
        for name in asked["units"].splitlines()
    ]
    config = fabric.get_configuration_file()
    paths = [
        with_lines(path, "FABRIC_MODE=0", "LOG_LEVEL=4") if path == config else f"none|{path}"
        for path in asked["paths"].splitlines()
    ]
    return "\n".join(["@contents", *paths, *units]) + "\n"


def whole(host: HostSpec, facts: Facts) -> str:
    """A host that has all that its spec asks for as it should be."""
    wanted: list[Resource] = []
    for name, block in host.capabilities.items():
        if BY_NAME[name].resources:
            wanted += resources(BY_NAME[name], Context(host, block, facts))
    return own(wanted)
