"""Resources of a host, each with how the host differs from it. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

import msgspec

from gpuprov.capabilities.base import Capability, Context
from gpuprov.capabilities.generated import desired, generated_checks
from gpuprov.onhost import wanted_units
from gpuprov.onhost.files import PYTHON
from gpuprov.probe.base import Facts, Probe, ProbeFailed
from gpuprov.probe.host import contents
from gpuprov.probe.host.contents import Contents
from gpuprov.resources import Absent, File, Lines, Resource, Unit, differences
from gpuprov.resources.unit import in_words
from gpuprov.spec.model import HostSpec

Kind = Literal["file", "absent", "lines", "unit"]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One resource. `wanted`: its mode, what is set in it, or the state of a unit. `differs`: how the host has it otherwise, in
    words; empty where it is as it should be. `text`: the whole of a file; null where it is not of gpuprov's making alone."""

    capability: str
    kind: Kind
    name: str
    wanted: str
    differs: str = ""
    text: str | None = None


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of one host. `unknown`: by capability, why nobody can say what it should have there."""

    host: str
    items: tuple[Item, ...] = ()
    unknown: Mapping[str, str] = {}


def probes_of(
    host: HostSpec, known: Mapping[str, Capability], only: Collection[str] | None = None
) -> tuple[Probe[Any], ...]:
    """Probes that `listing` needs, each once."""
    checks = (check for name in _asked(host, known, only) for check in generated_checks(known[name]))
    return tuple({probe.name: probe.of(host) for check in checks for probe in check.probes}.values())


def listing(
    host: HostSpec, facts: Facts, known: Mapping[str, Capability], only: Collection[str] | None = None
) -> Listing:
    """List the resources of a host with these facts."""
    items: list[Item] = []
    unknown: dict[str, str] = {}
    for name in _asked(host, known, only):
        try:
            found = desired(known[name], Context(host, host.capabilities[name], facts))
            items += _items(name, found, facts.get(contents.CONTENTS))
        except ProbeFailed as error:
            unknown[name] = str(error)
    return Listing(host=host.name, items=tuple(items), unknown=unknown)


def _asked(host: HostSpec, known: Mapping[str, Capability], only: Collection[str] | None) -> list[str]:
    return [name for name in host.capabilities if name in known and known[name].resources and name in (only or known)]


def _items(capability: str, resources: list[Resource], found: Contents) -> Iterator[Item]:
    before: dict[str, list[str]] = {}
    for file in differences(resources, found):
        before.setdefault(file.path, []).append(file.before)
    units = [one for one in resources if isinstance(one, Unit)]
    for unit in wanted_units.differences([one.wanted for one in units], found.units):
        before.setdefault(unit.name, []).append(unit.before)
    for one in resources:
        kind, name, wanted, text = _shown(one, found)
        differs = "; ".join(dict.fromkeys(before.pop(name, ())))
        yield Item(capability=capability, kind=kind, name=name, wanted=wanted, differs=differs, text=text)
    for path, states in before.items():  # of others: beside programs, or in the place of a setting
        yield Item(capability=capability, kind="absent", name=path, wanted="absent", differs="; ".join(states))


def _shown(one: Resource, found: Contents) -> tuple[Kind, str, str, str | None]:
    if isinstance(one, File):
        python = next(iter(found.pythons.get(one.path, ())), PYTHON)
        return "file", one.path, f"{one.mode:04o} root", one.text.replace(PYTHON, python)
    if isinstance(one, Absent):
        return "absent", one.path, "absent", None
    if isinstance(one, Lines):
        return "lines", one.path, ", ".join(map("=".join, one.keys.items())), None
    assert isinstance(one, Unit)
    return "unit", one.name, in_words(one), None
