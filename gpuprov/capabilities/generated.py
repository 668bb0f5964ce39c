"""Checks that are generated from a capability's resources, and the variables that a host is probed with for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpuprov.capabilities.answers import APPLY, by_unit, enabling
from gpuprov.capabilities.base import Capability, Change, Check, Context, Moment, Outcome, fail, not_asked, ok, skip
from gpuprov.onhost import wanted_units
from gpuprov.onhost.files import select_own_folders
from gpuprov.onhost.unit_files import derive_unit, is_drop_in
from gpuprov.probe.base import Probe, ProbeFailed
from gpuprov.probe.host import contents, house
from gpuprov.resources import Difference, File, Lines, Program, Resource, Unit, differences
from gpuprov.shown import counted
from gpuprov.spec.model import HostSpec


def _carried(capability: Capability) -> dict[str, Path]:
    """Return the modules that the role copies to hosts, by the names of their files there."""
    found = (find_spec(module) for module in capability.carried)
    return {Path(one.origin).name: Path(one.origin) for one in found if one and one.origin}


@lru_cache(maxsize=256)
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


FILES = (
    "Every file, unit and program that gpuprov writes for it is there with that text, root's, with its mode, and systemd has read "
    "it; no drop-in of others changes what it says."
)
LINES = " The lines that it sets in files of others have their values, and root alone may write these."
ENABLED = "Its units start at a boot, and those that would compete with them do not."
ACTIVE = "Its units run, and those that would compete with them do not."
UNITS_SHOWN = "systemctl list-units --all 'nvidia*' 'gpuprov-*'; systemctl list-unit-files 'nvidia*' 'gpuprov-*'"


def desired(capability: Capability, ctx: Context[Any], *, coming: bool = False) -> list[Resource]:
    """List the capability's resources for a host with these facts; programs as files with their texts. coming: once the packages of
    this run are installed."""
    resources = capability.resources
    assert resources is not None
    found = list(((coming and resources.coming) or resources.desired)(ctx))
    carried = _carried(capability) if any(isinstance(one, Program) for one in found) else {}
    return [File(one.path, _text(carried[one.name])) if isinstance(one, Program) else one for one in found]


def asks(host: HostSpec, known: Mapping[str, Capability]) -> dict[str, str]:
    """Return the variables of the contents probe for a host with this spec: paths that its capabilities may write, foreign files in
    which they may set lines, units that they may set."""
    paths, lines, units = dict[str, None](), list[str](), dict[str, None]()
    for name, block in host.capabilities.items():
        if name in known and (resources := known[name].resources):
            own = [*resources.lines(host, block)] if callable(resources.lines) else [*resources.lines]
            lines += own
            paths |= dict.fromkeys((*resources.paths(host, block), *own))
            units |= dict.fromkeys(resources.units(host, block) if resources.units else ())
    units |= dict.fromkeys(filter(None, map(derive_unit, paths)))
    told = {"paths": paths, "lines": lines, "folders": sorted(select_own_folders(paths)), "units": units}
    return {name: "\n".join(each) for name, each in told.items()}


def judge_files(capability: Capability, ctx: Context[Any]) -> Outcome:
    """Compare all files of the capability with the host's."""
    resources, known = desired(capability, ctx), ctx.facts.get(contents.CONTENTS)
    wanted = [one for one in resources if isinstance(one, File | Lines)]
    lines = {one.path: one.keys for one in wanted if isinstance(one, Lines)}
    found = list(differences(resources, known))
    if not wanted and not found:
        return not_asked("the spec asks for no file of its own")
    receipt = ctx.facts.known(house.RECEIPT)
    never = receipt is None or (not receipt.damaged and capability.name not in receipt.capabilities)
    optional = [one.path for one in wanted if one.optional]
    needed = [
        one.path
        for one in found
        if one.path not in optional
        and (one.path in lines or (is_drop_in(one.path) and derive_unit(one.path) in _units(resources)))
    ]
    if never and found and not needed and all(one.lacking for one in found):
        return not_asked(f"gpuprov has not applied it here, which writes {counted(len(wanted), 'file')}")
    own = [f"{counted(len(wanted) - len(lines), 'file')} as gpuprov writes them"] * (
        len(wanted) > len(lines) or not lines
    )
    expected = "; ".join(
        [*own, *(f"{path} with {' '.join(map('='.join, keys.items()))}" for path, keys in lines.items())]
    )
    if not found:
        return ok(expected)
    changes = [Change(kind="file", name=one.path, before=one.before, after=one.after) for one in found]
    unit = derive_unit(found[0].path)
    show = f"{'cat' if found[0].path in lines else 'ls -l'} {found[0].path}" + (
        f"; systemctl cat {unit}" if unit else ""
    )
    return fail(expected, "; ".join(described(found)), APPLY, changes=changes, evidence=show)


def _units(resources: Iterable[Resource]) -> set[str]:
    return {one.name for one in resources if isinstance(one, Unit)}


def judge_units(capability: Capability, ctx: Context[Any], moment: Moment) -> Outcome:
    """Compare the units of the capability with the host's: at the next boot, or now."""
    boot = moment == wanted_units.NEXT_BOOT
    known, resources = ctx.facts.get(contents.CONTENTS), capability.resources
    own = resources.states(ctx) if resources and resources.states else {}
    states = {**own, **known.units}
    units = [one for one in desired(capability, ctx) if isinstance(one, Unit)]
    mine = [one for one in units if (one.enabled if boot else one.active) is not None]
    if silent := [one.name for one in mine if one.name not in states]:
        raise ProbeFailed(f"systemd of the host did not say how it has {silent[0]}")
    found = [
        one for one in wanted_units.list_differences([unit.wanted for unit in mine], states) if one.moment == moment
    ]
    if not found and not any(one.enabled if boot else one.active for one in mine):
        if waits := [one.waits for one in units if one.waits]:
            return skip(waits[0])
        return not_asked("the spec asks for no unit")
    words = ("enabled", "off") if boot else ("active", "stopped")
    expected = ", ".join(f"{one.name} {words[not (one.enabled if boot else one.active)]}" for one in mine)
    if not found:
        return ok(expected)
    by_name = {one.name: one for one in mine}
    told = [_told(one, by_name[one.name], known.said.get(one.name, "")) for one in found]
    reboots = [] if boot else [by_name[one.name].reboot for one in found if by_name[one.name].reboot]
    changes = [Change(kind="service", name=one.name, before=one.before, after=one.after) for one in found]
    shown = f"systemctl status {' '.join(one.name for one in found)}"
    hint = f"{APPLY}, then a reboot" if reboots else _fix(found, by_name)
    return fail(expected, "; ".join(told), hint, changes=changes, reboot="; ".join(reboots), evidence=shown)


def _told(one: wanted_units.Difference, unit: Unit, said: str) -> str:
    words = (unit.said or said)[:200] if one.before == "failed" else ""
    quoted = f' ("{words}")' if words else ""
    note = f"; {unit.note}" if unit.note and one.moment == wanted_units.NOW else ""
    return f"{one.name} is {one.before}{quoted}{note}"


def _fix(found: Sequence[wanted_units.Difference], units: Mapping[str, Unit]) -> str:
    if missing := [way for one in found if one.before == "not-found" and (way := units[one.name].missing)]:
        return "; ".join(dict.fromkeys(missing))
    off = [one.name for one in found if one.after == "disabled"]
    on = {one.name: one.before for one in found if one.after == "enabled"}
    stopped = [one.name for one in found if one.after == "inactive"]
    still = [one for one in found if one.after in ("active", "started anew")]
    steps = [f"systemctl disable --now {' '.join(off)}"] * bool(off)
    steps += [enabling(on)] * bool(on)
    steps += [f"systemctl stop {' '.join(stopped)}"] * bool(stopped)
    for one in still:
        then = units[one.name].fix or f"then {APPLY}"
        steps.append(by_unit(one.before, f"journalctl -u {one.name} -n 20; {then}"))
    return "; ".join(dict.fromkeys(steps))


def described(found: Iterable[Difference]) -> Iterator[str]:
    """Describe differences, paths of one folder together as a shell takes them: FOLDER/{A,B}: WHAT."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in found:
        folder, _, name = one.path.rpartition("/")
        groups.setdefault((folder, one.before), []).append(name)
    for (folder, what), names in groups.items():
        yield f"{folder}/{names[0] if len(names) == 1 else '{' + ','.join(names) + '}'}: {what}"


def with_checks(capabilities: Sequence[Capability]) -> tuple[Capability, ...]:
    """Return the capabilities, each with the checks that are generated from its resources."""
    known = {one.name: one for one in capabilities}
    probe = replace(contents.CONTENTS, asks=lambda host: asks(host, known))
    return tuple(replace(one, checks=(*one.checks, *_checks(one, probe))) for one in capabilities)


def without_spec(probes: Iterable[Probe[Any]], known: Mapping[str, Capability]) -> tuple[Probe[Any], ...]:
    """Return the probes, each once, for a host whose spec is unknown: of gpuprov's own files, all that any spec has written."""
    blocks = {name: one.fragment() for name, one in known.items() if one.resources}
    found = {probe.name: probe for probe in probes}
    if (probe := found.get(contents.CONTENTS.name)) is not None:
        found[probe.name] = probe.of(HostSpec(name="", capabilities=blocks))
    return tuple(found.values())


def generated_checks(capability: Capability) -> tuple[Check, ...]:
    """Return the checks of a capability that are generated from its resources."""
    resources = capability.resources
    names = (resources.files_check, *(("enabled", "active") if resources.units else ())) if resources else ()
    return tuple(check for check in capability.checks if check.id.partition(".")[2] in names)


def _checks(capability: Capability, probe: Probe[Any]) -> Iterator[Check]:
    resources = capability.resources
    if resources is None:
        return

    def made(name: str, words: str, run: Callable[[Context[Any]], Outcome], moment: Moment, *more: Probe[Any]) -> Check:
        shown = probe.evidence if name == resources.files_check else UNITS_SHOWN
        probes = (*resources.probes, probe, *more)
        return Check(f"{capability.name}.{name}", resources.proves.get(name, ()), probes, run, moment, words, shown)

    words = FILES + (LINES if resources.lines else "")
    yield made(resources.files_check, words, lambda ctx: judge_files(capability, ctx), "next-boot", house.RECEIPT)
    if resources.units:
        yield made("enabled", ENABLED, lambda ctx: judge_units(capability, ctx, "next-boot"), "next-boot")
        yield made("active", ACTIVE, lambda ctx: judge_units(capability, ctx, "now"), "now")
