"""What the probe of gpuprov's own files prints on a host that has them as they are written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from gpuprov.capabilities import BY_NAME, CAPABILITIES
from gpuprov.capabilities.base import Capability, Context
from gpuprov.capabilities.written import File, asks, files
from gpuprov.onhost.files import PYTHON
from gpuprov.onhost.unit_files import is_drop_in, unit_of
from gpuprov.probe.base import Facts, ProbeFailed
from gpuprov.spec.model import HostSpec

INTERPRETER = "/usr/bin/python3"


def absent(capability: Capability, ctx: Context[Any]) -> list[str]:
    """Files that should not be there, and are not."""
    assert capability.written
    try:
        return list(capability.written.make(ctx).get("absent", ()))
    except ProbeFailed:
        return []


def written(capability: Capability, ctx: Context[Any]) -> list[File]:
    """The files of a host with these facts; none where nobody can say them."""
    assert capability.written
    try:
        return files(capability, capability.written.make(ctx))
    except ProbeFailed:
        return []


def text(wanted: list[File], changed: Mapping[str, str] | None = None, *more: str, absent: Iterable[str] = ()) -> str:
    """The probe's output. `changed`: other lines of a path (empty: it is not there); `more`: lines at the end."""
    lines, units = ["@contents", *(f"none|{path}" for path in absent)], dict[str, list[File]]()
    for one in wanted:
        said = (one.text or "").replace(PYTHON, INTERPRETER)
        given = f"entry|f|{one.mode:o}|0|0|{one.path}\nsum|{hashlib.sha256(said.encode()).hexdigest()}  {one.path}"
        lines.append((changed or {}).get(one.path, given) or f"none|{one.path}")
        if PYTHON in (one.text or ""):
            lines += [f"python|{one.path}|{INTERPRETER}", f"sound|755|0|{INTERPRETER}"]
        if unit := unit_of(one.path):
            units.setdefault(unit, []).append(one)
    for name, mine in units.items():
        whole = [one.path for one in mine if not is_drop_in(one.path)]
        drop_ins = " ".join(one.path for one in mine if is_drop_in(one.path))
        fragment = whole[0] if whole else f"/usr/lib/systemd/system/{name}"
        shown = (
            "Id=" + name,
            "LoadState=loaded",
            f"FragmentPath={fragment}",
            f"DropInPaths={drop_ins}",
            "NeedDaemonReload=no",
            "",
        )
        lines += [f"unit|{line}" for line in shown]
    return "\n".join([*lines, *more]) + "\n"


@cache
def nothing() -> str:
    """A host on which gpuprov has written nothing."""
    blocks = {one.name: one.fragment() for one in CAPABILITIES if one.written}
    asked = asks(HostSpec(name="gpu1", capabilities=blocks), BY_NAME)
    return "\n".join(["@contents", *(f"none|{path}" for path in asked["paths"].splitlines())]) + "\n"


def whole(host: HostSpec, facts: Facts) -> str:
    """A host that has all files of its spec as they are written."""
    files: list[File] = []
    gone: list[str] = []
    for name, block in host.capabilities.items():
        if BY_NAME[name].written:
            ctx = Context(host, block, facts)
            files += written(BY_NAME[name], ctx)
            gone += absent(BY_NAME[name], ctx)
    return text(files, absent=gone)
