"""What an apply brought to a host and its spec asks for no longer. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from gpuprov.capabilities import BY_NAME, receipts
from gpuprov.capabilities.base import Capability, Change, Context
from gpuprov.onhost.unit_files import unit_file
from gpuprov.onhost.wanted_units import RUNS, STARTS
from gpuprov.probe.base import Facts, ProbeFailed
from gpuprov.probe.host import contents, house
from gpuprov.probe.host.contents import Contents
from gpuprov.shown import counted, fold_paths
from gpuprov.spec.model import HostSpec

Kind = Literal["file", "unit", "hold"]
KINDS = get_args(Kind)
CHANGED = "changed by others since it was applied"
OLD = "an earlier gpuprov brought it, whose receipt does not say what: apply the block once more, then prune"


class Unmanaged(msgspec.Struct, frozen=True, kw_only=True):
    """A file, a unit or a hold that is there as it was applied. `capability`: whose it was. `runs`: a unit that runs now. `stays`: the
    reason why --prune leaves it as it is; empty where it takes it away. `unknown`: nobody knows how it is, so that the receipt goes on
    naming its capability."""

    capability: str
    kind: Kind
    name: str
    runs: bool = False
    stays: str = ""
    unknown: bool = False


def find_unmanaged(host: HostSpec, facts: Facts, values: Mapping[str, Mapping[str, Any]] = {}) -> tuple[Unmanaged, ...]:
    """List what the host's receipt names and its spec does not. values: what roles are handed, by capability; of one of the spec
    without them, nothing is listed. Nor is anything of a host without a sound receipt."""
    receipt = facts.known(house.RECEIPT)
    if receipt is None or receipt.damaged:
        return ()
    wanted, unsure = set[str](), set[str]()
    for name in host.capabilities:
        wanted |= set(_possible(host, BY_NAME[name])) if name in BY_NAME else set()
        try:
            wanted |= receipts.mentioned(BY_NAME[name], Context(host, host.capabilities[name], facts), values[name])
        except (KeyError, ProbeFailed):
            unsure.add(name)
            entry = receipt.capabilities.get(name)
            wanted |= {" ".join(one) for one in _listed(entry.resources or ())} if entry else set()
    found = list[Unmanaged]()
    for name, entry in receipt.capabilities.items():
        gone = name not in host.capabilities
        if gone:
            found += _gone(host, facts, name, entry, wanted)
        elif name not in unsure and (there := facts.known(contents.CONTENTS)):
            found += _left(name, entry.resources or (), wanted, there, gone=False)
    return tuple(found)


def _gone(host: HostSpec, facts: Facts, name: str, entry: house.Applied, wanted: set[str]) -> Iterator[Unmanaged]:
    """Yield what is left of a capability that the spec has no block of."""
    if entry.resources is None:
        yield Unmanaged(capability=name, kind="file", name="what it brought", stays=OLD, unknown=True)
        return
    try:
        there, known = facts.get(contents.CONTENTS), BY_NAME.get(name)
        for kind, one in _listed(entry.resources):
            if kind == "file" and one not in there.entries and one not in there.missing:
                raise ProbeFailed(f"{one} was not read on the host")
            if kind == "unit" and one not in there.units:
                raise ProbeFailed(f"systemd of the host did not say how it has {one}")
        if known and known.pruned:
            known.pruned(host, facts)
        yield from _left(name, entry.resources, wanted, there, gone=True)
    except ProbeFailed as error:
        for kind, one in _listed(entry.resources):
            if f"{kind} {one}" not in wanted and kind in KINDS:
                yield Unmanaged(capability=name, kind=kind, name=one, stays=str(error), unknown=True)  # type: ignore[arg-type]


def _possible(host: HostSpec, capability: Capability) -> Iterator[str]:
    """Yield every file and unit that a capability may want with this spec."""
    if resources := capability.resources:
        block = host.capabilities[capability.name]
        yield from (f"file {path}" for path in resources.paths(host, block))
        yield from (f"unit {name}" for name in (resources.units(host, block) if resources.units else ()))


def _listed(entries: Iterable[str]) -> list[tuple[str, str]]:
    """Return kind and name of each entry of a receipt."""
    pairs = [one.partition(" ")[::2] for one in entries]
    return [(kind, name.partition(" ")[2] if kind == "file" else name) for kind, name in pairs]


def _sums(entries: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each file among the entries of a receipt, by path."""
    files = [one.split(" ", 2) for one in entries if one.startswith("file ")]
    return {path: digest for _, digest, path in (one for one in files if len(one) == 3)}


def _left(
    capability: str, entries: Iterable[str], wanted: set[str], found: Contents, *, gone: bool
) -> Iterator[Unmanaged]:
    """gone: the spec has no block of the capability. Else units of packages and holds are its role's, whatever facts it lacks now."""
    sums = {path: digest for path, digest in _sums(entries).items() if f"file {path}" not in wanted}
    changed = {path for path, one in found.entries.items() if path in sums and (one.kind, one.sum) != ("f", sums[path])}
    for path in sums:
        if path in found.entries:
            yield Unmanaged(capability=capability, kind="file", name=path, stays=CHANGED if path in changed else "")
    for kind, name in _listed(entries):
        file = unit_file(name)
        if (
            kind == "unit"
            and (gone or file in sums)
            and f"unit {name}" not in wanted
            and (unit := found.units.get(name))
        ):
            runs = unit.active in RUNS
            stays = (
                "its file was changed by others" if file in changed else "" if file in sums else "a package brings it"
            )
            if runs or unit.file in STARTS:
                yield Unmanaged(capability=capability, kind="unit", name=name, runs=runs, stays=stays)
        elif kind == "hold" and gone and f"hold {name}" not in wanted:
            yield Unmanaged(capability=capability, kind="hold", name=name)


def prune_values(
    host: HostSpec, facts: Facts, found: Sequence[Unmanaged], names: Collection[str] | None = None
) -> dict[str, Any]:
    """Return what the role is handed that takes these away; empty where the receipt names nothing beyond the spec. names: of these
    capabilities alone.

    `files`: by path the sum that a file must have to go. `units`, `holds`: by name. `busy`: users' programs may depend on one of the
    units. `forgotten`: capabilities that the receipt names no longer then. Beside them what these say (`Capability.pruned`).
    """
    receipt = facts.known(house.RECEIPT)
    applied = {
        name: one for name, one in (receipt.capabilities if receipt else {}).items() if names is None or name in names
    }
    unknown = {one.capability for one in found if one.unknown}
    gone = [name for name in applied if name not in host.capabilities and name not in unknown]
    going = [one for one in found if not one.stays and one.capability in applied]
    if not (going or gone):
        return {}
    sums = {path: digest for one in applied.values() for path, digest in _sums(one.resources or ()).items()}
    harmless = {name for name, one in BY_NAME.items() if not one.serves_jobs}
    return {
        "files": {one.name: sums[one.name] for one in going if one.kind == "file"},
        "units": [one.name for one in going if one.kind == "unit"],
        "holds": [one.name for one in going if one.kind == "hold"],
        "busy": any(one.kind == "unit" and one.capability not in harmless for one in going),
        "forgotten": gone,
        **{key: value for one in _capabilities(gone) if one.pruned for key, value in one.pruned(host, facts).items()},
    }


def in_words(values: Mapping[str, Any]) -> str:
    """Say what such values take away: `no longer asked for: 3 files, 1 unit`; empty for nothing."""
    if not values:
        return ""
    numbers = [counted(len(values[f"{kind}s"]), kind) for kind in KINDS if values[f"{kind}s"]]
    gone = _capabilities(values["forgotten"])
    stays = ["users' processes must have left the GPUs"] * values["busy"]
    stays += [f"{one.until_boot} stay until the next boot" for one in gone if one.until_boot]
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
