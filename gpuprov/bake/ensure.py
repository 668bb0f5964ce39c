"""Brings about the resources of a capability on this machine, by the code that gpuprov's modules run on hosts. Without
Ansible."""

import sys
from collections.abc import Iterable, Iterator

from gpuprov.core.errors import GpuprovError
from gpuprov.facts.probes.host.contents import Contents
from gpuprov.host_code import files as onhost
from gpuprov.host_code import systemd, unit_files, units, wanted_units
from gpuprov.resources import Absent, Difference, File, Lines, Resource, Unit, differences


def ensure(resources: Iterable[Resource], contents: Contents) -> list[str]:
    """Bring about what differs, and return it in words. Raises GpuprovError for what cannot be brought about."""
    given = list(resources)
    changes = list(differences(given, contents))
    own_units = [item for item in given if isinstance(item, Unit)]
    try:
        made = [_describe(item) for item in wanted_units.ensure([item.desired for item in own_units if _is_off(item)])]
        made += _list_files(given, changes)
        if changes:
            systemd.systemctl("daemon-reload")
        made += [_describe(item) for item in wanted_units.ensure([item.desired for item in own_units if item.enabled])]
        made += _start_units(own_units)
    except onhost.Refused as error:
        message, _, fix = str(error).partition(". Fix: ")
        raise GpuprovError(message, fix) from error
    except OSError as error:
        raise GpuprovError(
            f"{error.filename}: {error.strerror}" if error.filename else str(error), "see the journal"
        ) from error
    return made


def _is_off(unit: Unit) -> bool:
    return unit.enabled is False or unit.active is False


def _describe(item: wanted_units.Difference) -> str:
    return f"{item.name}: {item.before} -> {item.after}"


def _list_files(given: list[Resource], changes: list[Difference]) -> list[str]:
    differing = {item.path for item in changes}
    desired = [
        _convert_resource(item)
        for item in given
        if not isinstance(item, Unit) and getattr(item, "path", "") in differing
    ]
    desired += [
        onhost.Wanted(item.path, None)
        for item in changes
        if item.after == "removed" and item.path not in _list_paths(given)
    ]
    changed = [item.path for item in onhost.bring_about(desired)]
    texts = {item.path: item.text for item in given if isinstance(item, File)}
    return changed + unit_files.set_aside(texts, check=False)


def _list_paths(given: list[Resource]) -> set[str]:
    return {item.path for item in given if not isinstance(item, Unit)}


def _convert_resource(item: Resource) -> onhost.Wanted:
    if isinstance(item, File):
        return onhost.Wanted(item.path, item.text.replace(onhost.PYTHON, sys.executable), item.mode)
    if isinstance(item, Lines):
        return onhost.merge_lines(item.path, dict(item.keys), made=item.made)
    assert isinstance(item, Absent)
    return onhost.Wanted(item.path, None)


def _start_units(own_units: list[Unit]) -> Iterator[str]:
    """Start what should run and does not, or runs with what is outdated."""
    desired_units = [item.desired for item in own_units if item.active and not item.reboot]
    for item in wanted_units.list_differences(desired_units, wanted_units.look([unit.name for unit in desired_units])):
        if item.moment == wanted_units.NOW:
            status, lines = units.restart(item.name)
            if status:
                raise GpuprovError(
                    f"{item.name} does not start: {units.find_last_words(lines, '')}",
                    f"journalctl -u {item.name} -n 20",
                )
            yield _describe(item)
