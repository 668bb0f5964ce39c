"""The resources of a capability on a host once it is applied, as the receipt lists them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuprov.capabilities import package_sources
from gpuprov.capabilities.base import Capability, Context
from gpuprov.facts.probes.base import Probe
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family
from gpuprov.facts.probes.software.repositories import REPOSITORIES
from gpuprov.host_code import sources
from gpuprov.resources import Absent, File, Program, Unit


def probes(capability: Capability) -> tuple[Probe[Any], ...]:
    """Return the probes that `entries` needs."""
    own = capability.resources.probes if capability.resources else ()
    return (*package_sources.COMING, *own) if "repository" in capability.fragment.__struct_fields__ else own


def entries(capability: Capability, ctx: Context[Any], values: Mapping[str, Any]) -> list[str]:
    """List the files, units and holds that the capability brings to a host. values: those of its role. Raises
    ProbeFailed."""
    return list(dict.fromkeys(_entries(capability, ctx, values)))


def mentioned(capability: Capability, ctx: Context[Any], values: Mapping[str, Any]) -> set[str]:
    """Return `entries`, and everything that the capability's own role removes or switches off. Raises ProbeFailed."""
    own = set(_entries(capability, ctx, values)) | {f"file {path}" for path in values.get("absent", ())}
    for resource in capability.resources.desired(ctx) if capability.resources else ():
        if isinstance(resource, Absent):
            own.add(f"file {resource.path}")
        elif isinstance(resource, Unit):
            own.add(f"unit {resource.name}")
    return own


def _entries(capability: Capability, ctx: Context[Any], values: Mapping[str, Any]) -> Iterator[str]:
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
