"""Units and the files that they read: which are older than these, and which are restarted after them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from gpuprov.capabilities.base import Capability, Change, Desired
from gpuprov.facts.probes.base import Probe
from gpuprov.facts.probes.host.contents import READS, Contents, Newer, explain_age
from gpuprov.host_code import wanted_units
from gpuprov.host_code.reads import is_read
from gpuprov.host_code.unit_files import Loaded, derive_unit_file, is_among
from gpuprov.resources import Difference, File, Resource, Unit
from gpuprov.resources.idle import explain_idle, explain_rival
from gpuprov.spec.model import HostSpec


def asks_reads(host: HostSpec, known: Mapping[str, Capability]) -> dict[str, str]:
    """Return the variable of the probe for what running units have read: UNIT|PATH in each line."""
    lines = list[str]()
    for name, block in host.capabilities.items():
        if name in known and (resources := known[name].resources) and resources.reads:
            lines += [f"{unit}|{path}" for unit, paths in resources.reads(host, block).items() for path in paths]
    return {"reads": "\n".join(lines)}


def bind_reads(desired: Desired[Any] | None, probe: Probe[Any]) -> Desired[Any] | None:
    """Return the desired state with this probe of what units have read, which asks about all capabilities of a host."""
    if desired is None or READS not in desired.probes:
        return desired
    return replace(desired, probes=tuple(probe if each.name == probe.name else each for each in desired.probes))


def judge_age(unit: Unit, newer: Newer) -> Unit:
    """Return the unit, outdated if it runs and has read files whose content is newer than its start."""
    if unit.outdated or not (words := explain_age(unit.name, newer)):
        return unit
    return msgspec.structs.replace(unit, outdated=words)


def list_unread(units: Iterable[Unit], resources: Iterable[Resource], contents: Contents) -> Iterator[str]:
    """Yield the units that are to start at a boot and whose files have changed since systemd read them; of gpuprov's
    own files the check of files says so."""
    own = {resource.path for resource in resources if isinstance(resource, File)}
    for unit in units:
        state = contents.units.get(unit.name, Loaded())
        stale = state.stale and not state.file.startswith(wanted_units.MASKED)
        if unit.enabled and stale and not is_among(unit.name, own):
            yield unit.name


def list_idle(
    units: Iterable[Unit], resources: Iterable[Resource], contents: Contents
) -> Iterator[tuple[str, str, str]]:
    """Yield the units that start at a boot and do nothing then, each with the reason, and a unit that is in the way; of
    gpuprov's own units the check of files says what drop-ins change."""
    given = list(resources)
    own = [resource.path for resource in given if isinstance(resource, File)]
    off = [resource.name for resource in given if isinstance(resource, Unit) and resource.enabled is False]
    for unit in units:
        state = contents.units.get(unit.name)
        if not (unit.enabled and state):
            continue
        if derive_unit_file(unit.name) not in own and (why := explain_idle(state, contents, own)):
            yield unit.name, why, ""
            continue
        why, rival = explain_rival(unit.name, contents, off)
        if why:
            yield unit.name, why, rival


def list_restarts(
    resources: Iterable[Resource], differing: Sequence[Difference], contents: Contents
) -> Iterator[Change]:
    """Yield the running units that are restarted after a file that they read."""
    paths = [difference.path for difference in differing if not difference.same]
    for unit in resources:
        if not isinstance(unit, Unit) or not any(is_read(path, unit.reads) for path in paths):
            continue
        if (state := contents.units.get(unit.name)) and state.active in wanted_units.RUNS:
            yield Change(kind="service", name=unit.name, before="active", after="started anew")
