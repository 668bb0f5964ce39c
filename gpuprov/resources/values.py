"""Resources as the values that a role hands to its modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gpuprov.onhost.files import PYTHON
from gpuprov.resources.file import PROGRAM, Absent, File, Program, Shared
from gpuprov.resources.unit import Unit

LISTS = ("absent", "on", "off", "run")


def role_values(resources: Iterable[object], *kinds: str) -> dict[str, Any]:
    """Collect the values of these kinds for a role's modules; every file must be of one of them.

    `files`, `programs`, and with an interpreter of the host's `units`: text by path; `program`: by path the file that the role
    carries; `absent`: paths of what should not be there; `on` and `off`: names of units by whether they start at a boot; `run`: of
    those that should run, `name` and the `state` that gpuprov_unit brings it to.
    """
    values: dict[str, Any] = {kind: [] if kind in LISTS else {} for kind in kinds}
    for one in resources:
        if isinstance(one, File) and one.text is not None:
            kind = "programs" if one.mode == PROGRAM else "units" if PYTHON in one.text else "files"
            values[kind][one.path] = one.text
        elif isinstance(one, Program):
            values["program"][one.path] = one.name
        elif isinstance(one, Absent):
            values["absent"].append(one.path)
        elif isinstance(one, Unit):
            if one.enabled is not None:
                values["on" if one.enabled else "off"].append(one.name)
            if one.active and not one.reboot and "run" in values:
                values["run"].append({"name": one.name, "state": "restarted" if one.outdated else "started"})
    return values


def from_values(
    values: Callable[[Any], Mapping[str, Any]], shared: Callable[[Any], Iterable[str]] = lambda _ctx: ()
) -> Callable[[Any], Iterator[File | Program | Absent | Shared]]:
    """The resources among the values that a role gets: `files`, `programs`, `units` by path, `program`, files that it carries,
    `judged`, files whose text another check compares, and `absent`; and files of others that it sets lines in."""

    def desired(ctx: Any) -> Iterator[File | Program | Absent | Shared]:
        made = values(ctx)
        yield from (File(path, text) for path, text in made.get("files", {}).items())
        yield from (File(path, None) for path in made.get("judged", ()))
        yield from (File(path, text, 0o755) for path, text in made.get("programs", {}).items())
        yield from (File(path, text) for path, text in made.get("units", {}).items())
        yield from (Program(path, name) for path, name in made.get("program", {}).items())
        yield from (Absent(path) for path in made.get("absent", ()))
        yield from (Shared(path) for path in shared(ctx))

    return desired
