"""Resources of a host, each with how the host differs from it. Changes nothing."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

import msgspec

from gpuprov.capabilities.base import Capability, Context, Outcome
from gpuprov.capabilities.compared import Group, compare_resource, list_compared
from gpuprov.capabilities.generated import desired, generated_checks
from gpuprov.facts.probes.base import Facts, Probe, ProbeFailed
from gpuprov.facts.probes.host import contents, house
from gpuprov.facts.probes.host.contents import Contents
from gpuprov.host_code import wanted_units
from gpuprov.host_code.files import PYTHON
from gpuprov.resources import Absent, File, KernelModule, Lines, Resource, Unit, differences
from gpuprov.resources.kernel_module import describe_module
from gpuprov.resources.setting import describe_setting
from gpuprov.resources.unit import in_words
from gpuprov.spec.model import HostSpec
from gpuprov.verify.unmanaged import Unmanaged, find_unmanaged

Kind = Literal["file", "absent", "lines", "unit", "setting", "module"]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One resource. `wanted`: its mode, what is set in it, the state of a unit or a module, or a value. `differs`: how
    the host has it otherwise, in words; empty where it is as it should be. `text`: the whole of a file; null where it
    is not gpuprov's alone."""

    capability: str
    kind: Kind
    name: str
    wanted: str
    differs: str = ""
    text: str | None = None


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of one host. `unknown`: by capability, or by a check of its settings, why nobody can say
    what it should have there. `left`: what an apply brought and the spec no longer declares."""

    host: str
    items: tuple[Item, ...] = ()
    unknown: Mapping[str, str] = {}
    left: tuple[Unmanaged, ...] = ()


def probes_of(
    host: HostSpec, known: Mapping[str, Capability], only: Collection[str] | None = None
) -> tuple[Probe[Any], ...]:
    """Probes that `listing` needs, each once."""
    checks = (
        check
        for name in _list_requested(host, known, only)
        for check in (*generated_checks(known[name]), *list_compared(known[name]))
    )
    probes = [house.RECEIPT, house.BOOT, contents.CONTENTS, *(probe for check in checks for probe in check.probes)]
    return tuple({probe.name: probe.of(host) for probe in probes}.values())


def listing(
    host: HostSpec, facts: Facts, known: Mapping[str, Capability], only: Collection[str] | None = None
) -> Listing:
    """List the resources of a host with these facts."""
    items: list[Item] = []
    unknown: dict[str, str] = {}
    for name in _list_requested(host, known, only):
        ctx: Context[Any] = Context(host, host.capabilities[name], facts)
        try:
            if known[name].resources:
                items += _list_items(name, desired(known[name], ctx), facts.get(contents.CONTENTS))
        except ProbeFailed as error:
            unknown[name] = str(error)
            continue
        for check in list_compared(known[name]):
            try:
                items += _list_settings(name, check.group(ctx))
            except ProbeFailed as error:
                unknown[check.id] = str(error)
    left = tuple(each for each in find_unmanaged(host, facts) if only is None or each.capability in only)
    return Listing(host=host.name, items=tuple(items), unknown=unknown, left=left)


def _list_requested(host: HostSpec, known: Mapping[str, Capability], only: Collection[str] | None) -> list[str]:
    return [
        name
        for name in host.capabilities
        if name in known and (known[name].resources or list_compared(known[name])) and name in (only or known)
    ]


def _list_items(capability: str, resources: list[Resource], state: Contents) -> Iterator[Item]:
    before: dict[str, list[str]] = {}
    for file in differences(resources, state):
        before.setdefault(file.path, []).append(file.before)
    units = [unit for unit in resources if isinstance(unit, Unit)]
    for unit in wanted_units.list_differences([unit.desired for unit in units], state.units):
        before.setdefault(unit.name, []).append(unit.before)
    for resource in resources:
        kind, name, shown, text = _show_resource(resource, state)
        differs = "; ".join(dict.fromkeys(before.pop(name, ())))
        yield Item(capability=capability, kind=kind, name=name, wanted=shown, differs=differs, text=text)
    for path, states in before.items():  # of others: beside programs, or in the place of a setting
        yield Item(capability=capability, kind="absent", name=path, wanted="absent", differs="; ".join(states))


def _list_settings(capability: str, group: Group | Outcome) -> Iterator[Item]:
    """Yield settings and modules; of a host on which there is nothing to compare, nothing."""
    if isinstance(group, Outcome):
        return
    for resource in group.resources:
        before = "; ".join(difference.before or "absent" for difference in compare_resource(resource, group))
        if isinstance(resource, KernelModule):
            yield Item(
                capability=capability,
                kind="module",
                name=resource.kernel_name,
                wanted=describe_module(resource),
                differs=before,
            )
        else:
            yield Item(
                capability=capability,
                kind="setting",
                name=resource.label,
                wanted=describe_setting(resource),
                differs=before,
            )


def _show_resource(resource: Resource, state: Contents) -> tuple[Kind, str, str, str | None]:
    if isinstance(resource, File):
        python = next(iter(state.pythons.get(resource.path, ())), PYTHON)
        return "file", resource.path, f"{resource.mode:04o} root", resource.text.replace(PYTHON, python)
    if isinstance(resource, Absent):
        return "absent", resource.path, "absent", None
    if isinstance(resource, Lines):
        return "lines", resource.path, ", ".join(map("=".join, resource.keys.items())), None
    assert isinstance(resource, Unit)
    return "unit", resource.name, in_words(resource), None
