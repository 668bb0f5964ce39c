"""The resources of a capability on a host once it is applied, as the receipt lists them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gpuprov.capabilities import package_sources
from gpuprov.capabilities.base import Capability, Context, Outcome, not_asked
from gpuprov.capabilities.compared import Compared, Group, list_compared
from gpuprov.facts.probes.base import Probe
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family
from gpuprov.facts.probes.software.repositories import REPOSITORIES
from gpuprov.host_code import sources
from gpuprov.host_code.lasting import UNREAD, Lasting, format_setting
from gpuprov.resources import Absent, File, Program, Setting, Unit

NOT_ASKED = not_asked().status


def probes(capability: Capability) -> tuple[Probe[Any], ...]:
    """Return the probes that `entries` and `settings` need."""
    own = capability.resources.probes if capability.resources else ()
    own = (*own, *(probe for check in _list_lasting(capability) for probe in check.probes))
    return (*package_sources.COMING, *own) if "repository" in capability.fragment.__struct_fields__ else own


def entries(capability: Capability, ctx: Context[Any], values: Mapping[str, Any]) -> list[str]:
    """List the files, units and holds that the capability brings to a host. values: those of its role. Raises
    ProbeFailed."""
    return list(dict.fromkeys(_list_entries(capability, ctx, values)))


def mentioned(capability: Capability, ctx: Context[Any], values: Mapping[str, Any]) -> set[str]:
    """Return `entries`, and everything that the capability's own role removes or switches off. Raises ProbeFailed."""
    own = set(_list_entries(capability, ctx, values)) | {f"file {path}" for path in values.get("absent", ())}
    for resource in capability.resources.desired(ctx) if capability.resources else ():
        if isinstance(resource, Absent):
            own.add(f"file {resource.path}")
        elif isinstance(resource, Unit):
            own.add(f"unit {resource.name}")
    return own


class Settings(NamedTuple):
    """Settings that a capability brings to a host and that outlast their declaration."""

    declared: dict[tuple[str, str, str], Lasting]
    # The checks of those that cannot be known now.
    unread: frozenset[str]
    # Devices that the host has.
    present: frozenset[str] = frozenset()

    @property
    def lines(self) -> list[str]:
        """The same as the receipt's module takes them."""
        return [*map(format_setting, self.declared.values()), *(f"{UNREAD}{check}" for check in sorted(self.unread))]


def settings(capability: Capability, ctx: Context[Any]) -> Settings:
    """Return the settings of the capability that the receipt lists."""
    declared, unread, present = dict[tuple[str, str, str], Lasting](), set[str](), set[str]()
    for check in _list_lasting(capability):
        try:
            group = check.group(ctx)
        except Exception:  # the check itself reports it
            unread.add(check.id)
            continue
        if isinstance(group, Outcome):
            unread |= {check.id} if group.status != NOT_ASKED else set()
            continue
        unread |= {check.id} if group.beside else set()  # it may compare some of its settings only
        declared |= {each.key: each for each in _lasting(check, group)}
        present |= {*group.present}
    return Settings(declared, frozenset(unread), frozenset(present | {device for _, device, _ in declared}))


def _list_lasting(capability: Capability) -> list[Compared]:
    return [check for check in list_compared(capability) if check.until]


def _lasting(check: Compared, group: Group) -> Iterator[Lasting]:
    for setting in group.resources:
        if isinstance(setting, Setting) and setting.moment == "now":
            before = group.values.get((setting.device, setting.key), "") if setting.compare(group.values) else ""
            yield Lasting(check.id, setting.device, setting.label, setting.end, before, check.until)


def _list_entries(capability: Capability, ctx: Context[Any], values: Mapping[str, Any]) -> Iterator[str]:
    for resource in capability.resources.desired(ctx) if capability.resources else ():
        if isinstance(resource, File | Program):
            yield f"file {resource.path}"
        elif isinstance(resource, Unit) and (resource.enabled or resource.active):
            yield f"unit {resource.name}"
    for packages in capability.desired.packages(values) if capability.desired and values else ():
        yield from (f"hold {name}" for name in packages.hold)
    yield from (f"file {path}" for path in values.get("components", ()))
    if block := values.get("repository"):
        kind = family(ctx.facts.get(system.OS_RELEASE))
        if kind:
            source = {**package_sources.SOURCE, **block}
            name = package_sources.standing(ctx.facts.get(REPOSITORIES), source, kind)["name"]
            yield from (f"file {path}" for path in (sources.derive_path(name, kind), sources.get_key_path(name, kind)))
