"""What an apply brought to a host and its spec asks for no longer. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from gpuprov.capabilities import BY_NAME, receipts
from gpuprov.capabilities.base import Capability, Change, Context
from gpuprov.onhost.systemd import FILES
from gpuprov.onhost.wanted_units import RUNS, STARTS
from gpuprov.probe.base import Facts, ProbeFailed
from gpuprov.probe.host import contents, house
from gpuprov.probe.host.contents import Contents
from gpuprov.shown import counted, fold_paths
from gpuprov.spec.model import HostSpec

Kind = Literal["file", "unit", "hold"]
KINDS = get_args(Kind)


class Unmanaged(msgspec.Struct, frozen=True, kw_only=True):
    """A file, a unit or a hold that is there as it was applied. `capability`: whose it was. `runs`: a unit that runs now. `stays`: the
    reason why --prune leaves it as it is; empty where it takes it away."""

    capability: str
    kind: Kind
    name: str
    runs: bool = False
    stays: str = ""


def find_unmanaged(host: HostSpec, facts: Facts, values: Mapping[str, Mapping[str, Any]] = {}) -> tuple[Unmanaged, ...]:
    """List what the host's receipt names and its spec does not. values: what roles are handed, by capability; of one of the spec
    without them, nothing is listed. Nor is anything of a host without a sound receipt."""
    receipt, found = facts.known(house.RECEIPT), facts.known(contents.CONTENTS)
    if receipt is None or receipt.damaged or found is None:
        return ()
    wanted, unsure = set[str](), set[str]()
    for name in host.capabilities:
        wanted |= set(_possible(host, BY_NAME[name])) if name in BY_NAME else set()
        try:
            wanted |= receipts.mentioned(BY_NAME[name], Context(host, host.capabilities[name], facts), values[name])
        except (KeyError, ProbeFailed):
            unsure.add(name)
    return tuple(
        one
        for name, entry in receipt.capabilities.items()
        if name not in unsure
        for one in _left(name, entry.resources, wanted, found, gone=name not in host.capabilities)
    )


def _possible(host: HostSpec, capability: Capability) -> Iterator[str]:
    """Yield every file and unit that a capability may want with this spec."""
    if resources := capability.resources:
        block = host.capabilities[capability.name]
        yield from (f"file {path}" for path in resources.paths(host, block))
        yield from (f"unit {name}" for name in (resources.units(host, block) if resources.units else ()))


def prune_values(host: HostSpec, facts: Facts, found: Sequence[Unmanaged]) -> dict[str, Any]:
    """Return what the role is handed that takes these away; empty where the receipt names nothing beyond the spec.

    `files`, `units`, `holds`: by name. `busy`: users' programs may depend on a unit that runs. `forgotten`: capabilities that the
    receipt names no longer then. Beside them what these capabilities say (`Capability.pruned`). Raises ProbeFailed.
    """
    receipt = facts.known(house.RECEIPT)
    gone = [name for name in receipt.capabilities if name not in host.capabilities] if receipt else []
    values = _values(found, gone)
    if values:
        values |= {
            key: value for one in _capabilities(gone) if one.pruned for key, value in one.pruned(host, facts).items()
        }
    return values


def narrow_values(values: Mapping[str, Any], found: Sequence[Unmanaged], names: Collection[str]) -> dict[str, Any]:
    """Return the values for these capabilities alone, none of which has values of its own (`Capability.pruned`)."""
    gone = [name for name in values.get("forgotten", ()) if name in names]
    return _values([one for one in found if one.capability in names], gone)


def _values(found: Sequence[Unmanaged], gone: list[str]) -> dict[str, Any]:
    going = [one for one in found if not one.stays]
    if not (going or gone):
        return {}
    named = {f"{kind}s": [one.name for one in going if one.kind == kind] for kind in KINDS}
    harmless = {name for name, one in BY_NAME.items() if not one.serves_jobs}
    busy = any(one.runs and one.capability not in harmless for one in going)
    return {**named, "busy": busy, "forgotten": gone}


def in_words(values: Mapping[str, Any]) -> str:
    """Say what such values take away: `no longer asked for: 3 files, 1 unit`; empty for nothing."""
    if not values:
        return ""
    numbers = [counted(len(values[f"{kind}s"]), kind) for kind in KINDS if values[f"{kind}s"]]
    gone = _capabilities(values["forgotten"])
    stays = [f"{one.until_boot} stay until the next boot" for one in gone if one.until_boot]
    stays += [
        f"{one.name} stays on the GPUs until {_block(one)} is applied"
        for one in gone
        if one.taken_away and not one.pruned
    ]
    return "; ".join([f"no longer asked for: {', '.join(numbers or values['forgotten'])}", *stays])


def _capabilities(names: Iterable[str]) -> list[Capability]:
    return [BY_NAME[name] for name in names if name in BY_NAME]


def _block(one: Capability) -> str:
    """Return the block that takes it away, as a spec has it: `mig: {mode: disabled}`."""
    rows = ", ".join(f"{key}: {value}" for key, value in (one.taken_away or {}).items())
    return f"{one.name}: {{{rows}}}"


def _left(
    capability: str, entries: tuple[str, ...], wanted: set[str], found: Contents, *, gone: bool
) -> Iterator[Unmanaged]:
    """gone: the spec has no block of the capability. Else units of packages and holds are its role's, whatever facts it lacks now."""
    listed = [one.partition(" ")[::2] for one in entries]
    files = {path: digest for kind, name in listed if kind == "file" for digest, path in [name.partition(" ")[::2]]}
    files = {path: digest for path, digest in files.items() if f"file {path}" not in wanted}
    for path, digest in files.items():
        if (entry := found.entries.get(path)) is not None:
            stays = "" if entry.kind == "f" and entry.sum == digest else "changed by others since it was applied"
            yield Unmanaged(capability=capability, kind="file", name=path, stays=stays)
    for kind, name in listed:
        own = f"{FILES}{_file_of(name)}" in files
        if kind == "unit" and (gone or own) and f"unit {name}" not in wanted and (unit := found.units.get(name)):
            runs = unit.active in RUNS
            if runs or unit.file in STARTS:
                stays = "" if own else "a package brings it"
                yield Unmanaged(capability=capability, kind="unit", name=name, runs=runs, stays=stays)
        elif kind == "hold" and gone and f"hold {name}" not in wanted:
            yield Unmanaged(capability=capability, kind="hold", name=name)


def lines(found: Iterable[Unmanaged]) -> list[str]:
    """Describe them by capability and by what becomes of them: `mps: /etc/gpuprov/{a,b} (REASON)`."""
    alike: dict[tuple[str, str], list[str]] = {}
    for one in found:
        alike.setdefault((one.capability, one.stays), []).append(one.name)
    return [
        f"{capability}: {', '.join(fold_paths(names))}" + (f" ({stays})" if stays else "")
        for (capability, stays), names in alike.items()
    ]


def changes_of(found: Iterable[Unmanaged]) -> Iterator[Change]:
    """Yield what becomes of those that --prune takes away."""
    for one in found:
        if one.stays:
            continue
        if one.kind == "file":
            yield Change(kind="file", name=one.name, before="there", after="removed")
        elif one.kind == "unit":
            yield Change(kind="service", name=one.name, before="active" if one.runs else "enabled", after="disabled")
        else:
            yield Change(kind="hold", name=one.name, before="held", after="not held")


def _file_of(unit: str) -> str:
    """Return the name of a unit's file: of an instance, its template."""
    name, at, rest = unit.partition("@")
    return f"{name}@.{rest.rpartition('.')[2]}" if at else unit
