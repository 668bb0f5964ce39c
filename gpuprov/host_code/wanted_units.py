"""Desired states of units: whether they start at boot, and whether they run. Both the controller and hosts compare them
here."""

from __future__ import annotations

from typing import Collection, Iterable, Iterator, Mapping, NamedTuple, Sequence

from . import systemd
from .unit_files import SHOW, Loaded, is_among, parse_show

RUNS = ("active", "reloading")
# States of `systemctl is-enabled` in which a unit starts at boot. Not enabled-runtime, which is lost then, nor static
# or indirect, which start if another unit wants them.
STARTS = ("enabled", "alias", "generated")
# States of a unit that nothing can start: for good, and until the next boot, which finds /run empty.
MASKED, BRIEFLY = "masked", "masked-runtime"
NOW, NEXT_BOOT = "now", "next-boot"
# systemctl's command by the desired state.
VERBS = {"enabled": "enable", "disabled": "disable", "inactive": "stop"}


class Wanted(NamedTuple):
    """A unit. `enabled`: whether it starts at boot, `active`: whether it runs; None: either is right. `outdated`: why
    it has to be restarted though it runs; "" if it need not be."""

    name: str
    enabled: bool | None = None
    active: bool | None = None
    outdated: str = ""


class Difference(NamedTuple):
    """The actual and the desired state of one unit."""

    name: str
    # NOW, or NEXT_BOOT if it only shows then.
    moment: str
    before: str
    after: str


def compare(desired: Wanted, actual: Loaded) -> Iterator[Difference]:
    """Compare one unit. A unit without a file does not start at boot, and may still run."""
    known = actual.load != "not-found"
    briefly = actual.file == BRIEFLY
    returns = briefly and actual.wanted
    if desired.enabled and not (known and (actual.file in STARTS or returns)):
        yield Difference(desired.name, NEXT_BOOT, (known and actual.file) or actual.load, "enabled")
    elif desired.enabled is False and known and (actual.file.startswith("enabled") or returns):
        yield Difference(desired.name, NEXT_BOOT, actual.file, "disabled")
    runs = actual.active in RUNS
    if desired.active and (briefly or not runs):
        yield Difference(desired.name, NOW, BRIEFLY if briefly else actual.active if known else actual.load, "active")
    elif runs and desired.active is not False and desired.outdated:
        yield Difference(desired.name, NOW, desired.outdated, "started anew")
    elif desired.active is False and runs:
        yield Difference(desired.name, NOW, actual.active, "inactive")


def list_differences(desired: Iterable[Wanted], actual: Mapping[str, Loaded]) -> list[Difference]:
    """Compare all of them, in their order."""
    return [difference for unit in desired for difference in compare(unit, actual.get(unit.name, Loaded()))]


def look(names: Sequence[str]) -> dict[str, Loaded]:
    """Read these units from systemd, by the given names, which may be aliases."""
    shown = systemd.systemctl(*SHOW, *names)[1].split("\n\n") if names else []
    return {name: unit for name, block in zip(names, shown) for unit in parse_show(block).values()}


def ensure(desired: Sequence[Wanted], *, check: bool = False) -> list[Difference]:
    """Enable units, or disable and stop them; return the differences. Units that should run are started by
    gpuprov_unit. Raises OSError if systemd refuses."""
    names = [unit.name for unit in desired]
    actual = look(names)
    if not check and any(unit.stale for unit in actual.values()):
        systemd.systemctl("daemon-reload")
        actual = look(names)
    pending = [change for change in list_differences(desired, actual) if change.after in VERBS]
    for difference in () if check else pending:
        _have(VERBS[difference.after], difference.name)
    return pending


def list_unread(names: Sequence[str], own: Collection[str]) -> list[str]:
    """Return the units whose files have changed since systemd read them, without those of these files."""
    others = [name for name in names if not is_among(name, own)]
    return [name for name, unit in look(others).items() if unit.stale]


def _have(verb: str, name: str) -> None:
    status, _, errors = systemd.systemctl(verb, "--", name)
    if status and (mask := systemd.systemctl("is-enabled", "--", name)[1]).startswith(MASKED):
        briefly = " --runtime" if mask == BRIEFLY else ""
        raise OSError(
            f"{name} is masked, and a mask is a person's. Fix: systemctl unmask{briefly} {name}, then apply again"
        )
    if status:
        raise OSError(f"systemctl {verb} {name} failed: {errors or f'it ended with {status}'}")
