"""The preflight check of masks: what a person has masked, apply neither enables nor starts."""

from collections.abc import Iterable, Mapping

from gpuprov.capabilities.answers import unmasking
from gpuprov.capabilities.base import Outcome, fail, not_asked, ok
from gpuprov.facts.probes.host.contents import Contents
from gpuprov.host_code.unit_files import Loaded, derive_unit_file
from gpuprov.host_code.wanted_units import MASKED
from gpuprov.resources import File, Resource, Unit

UNMASKED = "None of the units that it enables or starts is masked: a mask is a person's, and apply leaves it."


def judge_masks(resources: Iterable[Resource], known: Contents, states: Mapping[str, Loaded]) -> Outcome:
    """Judge the units that are to start, without those whose files gpuprov writes, and those that the installation of
    their packages unmasks."""
    given = list(resources)
    own = {resource.path for resource in given if isinstance(resource, File)}
    needed = [
        unit.name
        for unit in given
        if isinstance(unit, Unit) and (unit.enabled or unit.active) and derive_unit_file(unit.name) not in own
    ]
    masked = {
        name: states[name].file
        for name in needed
        if name in states and states[name].file.startswith(MASKED) and name not in known.unmasking
    }
    if masked:
        found = f"{', '.join(f'{name} is {state}' for name, state in masked.items())}: a person's, which apply leaves"
        return fail("no mask", found, unmasking(masked), evidence=f"systemctl status {' '.join(masked)}")
    return ok(f"no mask: {', '.join(needed)}") if needed else not_asked("the spec needs no other unit")
