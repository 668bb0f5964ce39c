"""Configuration that an apply brought to a host and its spec no longer requests. Changes nothing."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from gpuprov.capabilities import BY_NAME, receipts
from gpuprov.capabilities.base import Capability, Change, Context
from gpuprov.capabilities.receipts import Settings
from gpuprov.core.sanitize import counted, fold_paths
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.host import contents, house
from gpuprov.facts.probes.host.contents import Contents
from gpuprov.host_code.json_members import Json
from gpuprov.host_code.lasting import Lasting, format_setting, is_over, parse_settings
from gpuprov.host_code.restore.kinds import explain_reboot, explain_stay, needs_idle
from gpuprov.host_code.unit_files import derive_unit_file
from gpuprov.host_code.wanted_units import RUNS, STARTS
from gpuprov.spec.model import HostSpec

Kind = Literal["file", "unit", "hold", "setting"]
# Kinds that --prune removes; settings get their values before again.
KINDS = get_args(Kind)[:3]
CHANGED = "changed by others since it was applied"
BY_PACKAGE = "a package brings it"
OLD = "an earlier gpuprov brought it, whose receipt does not say what: apply the block once more, then prune"


class Unmanaged(msgspec.Struct, frozen=True, kw_only=True):
    """A file, a unit, a hold or a setting that is there as it was applied. `capability`: whose it was. `runs`: a unit
    that runs now. `value`, `before`: of a setting, as it was applied, and before the first apply. `stays`: the reason
    why --prune leaves it as it is; empty where it takes it away, or puts it back. `reboot`: why that holds only after a
    reboot. `unknown`: nobody knows how it is, so that the receipt goes on naming its capability."""

    capability: str
    kind: Kind
    name: str
    runs: bool = False
    value: str = ""
    before: str = ""
    stays: str = ""
    reboot: str = ""
    unknown: bool = False

    def is_of(self, setting: Lasting) -> bool:
        """Return whether this names a setting of a receipt; several of one name, as of CPUs, are named together."""
        return (self.kind, self.name, self.value, self.before) == ("setting", *setting.words)


def find_unmanaged(
    host: HostSpec, facts: Facts, values: Mapping[str, Mapping[str, Json]] = {}
) -> tuple[Unmanaged, ...]:
    """List what the host's receipt names and its spec does not. values: what roles are handed, by capability; of one of
    the spec without them, nothing is listed. Nor is anything of a host without a sound receipt."""
    receipt = facts.known(house.RECEIPT)
    if receipt is None or receipt.damaged:
        return ()
    desired, unsure, settings = set[str](), set[str](), dict[str, Settings]()
    for name in host.capabilities:
        context = Context(host, host.capabilities[name], facts)
        if name in BY_NAME:
            desired |= set(_list_possible(host, BY_NAME[name]))
            settings[name] = receipts.settings(BY_NAME[name], context)
        try:
            desired |= receipts.mentioned(BY_NAME[name], context, values[name])
        except (KeyError, ProbeFailed):
            unsure.add(name)
            entry = receipt.capabilities.get(name)
            desired |= {" ".join(words) for words in _list_entries(entry.resources or ())} if entry else set()
    leftovers = list[Unmanaged]()
    for name, entry in receipt.capabilities.items():
        gone = name not in host.capabilities
        if gone:
            leftovers += _list_gone(host, facts, name, entry, desired)
        elif name not in unsure and (host_contents := facts.known(contents.CONTENTS)):
            leftovers += _list_left(name, entry.resources or (), desired, host_contents, gone=False)
        leftovers += _list_left_settings(name, entry.resources or (), settings.get(name), facts.known(house.BOOT) or "")
    return tuple(leftovers)


def _list_left_settings(
    capability: str, entries: Iterable[str], present: Settings | None, boot: str
) -> Iterator[Unmanaged]:
    """present: what the spec's own block declares; None: it has none. A device is named only while it is known to be
    there, or nothing is declared for any."""
    settings = present or Settings({}, frozenset())
    checks = {check for check, _, _ in settings.declared}
    left = dict[Unmanaged, None]()
    for setting in parse_settings(entries):
        is_unknown = setting.check in settings.unread or (
            setting.check in checks and setting.device not in settings.present
        )
        if setting.key not in settings.declared and not is_unknown and not is_over(setting, boot):
            name, value, before = setting.words
            stays = explain_stay(setting)
            reboot = "" if stays else explain_reboot(setting)
            left[
                Unmanaged(
                    capability=capability,
                    kind="setting",
                    name=name,
                    value=value,
                    before=before,
                    stays=stays,
                    reboot=reboot,
                )
            ] = None
    yield from left


def _list_gone(host: HostSpec, facts: Facts, name: str, entry: house.Applied, desired: set[str]) -> Iterator[Unmanaged]:
    """Yield what is left of a capability that the spec has no block of."""
    if entry.resources is None:
        yield Unmanaged(capability=name, kind="file", name="what it brought", stays=OLD, unknown=True)
        return
    try:
        host_contents, known = facts.get(contents.CONTENTS), BY_NAME.get(name)
        for kind, resource in _list_entries(entry.resources):
            if kind == "file" and resource not in host_contents.entries and resource not in host_contents.missing:
                raise ProbeFailed(f"{resource} was not read on the host")
            if kind == "unit" and resource not in host_contents.units:
                raise ProbeFailed(f"systemd of the host did not say how it has {resource}")
        if known and known.pruned:
            known.pruned(host, facts)
        yield from _list_left(name, entry.resources, desired, host_contents, gone=True)
        for path, why in (known.stays if known else {}).items():
            yield Unmanaged(capability=name, kind="file", name=path, stays=why)
    except ProbeFailed as error:
        for kind, resource in _list_entries(entry.resources):
            if f"{kind} {resource}" not in desired and kind in KINDS:
                yield Unmanaged(capability=name, kind=kind, name=resource, stays=str(error), unknown=True)  # type: ignore[arg-type]


def _list_possible(host: HostSpec, capability: Capability) -> Iterator[str]:
    """Yield every file and unit that a capability may want with this spec."""
    if resources := capability.resources:
        block = host.capabilities[capability.name]
        yield from (f"file {path}" for path in resources.paths(host, block))
        yield from (f"unit {name}" for name in (resources.units(host, block) if resources.units else ()))


def _list_entries(entries: Iterable[str]) -> list[tuple[str, str]]:
    """Return kind and name of each entry of a receipt."""
    pairs = [entry.partition(" ")[::2] for entry in entries]
    return [(kind, name.partition(" ")[2] if kind == "file" else name) for kind, name in pairs]


def _map_sums(entries: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each file among the entries of a receipt, by path."""
    files = [entry.split(" ", 2) for entry in entries if entry.startswith("file ")]
    return {path: digest for _, digest, path in (words for words in files if len(words) == 3)}


def _list_left(
    capability: str, entries: Iterable[str], desired: set[str], host_state: Contents, *, gone: bool
) -> Iterator[Unmanaged]:
    """gone: the spec has no block of the capability. Else units of packages and holds are its role's, whatever facts it
    lacks now."""
    sums = {path: digest for path, digest in _map_sums(entries).items() if f"file {path}" not in desired}
    changed = {
        path
        for path, entry in host_state.entries.items()
        if path in sums and (entry.kind, entry.sum) != ("f", sums[path])
    }
    for path in sums:
        if path in host_state.entries:
            yield Unmanaged(capability=capability, kind="file", name=path, stays=CHANGED if path in changed else "")
    for kind, name in _list_entries(entries):
        file = derive_unit_file(name)
        if (
            kind == "unit"
            and (gone or file in sums)
            and f"unit {name}" not in desired
            and (unit := host_state.units.get(name))
        ):
            runs = unit.active in RUNS
            stays = "its file was changed by others" if file in changed else "" if file in sums else BY_PACKAGE
            if runs or unit.file in STARTS:
                yield Unmanaged(capability=capability, kind="unit", name=name, runs=runs, stays=stays)
        elif kind == "hold" and gone and f"hold {name}" not in desired:
            yield Unmanaged(capability=capability, kind="hold", name=name)


def prune_values(
    host: HostSpec, facts: Facts, leftovers: Sequence[Unmanaged], names: Collection[str] | None = None
) -> dict[str, Any]:
    """Return what the role is handed that takes these away; empty where the receipt names nothing beyond the spec.
    names: of these capabilities alone.

    `files`: by path the sum that a file must have to go. `units`, `holds`: by name. `busy`: users' programs may depend
    on one of the units, or would be shut out by a setting. `forgotten`: capabilities that the receipt names no longer
    then. `settings`: lines of the receipt that are put back, if there are any. Beside them what these say
    (`Capability.pruned`).
    """
    receipt = facts.known(house.RECEIPT)
    applied = dict(receipt.capabilities) if receipt else {}
    if names is not None:
        applied = {name: entry for name, entry in applied.items() if name in names}
    unknown = {leftover.capability for leftover in leftovers if leftover.unknown}
    gone = [name for name in applied if name not in host.capabilities and name not in unknown]
    going = [leftover for leftover in leftovers if not leftover.stays and leftover.capability in applied]
    if not (going or gone):
        return {}
    named = {kind: [leftover.name for leftover in going if leftover.kind == kind] for kind in KINDS}
    sums = {path: digest for entry in applied.values() for path, digest in _map_sums(entry.resources or ()).items()}
    harmless = {name for name, capability in BY_NAME.items() if not capability.serves_jobs}
    settings = [
        setting
        for name, entry in applied.items()
        for setting in parse_settings(entry.resources or ())
        if any(leftover.capability == name and leftover.is_of(setting) for leftover in going)
    ]
    return {
        "files": {name: sums[name] for name in named["file"]},
        "units": named["unit"],
        "holds": named["hold"],
        "busy": any(leftover.kind == "unit" and leftover.capability not in harmless for leftover in going)
        or any(map(needs_idle, settings)),
        "forgotten": gone,
        **({"settings": [*map(format_setting, settings)]} if settings else {}),
        **dict(_list_pruned(gone, host, facts)),
    }


def _list_pruned(names: Sequence[str], host: HostSpec, facts: Facts) -> Iterator[tuple[str, Any]]:
    for capability in _list_capabilities(names):
        if capability.pruned:
            yield from capability.pruned(host, facts).items()


def in_words(values: Mapping[str, Any]) -> str:
    """Say what such values take away: `no longer asked for: 3 files, 1 unit`; empty for nothing."""
    if not values:
        return ""
    numbers = [counted(len(named), kind) for kind in get_args(Kind) if (named := values.get(f"{kind}s"))]
    gone = _list_capabilities(values["forgotten"])
    stays = ["users' processes must have left the GPUs"] * values["busy"]
    stays += [
        f"{capability.name} stays on the GPUs until {_format_block(capability)} is applied"
        for capability in gone
        if capability.taken_away and not capability.pruned
    ]
    return "; ".join([f"no longer asked for: {', '.join(numbers or values['forgotten'])}", *stays])


def _list_capabilities(names: Iterable[str]) -> list[Capability]:
    return [BY_NAME[name] for name in names if name in BY_NAME]


def _format_block(capability: Capability) -> str:
    """Return the block that takes it away, as a spec has it: `mig: {mode: disabled}`."""
    rows = ", ".join(f"{key}: {value}" for key, value in (capability.taken_away or {}).items())
    return f"{capability.name}: {{{rows}}}"


def lines(leftovers: Iterable[Unmanaged]) -> list[str]:
    """Describe them by capability and by what becomes of them: `mps: /etc/gpuprov/{a,b} (REASON)`."""
    alike: dict[tuple[str, str], list[str]] = {}
    for leftover in leftovers:
        before = f" (before: {leftover.before})" * bool(leftover.before)
        value = f" = {leftover.value}{before}" * (leftover.kind == "setting")
        alike.setdefault((leftover.capability, leftover.stays), []).append(f"{leftover.name}{value}")
    return [
        f"{capability}: {', '.join(fold_paths(names))}" + (f" ({stays})" if stays else "")
        for (capability, stays), names in alike.items()
    ]


def is_same(left: Iterable[Unmanaged], right: Iterable[Unmanaged]) -> bool:
    """Return whether both name the same; of settings a host may have said in one of them why they stay."""
    bare, other = (
        [msgspec.structs.replace(item, stays="", reboot="") if item.kind == "setting" else item for item in each]
        for each in (left, right)
    )
    return bare == other


def changes_of(leftovers: Iterable[Unmanaged]) -> Iterator[Change]:
    """Yield what becomes of those that --prune takes away."""
    for leftover in leftovers:
        if leftover.stays:
            continue
        if leftover.kind == "file":
            yield Change(kind="file", name=leftover.name, before="there", after="removed")
        elif leftover.kind == "unit":
            yield Change(
                kind="service", name=leftover.name, before="active" if leftover.runs else "enabled", after="disabled"
            )
        elif leftover.kind == "setting":
            yield Change(kind="setting", name=leftover.name, before=leftover.value, after=leftover.before)
        else:
            yield Change(kind="hold", name=leftover.name, before="held", after="not held")
