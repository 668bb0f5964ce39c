"""Units as they should be: whether they start at a boot, and whether they run. One comparison for the controller and for hosts."""

from __future__ import annotations

from typing import Iterable, Iterator, Mapping, NamedTuple, Sequence

from . import systemd
from .unit_files import SHOW, Loaded, parse_show

RUNS = ("active", "reloading")
STARTS = ("enabled", "alias", "generated")
"""States of `systemctl is-enabled` in which a unit starts at a boot. Not enabled-runtime, which is gone then, nor static or indirect,
which start where another unit wants them."""
NOW, NEXT_BOOT = "now", "next-boot"
VERBS = {"enabled": "enable", "disabled": "disable", "inactive": "stop"}
"""Command of systemctl by the state that is wanted."""


class Wanted(NamedTuple):
    """A unit. `enabled`: whether it starts at a boot, `active`: whether it runs; None: either is right. `outdated`: why it has to be
    started anew though it runs; empty where it need not be."""

    name: str
    enabled: bool | None = None
    active: bool | None = None
    outdated: str = ""


class Difference(NamedTuple):
    """State of one unit, and the state that is wanted. `moment`: NOW, or NEXT_BOOT where it comes to light then."""

    name: str
    moment: str
    before: str
    after: str


def compare(wanted: Wanted, found: Loaded) -> Iterator[Difference]:
    """Compare one unit. A unit whose file is gone does not start at a boot, and may still run."""
    known = found.load != "not-found"
    if wanted.enabled and not (known and found.file in STARTS):
        yield Difference(wanted.name, NEXT_BOOT, (known and found.file) or found.load, "enabled")
    elif wanted.enabled is False and known and found.file.startswith("enabled"):
        yield Difference(wanted.name, NEXT_BOOT, found.file, "disabled")
    runs = found.active in RUNS
    if wanted.active and not runs:
        yield Difference(wanted.name, NOW, found.active if known else found.load, "active")
    elif wanted.active and wanted.outdated:
        yield Difference(wanted.name, NOW, wanted.outdated, "started anew")
    elif wanted.active is False and runs:
        yield Difference(wanted.name, NOW, found.active, "inactive")


def differences(wanted: Iterable[Wanted], found: Mapping[str, Loaded]) -> list[Difference]:
    """Compare all of them, in their order."""
    return [one for unit in wanted for one in compare(unit, found.get(unit.name, Loaded()))]


def look(names: Sequence[str]) -> dict[str, Loaded]:
    """Read these units from systemd, by the given names, which may be aliases."""
    shown = systemd.systemctl(*SHOW, *names)[1].split("\n\n") if names else []
    return {name: unit for name, block in zip(names, shown) for unit in parse_show(block).values()}


def ensure(wanted: Sequence[Wanted], *, check: bool = False) -> list[Difference]:
    """Enable units, or disable and stop them; return what differed. Units that should run are started by gpuprov_unit. Raises OSError
    for what systemd refuses."""
    names = [one.name for one in wanted]
    there = look(names)
    if not check and any(unit.stale for unit in there.values()):
        systemd.systemctl("daemon-reload")
        there = look(names)
    found = [one for one in differences(wanted, there) if one.after in VERBS]
    for one in () if check else found:
        _have(VERBS[one.after], one.name)
    return found


def _have(verb: str, name: str) -> None:
    status, _, errors = systemd.systemctl(verb, "--", name)
    if status:
        raise OSError(f"systemctl {verb} {name} failed: {errors or f'it ended with {status}'}")
