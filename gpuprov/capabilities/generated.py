"""Checks that are generated from a capability's resources, and the variables that a host is probed with for them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpuprov.capabilities.answers import APPLY, by_unit, enabling, unmasking
from gpuprov.capabilities.base import Capability, Change, Check, Context, Moment, Outcome, fail, not_asked, ok, skip
from gpuprov.capabilities.masks import UNMASKED, judge_masks
from gpuprov.capabilities.read_files import asks_reads, bind_reads, judge_age, list_idle, list_restarts, list_unread
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import Probe, ProbeFailed
from gpuprov.facts.probes.host import contents, house
from gpuprov.facts.probes.host.contents import READS
from gpuprov.host_code import wanted_units
from gpuprov.host_code.files import select_guarded_folders, select_own_folders
from gpuprov.host_code.unit_files import Loaded, derive_unit, is_drop_in
from gpuprov.resources import Difference, File, Lines, Program, Resource, Unit, differences
from gpuprov.spec.model import HostSpec


def _list_carried(capability: Capability) -> dict[str, Path]:
    """Return the modules that the role copies to hosts, by the names of their files there."""
    module_specs = (find_spec(module) for module in capability.carried)
    return {
        Path(module_spec.origin).name: Path(module_spec.origin)
        for module_spec in module_specs
        if module_spec and module_spec.origin
    }


@lru_cache(maxsize=256)
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


FILES = (
    "Every file, unit and program that gpuprov writes for it is there with that text, root's, with its mode, and "
    "systemd has read it; no drop-in of others changes what it says."
)
LINES = " The lines that it sets in files of others have their values, and root alone may write these."
ENABLED = (
    "Its units start at a boot, as systemd has read their files, and do their work: no drop-in of others leaves "
    "them idle, and no unit of others stops them. Those that would compete with them do not start."
)
ACTIVE = "Its units run, and those that would compete with them do not."
READ = " What they have read at their start, programs among it, has the same content still."
WORKING = "left as its package has it"
WITHOUT = "alone, without "
UNREAD = "not read by systemd since its files changed"
UNITS_SHOWN = "systemctl list-units --all 'nvidia*' 'gpuprov-*'; systemctl list-unit-files 'nvidia*' 'gpuprov-*'"


def desired(capability: Capability, ctx: Context[Any], *, coming: bool = False) -> list[Resource]:
    """List the capability's resources for a host with these facts; programs as files with their texts. coming: once the
    packages of this run are installed."""
    resources = capability.resources
    assert resources is not None
    items = list(((coming and resources.coming) or resources.desired)(ctx))
    carried = _list_carried(capability) if any(isinstance(item, Program) for item in items) else {}
    return [File(item.path, _text(carried[item.name])) if isinstance(item, Program) else item for item in items]


def asks(host: HostSpec, known: Mapping[str, Capability]) -> dict[str, str]:
    """Return the variables of the contents probe for a host with this spec: paths that its capabilities may write,
    foreign files in which they may set lines, units that they may set."""
    paths, lines, units = dict[str, None](), list[str](), dict[str, None]()
    for name, block in host.capabilities.items():
        if name in known and (resources := known[name].resources):
            own = [*resources.lines(host, block)] if callable(resources.lines) else [*resources.lines]
            lines += own
            paths |= dict.fromkeys((*resources.paths(host, block), *own))
            units |= dict.fromkeys(resources.units(host, block) if resources.units else ())
            reading = resources.reads(host, block) if resources.reads else ()
            units |= dict.fromkeys(unit for unit in reading if "*" not in unit)
    units |= dict.fromkeys(filter(None, map(derive_unit, paths)))
    paths |= dict.fromkeys(sorted(select_guarded_folders(paths) - select_own_folders(paths)))
    questions = {"paths": paths, "lines": lines, "folders": sorted(select_own_folders(paths)), "units": units}
    return {name: "\n".join(each) for name, each in questions.items()}


def judge_files(capability: Capability, ctx: Context[Any]) -> Outcome:
    """Compare all files of the capability with the host's."""
    resources, known = desired(capability, ctx), ctx.facts.get(contents.CONTENTS)
    own_files = [resource for resource in resources if isinstance(resource, File | Lines)]
    lines = {file.path: file.keys for file in own_files if isinstance(file, Lines)}
    wrong = list(differences(resources, known))
    if not own_files and not wrong:
        return not_asked("the spec asks for no file of its own")
    receipt = ctx.facts.known(house.RECEIPT)
    never = receipt is None or (not receipt.damaged and capability.name not in receipt.capabilities)
    optional = [file.path for file in own_files if file.optional]
    needed = [
        difference.path
        for difference in wrong
        if difference.path not in optional
        and (
            difference.path in lines
            or (is_drop_in(difference.path) and derive_unit(difference.path) in _list_units(resources))
        )
    ]
    if never and wrong and not needed and all(difference.lacking for difference in wrong):
        return not_asked(f"gpuprov has not applied it here, which writes {counted(len(own_files), 'file')}")
    own = [f"{counted(len(own_files) - len(lines), 'file')} as written by gpuprov"] * (
        len(own_files) > len(lines) or not lines
    )
    expected = "; ".join(
        [*own, *(f"{path} with {' '.join(map('='.join, keys.items()))}" for path, keys in lines.items())]
    )
    if not wrong:
        return ok(expected)
    changes = [
        Change(kind="file", name=difference.path, before=difference.before, after=difference.after)
        for difference in wrong
    ]
    changes += list_restarts(resources, wrong, known)
    unit = derive_unit(wrong[0].path)
    show = f"{'cat' if wrong[0].path in lines else 'ls -l'} {wrong[0].path}" + (
        f"; systemctl cat {unit}" if unit else ""
    )
    return fail(expected, "; ".join(described(wrong)), APPLY, changes=changes, evidence=show)


def _list_units(resources: Iterable[Resource]) -> set[str]:
    return {resource.name for resource in resources if isinstance(resource, Unit)}


def judge_units(capability: Capability, ctx: Context[Any], moment: Moment) -> Outcome:
    """Compare the units of the capability with the host's: at the next boot, or now."""
    boot = moment == wanted_units.NEXT_BOOT
    known, resources = ctx.facts.get(contents.CONTENTS), capability.resources
    states = _states(capability, ctx, known)
    newer = ctx.facts.get(READS) if resources and resources.reads and not boot else {}
    units = [judge_age(resource, newer) for resource in desired(capability, ctx) if isinstance(resource, Unit)]
    managed = [
        unit
        for unit in units
        if (unit.enabled if boot else unit.active) is not None or (unit.reads and not (boot or unit.waits))
    ]
    if silent := [unit.name for unit in managed if unit.name not in states]:
        raise ProbeFailed(f"systemd of the host did not say how it has {silent[0]}")
    wrong = [
        difference
        for difference in wanted_units.list_differences([unit.desired for unit in managed], states)
        if difference.moment == moment
    ]
    if boot:
        unread = list_unread(managed, desired(capability, ctx), known)
        wrong += [wanted_units.Difference(name, moment, UNREAD, "read by systemd") for name in unread]
        for name, why, rival in list_idle(managed, desired(capability, ctx), known):
            wrong.append(wanted_units.Difference(name, moment, why, WITHOUT + rival if rival else WORKING))
    if not wrong and not any(unit.enabled if boot else unit.active or _only_reads(unit, states) for unit in managed):
        if waits := [unit.waits for unit in units if unit.waits]:
            return skip(waits[0])
        return not_asked("the spec asks for no unit")
    now: dict[bool | None, str] = {True: "active", False: "stopped", None: "newer than its files"}
    words = {**now, True: "enabled", False: "off"} if boot else now
    expected = ", ".join(f"{unit.name} {words[unit.enabled if boot else unit.active]}" for unit in managed)
    if not wrong:
        return ok(expected)
    return _report_units(expected, wrong, {unit.name: unit for unit in managed}, known.ends)


def _states(capability: Capability, ctx: Context[Any], known: contents.Contents) -> dict[str, Loaded]:
    own = capability.resources.states(ctx) if capability.resources and capability.resources.states else {}
    return {**own, **known.units}


def _judge_masks(capability: Capability, ctx: Context[Any]) -> Outcome:
    known = ctx.facts.get(contents.CONTENTS)
    return judge_masks(desired(capability, ctx), known, _states(capability, ctx, known))


def _report_units(
    expected: str,
    wrong: Sequence[wanted_units.Difference],
    units: Mapping[str, Unit],
    ends: Mapping[str, str],
) -> Outcome:
    differs = [_describe(each, units[each.name], ends.get(each.name, "")) for each in wrong]
    reboots = [why for each in wrong if each.moment == wanted_units.NOW and (why := units[each.name].reboot)]
    changes = [
        Change(kind="service", name=each.name, before=each.before, after=each.after)
        for each in wrong
        if each.after != WORKING and not each.after.startswith(WITHOUT) and not is_masked(each)
    ]
    fix = f"{APPLY}, then a reboot" if reboots else _fix(wrong, units)
    shown = f"systemctl status {' '.join(each.name for each in wrong)}"
    return fail(expected, "; ".join(differs), fix, changes=changes, reboot="; ".join(reboots), evidence=shown)


def is_masked(difference: wanted_units.Difference) -> bool:
    """Return whether a mask is in the way, which apply leaves."""
    return difference.before.startswith(wanted_units.MASKED) and difference.after in ("enabled", "active")


def _only_reads(unit: Unit, states: Mapping[str, Loaded]) -> bool:
    """Return whether it need not run and does, so that it has read files."""
    return unit.active is None and states[unit.name].active in wanted_units.RUNS


def _describe(difference: wanted_units.Difference, unit: Unit, end: str) -> str:
    end = f'"{unit.message[:200]}"' if unit.message else end
    quoted = f" ({end})" if end and difference.before == "failed" else ""
    note = f"; {unit.note}" if unit.note and difference.moment == wanted_units.NOW else ""
    return f"{difference.name} is {difference.before}{quoted}{note}"


def _fix(wrong: Sequence[wanted_units.Difference], units: Mapping[str, Unit]) -> str:
    if missing := [
        way for difference in wrong if difference.before == "not-found" and (way := units[difference.name].missing)
    ]:
        return "; ".join(dict.fromkeys(missing))
    off = [difference.name for difference in wrong if difference.after == "disabled"]
    on = {difference.name: difference.before for difference in wrong if difference.after == "enabled"}
    masked = {each.name: each.before for each in wrong if is_masked(each) and each.name not in on}
    stopped = [difference.name for difference in wrong if difference.after == "inactive"]
    still = [each for each in wrong if each.after in ("active", "started anew") and not is_masked(each)]
    steps = [f"systemctl disable --now {' '.join(off)}"] * bool(off)
    steps += [enabling(on)] * bool(on)
    steps += [unmasking(masked)] * bool(masked)
    steps += [
        f"systemctl cat {difference.name}, and take that setting out"
        for difference in wrong
        if difference.after == WORKING
    ]
    rivals = [each.after.removeprefix(WITHOUT) for each in wrong if each.after.startswith(WITHOUT)]
    steps += [f"systemctl disable --now {' '.join(dict.fromkeys(rivals))}"] * bool(rivals)
    steps += ["systemctl daemon-reload"] * any(difference.before == UNREAD for difference in wrong)
    steps += [f"systemctl stop {' '.join(stopped)}"] * bool(stopped)
    for difference in still:
        then = units[difference.name].fix or f"then {APPLY}"
        steps.append(by_unit(difference.before, f"journalctl -u {difference.name} -n 20; {then}"))
    return "; ".join(dict.fromkeys(steps))


def described(wrong: Iterable[Difference]) -> Iterator[str]:
    """Describe differences, paths of one folder together as a shell takes them: FOLDER/{A,B}: WHAT."""
    groups: dict[tuple[str, str], list[str]] = {}
    for difference in wrong:
        folder, _, name = difference.path.rpartition("/")
        groups.setdefault((folder, difference.before), []).append(name)
    for (folder, what), names in groups.items():
        yield f"{folder}/{names[0] if len(names) == 1 else '{' + ','.join(names) + '}'}: {what}"


def with_checks(capabilities: Sequence[Capability]) -> tuple[Capability, ...]:
    """Return the capabilities, each with the checks that are generated from its resources."""
    known = {capability.name: capability for capability in capabilities}
    probe = replace(contents.CONTENTS, asks=lambda host: asks(host, known))
    reads = replace(READS, asks=lambda host: asks_reads(host, known))
    return tuple(
        replace(
            capability,
            checks=(*capability.checks, *_make_checks(capability, probe, reads)),
            desired=bind_reads(capability.desired, reads),
        )
        for capability in capabilities
    )


def without_spec(probes: Iterable[Probe[Any]], known: Mapping[str, Capability]) -> tuple[Probe[Any], ...]:
    """Return the probes, each once, for a host whose spec is unknown: of gpuprov's own files, all that any spec has
    written."""
    blocks = {name: capability.fragment() for name, capability in known.items() if capability.resources}
    by_name = {probe.name: probe for probe in probes}
    for name in (contents.CONTENTS.name, READS.name):
        if (probe := by_name.get(name)) is not None:
            by_name[name] = probe.of(HostSpec(name="", capabilities=blocks))
    return tuple(by_name.values())


def generated_checks(capability: Capability) -> tuple[Check, ...]:
    """Return the checks of a capability that are generated from its resources."""
    resources = capability.resources
    names = (resources.files_check, "enabled", "active") if resources else ()
    return tuple(check for check in capability.checks if check.id.partition(".")[2] in names)


def _make_checks(capability: Capability, probe: Probe[Any], reads: Probe[Any]) -> Iterator[Check]:
    resources = capability.resources
    if resources is None:
        return

    def made(name: str, words: str, run: Callable[[Context[Any]], Outcome], moment: Moment, *more: Probe[Any]) -> Check:
        shown = probe.evidence if name == resources.files_check else UNITS_SHOWN
        probes = tuple({each.name: each for each in (*resources.probes, probe, *more)}.values())
        return Check(f"{capability.name}.{name}", resources.proves.get(name, ()), probes, run, moment, words, shown)

    words = FILES + (LINES if resources.lines else "")
    yield made(resources.files_check, words, lambda ctx: judge_files(capability, ctx), "next-boot", house.RECEIPT)
    if resources.units:
        yield made("unmasked", UNMASKED, lambda ctx: _judge_masks(capability, ctx), "preflight")
        yield made("enabled", ENABLED, lambda ctx: judge_units(capability, ctx, "next-boot"), "next-boot")
    if resources.units or resources.reads:
        more, words = ((reads,), ACTIVE + READ) if resources.reads else ((), ACTIVE)
        yield made("active", words, lambda ctx: judge_units(capability, ctx, "now"), "now", *more)
