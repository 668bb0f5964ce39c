"""Brings about the resources of a capability on this machine, by the code that gpuprov's modules run on hosts. Without Ansible."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from gpuprov.errors import GpuprovError
from gpuprov.onhost import files as onhost
from gpuprov.onhost import systemd, unit_files, units, wanted_units
from gpuprov.probe.host.contents import Contents
from gpuprov.resources import Absent, Difference, File, Lines, Resource, Unit, differences


def ensure(resources: Iterable[Resource], contents: Contents) -> list[str]:
    """Bring about what differs, and return it in words. Raises GpuprovError for what cannot be brought about."""
    given = list(resources)
    found = list(differences(given, contents))
    own_units = [one for one in given if isinstance(one, Unit)]
    try:
        made = [_told(one) for one in wanted_units.ensure([one.wanted for one in own_units if _is_off(one)])]
        made += _files(given, found)
        if found:
            systemd.systemctl("daemon-reload")
        made += [_told(one) for one in wanted_units.ensure([one.wanted for one in own_units if one.enabled])]
        made += _started(own_units)
    except onhost.Refused as error:
        told, _, fix = str(error).partition(". Fix: ")
        raise GpuprovError(told, fix) from error
    except OSError as error:
        raise GpuprovError(
            f"{error.filename}: {error.strerror}" if error.filename else str(error), "see the journal"
        ) from error
    return made


def _is_off(unit: Unit) -> bool:
    return unit.enabled is False or unit.active is False


def _told(one: wanted_units.Difference) -> str:
    return f"{one.name}: {one.before} -> {one.after}"


def _files(given: list[Resource], found: list[Difference]) -> list[str]:
    differing = {one.path for one in found}
    desired = [_wanted(one) for one in given if not isinstance(one, Unit) and getattr(one, "path", "") in differing]
    desired += [
        onhost.Wanted(one.path, None) for one in found if one.after == "removed" and one.path not in _paths(given)
    ]
    changed = [one.path for one in onhost.bring_about(desired)]
    texts = {one.path: one.text for one in given if isinstance(one, File)}
    return changed + unit_files.set_aside(texts, check=False)


def _paths(given: list[Resource]) -> set[str]:
    return {one.path for one in given if not isinstance(one, Unit)}


def _wanted(one: Resource) -> onhost.Wanted:
    if isinstance(one, File):
        return onhost.Wanted(one.path, one.text.replace(onhost.PYTHON, sys.executable), one.mode)
    if isinstance(one, Lines):
        return onhost.with_lines(one.path, dict(one.keys), made=one.made)
    assert isinstance(one, Absent)
    return onhost.Wanted(one.path, None)


def _started(own_units: list[Unit]) -> Iterator[str]:
    """Start what should run and does not, or runs with what is outdated."""
    wanted = [one.wanted for one in own_units if one.active and not one.reboot]
    for one in wanted_units.differences(wanted, wanted_units.look([unit.name for unit in wanted])):
        if one.moment == wanted_units.NOW:
            status, lines = units.restart(one.name)
            if status:
                raise GpuprovError(
                    f"{one.name} does not start: {units.last_words(lines, '')}", f"journalctl -u {one.name} -n 20"
                )
            yield _told(one)
