"""Answers that several capabilities give alike: packages that are held, a unit that starts at boot."""

from __future__ import annotations

from collections.abc import Mapping

from gpuprov.capabilities.base import Change, Outcome, fail, ok
from gpuprov.probe import system
from gpuprov.probe.base import Facts
from gpuprov.probe.family import words
from gpuprov.probe.packages import LOCKING, NO_LOCK_PLUGIN, Package

APPLY = "gpuprov apply"
HOLDING = (system.OS_RELEASE, LOCKING)
"""What `held` looks at, besides the packages."""
SHOWN = "apt-mark showhold; dnf versionlock list"
LOCK_PLUGIN = "python3-dnf-plugin-versionlock"


def held(facts: Facts, found: Mapping[str, Package], what: str, *, wanted: bool) -> Outcome:
    """Whether each of these packages is held and holding works; or, where it is not wanted, none is held."""
    said, complaint = words(facts.get(system.OS_RELEASE)), facts.get(LOCKING)
    word, other, command = ("held", "not held", said.hold) if wanted else ("not held", "held", said.unhold)
    if not found:
        return fail(word, f"no package of {what} is installed", APPLY)
    expected = f"{len(found)} package{'' if len(found) == 1 else 's'} {word}"
    states = [state for name, package in found.items() for state in package.each or ((name, package.held),)]
    wrong = sorted({called for called, is_held in states if is_held != wanted})
    changes = [Change(kind="setting", name=f"{command} {name}") for name in wrong]
    told = [f"{other}: {' '.join(wrong)}"] * bool(wrong)
    if wanted and complaint:
        way = "correct that setting: upgrades move what is held"
        if complaint == NO_LOCK_PLUGIN:
            way = f"{said.install} {LOCK_PLUGIN}"
        return fail(expected, "; ".join([complaint, *told]), f"{way}; then {APPLY}", changes=changes)
    if wrong:
        return fail(expected, told[0], f"{command} {' '.join(wrong)}", changes=changes)
    return ok(expected)


def enabled(unit: str, load: str, file: str) -> Outcome:
    """Whether a unit (its LoadState and UnitFileState) starts at boot."""
    if file == "enabled":
        return ok(f"{unit} enabled")
    before = file or load
    change = Change(kind="service", name=unit, before=before, after="enabled")
    return fail(f"{unit} enabled", f"{unit} is {before}", f"systemctl enable --now {unit}", changes=[change])
