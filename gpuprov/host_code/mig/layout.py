"""The MIG instances that a layout requests on each GPU. Standard library only, Python 3.8: hosts have this file too.

A layout is a spec's own list, or one selected from a mig-parted file (`version: v1`), which is read with the semantics
of mig-parted v0.15: https://github.com/NVIDIA/mig-parted/blob/main/api/spec/v1/spec.go. Both become the same entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# https://github.com/NVIDIA/go-nvlib/blob/main/pkg/nvlib/device/mig_profile.go; filters: mig-parted, pkg/types/device.go
_ATTRIBUTE, _N = r"[a-zA-Z](?:[a-zA-Z0-9.]*[a-zA-Z0-9])?", r"(\d{1,9})"
_NAME = re.compile(rf"(?:MIG )?(?:{_N}c\.)?{_N}g\.{_N}gb(?:([+-])({_ATTRIBUTE}(?:,{_ATTRIBUTE})*))?")
_GRAMMAR = "a profile is written 3g.40gb, 1c.3g.40gb (a compute instance in it), 1g.10gb+me or 1g.24gb-me"
_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[01][0-9a-f]\.[0-7])")
_MOST = 64
_ENTRY_KEYS, _ITEM_KEYS = ("gpus", "mode", "instances"), ("profile", "placement", "count", "compute")
PARTED_KEYS = ("device-filter", "devices", "mig-enabled", "mig-devices")


class LayoutError(ValueError):
    """A layout that cannot be read or does not fit the GPUs; one line, with the place."""


def _refuse(wrong: object, text: str) -> None:
    if wrong:
        raise LayoutError(text)


class ProfileName(NamedTuple):
    """The parsed name of a MIG device. `compute`: slices of the compute instance; None: those of the GPU instance.

    A removed attribute keeps its minus sign: ("me",) of 1g.10gb+me, ("-me",) of 1g.24gb-me.
    """

    compute: int | None
    slices: int
    gigabytes: int
    attributes: tuple[str, ...] = ()

    @property
    def gpu_instance(self) -> str:
        """The profile of the GPU instance: "3g.40gb", "1g.10gb+me", "1g.24gb-me"."""
        sign = "-" if any(name.startswith("-") for name in self.attributes) else "+"
        names = ",".join(name.lstrip("-") for name in self.attributes)
        return f"{self.slices}g.{self.gigabytes}gb" + (sign + names if names else "")


class Gpu(NamedTuple):
    """A GPU. `index`: by PCI address; `model`: a key of the catalogue, or empty; `pci`, `subsystem`: "0xDDDDVVVV"."""

    index: int  # type: ignore[assignment]
    address: str
    uuid: str
    model: str
    name: str
    pci: str
    subsystem: str
    capable: bool


class Instance(NamedTuple):
    """A GPU instance at memory slice `start` (None: any). `compute`: compute instances' sizes; empty: one for all."""

    profile: str
    start: int | None = None
    compute: tuple[int, ...] = ()


class Target(NamedTuple):
    """The desired state of one GPU."""

    enabled: bool
    instances: tuple[Instance, ...] = ()


class Entry(NamedTuple):
    """An entry of a layout. `gpus`: indexes, PCI addresses, UUIDs, models; None: all. `filters`: of mig-parted."""

    place: str
    gpus: tuple[int | str, ...] | None
    enabled: bool
    instances: tuple[Instance, ...] = ()
    filters: tuple[str, ...] = ()
    parted: bool = False


def parse_profile(text: str, place: str = "") -> ProfileName:
    """Parse a name as nvidia-smi writes it, with or without "MIG ". Raises LayoutError, which begins with the place."""
    parsed, label = _NAME.fullmatch(str(text)), f'{place}: "{text}"' if place else f'"{text}"'
    if not parsed:
        near = re.search(r"(?<![0-9])((?:[1-9]c\.)?[1-9]g)\.?([0-9]{1,3}gb)\Z", str(text).lower())
        raise LayoutError(f"{label} is not a MIG profile; {f'write {near[1]}.{near[2]}; ' if near else ''}{_GRAMMAR}")
    compute, slices, gigabytes, sign, names = parsed.groups()
    attributes = sorted(set(names.split(","))) if names else []
    _refuse(names and len(attributes) < len(names.split(",")), f"{label} names an attribute twice")
    size, parts = int(slices), int(compute) if compute else None
    wrong = not size or parts == 0 or (parts or 0) > size
    _refuse(wrong, f"{label}: a compute instance has 1 to all slices of its GPU instance")
    prefix = "-" if sign == "-" else ""
    return ProfileName(None if parts == size else parts, size, int(gigabytes), tuple(prefix + a for a in attributes))


def normalize_layout(
    mode: str, layout: Sequence[Mapping[str, Any]], parted: Sequence[Mapping[str, Any]] | None = None
) -> list[Entry]:
    """Return the entries, in order. Raises LayoutError with the place ("layout[0].instances").

    `layout`: {"gpus": "all" or [index, PCI address, UUID, model], "mode": "enabled" or "disabled", "instances":
    {profile: number of MIG devices} or [{"profile", "placement", "count", "compute": {"1c": 2}}]}. `parted`: the
    entries under one label of a mig-parted file. Without any list: one mode for all GPUs.
    """
    enabled = parse_mode("mode", mode)
    if parted is not None:
        _refuse(layout, "layout and a mig-parted file exclude each other; remove one of them")
        return [parse_parted_entry(f"entry {number}", entry) for number, entry in enumerate(parted)]
    if not layout:
        return [Entry("mode", None, enabled)]
    _refuse(not enabled, "mode is disabled and layout has entries; say mode: disabled in the entries that mean it")
    return [parse_entry(f"layout[{number}]", entry) for number, entry in enumerate(layout)]


def parse_entry(place: str, entry: Any) -> Entry:
    refuse_unknown(place, entry, _ENTRY_KEYS)
    enabled, parts = parse_mode(f"{place}.mode", entry.get("mode", "enabled")), entry.get("instances") or {}
    _refuse(parts and not enabled, f"{place}.instances: a GPU with mode: disabled has none; remove them or the mode")
    gpus = parse_gpus(f"{place}.gpus", entry.get("gpus", "all"))
    return Entry(place, gpus, enabled, parse_instances(f"{place}.instances", parts))


def parse_mode(place: str, mode: Any) -> bool:
    _refuse(mode not in ("enabled", "disabled"), f'{place} is "{mode}"; allowed: disabled, enabled')
    return bool(mode == "enabled")


def parse_gpus(place: str, value: Any) -> tuple[int | str, ...] | None:
    if value == "all":
        return None
    allowed = "all, or a list of indexes, PCI addresses, UUIDs and models"
    _refuse(not isinstance(value, (list, tuple)) or not value, f"{place} is {value!r}; allowed: {allowed}")
    for name in value:
        good = name >= 0 if type(name) is int else isinstance(name, str) and name
        _refuse(not good, f"{place}: {name!r} names no GPU; allowed: {allowed}")
    return tuple(value)


def parse_instances(place: str, requested: Any) -> tuple[Instance, ...]:
    if isinstance(requested, Mapping):
        return parse_counted(place, requested)
    fix = "write {profile: count}, or a list of {profile, placement, count, compute}"
    _refuse(not isinstance(requested, (list, tuple)), f"{place}: {fix}")
    return tuple(part for number, item in enumerate(requested) for part in parse_listed(f"{place}[{number}]", item))


def parse_counted(place: str, counts: Mapping[Any, Any]) -> tuple[Instance, ...]:
    """Return MIG devices as mig-parted counts them: compute instances of a profile share GPU instances where they fit.

    mig-parted tries orders, largest first, until the driver accepts one. If GPU instances are scarce, that results in
    the fewest that hold all compute instances, which this returns.
    """
    # https://github.com/NVIDIA/mig-parted/blob/main/pkg/mig/config/config.go (SetMigConfig)
    devices: list[tuple[ProfileName, int]] = []
    for text, count in counts.items():
        name = parse_profile(text, place)
        devices += [(name, name.compute or name.slices)] * parse_number(f"{place}: {text}", count)
    _refuse(counts and not devices, f"{place}: all counts are 0; for a GPU with MIG mode and no instances write {{}}")
    packed: list[Any] = []
    for name, size in sorted(devices, key=lambda pair: (-pair[0].slices, pair[0].gpu_instance, -pair[1])):
        room = [p for p in packed if p[0] == name.gpu_instance and sum(p[2]) + size <= name.slices]
        if room:
            room[0][2].append(size)
        else:
            packed.append((name.gpu_instance, name.slices, [size]))
    return tuple(Instance(profile, None, split_slices(compute, slices)) for profile, slices, compute in packed)


def parse_listed(place: str, item: Any) -> list[Instance]:
    refuse_unknown(place, item, _ITEM_KEYS)
    _refuse("profile" not in item, f"{place}: profile is missing; {_GRAMMAR}")
    name = parse_profile(item["profile"], f"{place}.profile")
    if name.compute:
        fix = f"profile: {name.gpu_instance}, compute: {{{name.compute}c: 1}}"
        raise LayoutError(f"{place}.profile: name the GPU instance here, and what is in it under compute: {fix}")
    start, count = item.get("placement"), parse_number(f"{place}.count", item.get("count", 1), 1)
    if start is not None:
        parse_number(f"{place}.placement", start)
        _refuse(count > 1, f"{place}: {count} instances cannot all start at slice {start}; write one item for each")
    compute = _compute(f"{place}.compute", item.get("compute") or {})
    return [Instance(name.gpu_instance, start, split_slices(compute, name.slices))] * count


def _compute(place: str, requested: Any) -> list[int]:
    _refuse(not isinstance(requested, Mapping), f"{place} is {requested!r}; write {{1c: 2}}: how many of which size")
    sizes: list[int] = []
    for text, count in requested.items():
        wrong = not re.fullmatch(r"[1-9]\d?c", str(text))
        _refuse(wrong, f'{place}: "{text}" is not a size; write {{1c: 2}}: how many of which size')
        sizes += [int(text[:-1])] * parse_number(f"{place}: {text}", count)
    _refuse(requested and not sizes, f"{place}: all counts are 0; without compute one instance spans all slices")
    return sorted(sizes, reverse=True)


def parse_number(place: str, value: Any, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= _MOST:
        raise LayoutError(f"{place} is {value!r}; allowed: whole numbers from {least} to {_MOST}")
    return value


def split_slices(compute: list[int], slices: int) -> tuple[int, ...]:
    return () if compute == [slices] else tuple(compute)


def refuse_unknown(place: str, value: Any, allowed: Sequence[str]) -> None:
    _refuse(not isinstance(value, Mapping), f"{place} is {value!r}; write a mapping of {', '.join(allowed)}")
    for key in value:
        _refuse(key not in allowed, f'{place}: unknown key "{key}"; allowed: {", ".join(allowed)}')


def parse_parted_entry(place: str, entry: Any) -> Entry:
    refuse_unknown(place, entry, PARTED_KEYS)
    devices, enabled, filters = entry.get("devices"), entry.get("mig-enabled"), entry.get("device-filter") or ()
    good = devices == "all" or (isinstance(devices, list) and all(type(number) is int for number in devices))
    _refuse(not good, f"{place}.devices is {devices!r}; allowed: all, or a list of indexes")
    _refuse(not isinstance(enabled, bool), f"{place}.mig-enabled is {enabled!r}; allowed: true, false")
    filters = (filters,) if isinstance(filters, str) else filters
    good = isinstance(filters, (list, tuple)) and all(isinstance(text, str) for text in filters)
    _refuse(not good, f"{place}.device-filter is {filters!r}; write it as text or a list of texts")
    requested = entry.get("mig-devices") or {}
    missing = enabled and "mig-devices" not in entry
    _refuse(missing, f"{place}: mig-devices is missing; MIG mode without instances is written mig-devices: {{}}")
    _refuse(not isinstance(requested, Mapping), f"{place}.mig-devices is {requested!r}; write {{profile: count}}")
    instances = parse_counted(f"{place}.mig-devices", requested)
    _refuse(instances and not enabled, f"{place}.mig-devices: a GPU with mig-enabled: false has none")
    return Entry(place, None if devices == "all" else tuple(devices), enabled, instances, tuple(filters), True)


def select_targets(entries: Iterable[Entry], gpus: Sequence[Gpu]) -> dict[int, Target]:
    """Return the desired state of each named GPU, by index; later entries win. Raises LayoutError.

    "all", also with a filter, leaves out GPUs without MIG; MIG on such a GPU by any other name is an error. A name in a
    spec's own list that is not a GPU here is an error; mig-parted skips it. mig-parted stops if two entries give one
    GPU different modes: https://github.com/NVIDIA/mig-parted/blob/main/cmd/nvidia-mig-parted/apply/config.go
    """
    result: dict[int, Target] = {}
    for entry in entries:
        for gpu in select_named(entry, gpus):
            if gpu.capable:
                other = entry.parted and gpu.index in result and result[gpu.index].enabled != entry.enabled
                _refuse(other, f"{entry.place}: GPU {gpu.index} has another mode in an earlier entry")
                result[gpu.index] = Target(entry.enabled, entry.instances)
            elif entry.enabled and entry.gpus is not None:
                raise LayoutError(f"{entry.place}: GPU {gpu.index} ({gpu.model or gpu.name}) has no MIG")
    return result


def select_named(entry: Entry, gpus: Sequence[Gpu]) -> list[Gpu]:
    if entry.parted:
        filtered = [gpu for gpu in gpus if not entry.filters or any(passes(text, gpu) for text in entry.filters)]
        return [gpu for gpu in filtered if entry.gpus is None or gpu.index in entry.gpus]
    chosen = gpus if entry.gpus is None else [gpu for gpu in gpus if any(is_named(name, gpu) for name in entry.gpus)]
    for name in entry.gpus or ():
        if not any(is_named(name, gpu) for gpu in chosen):
            known = ", ".join(f"{gpu.index} {gpu.address} {gpu.model or gpu.name}" for gpu in gpus) or "none"
            raise LayoutError(f"{entry.place}.gpus: no GPU here is {name}; there are: {known}")
    return list(chosen)


def is_named(name: int | str, gpu: Gpu) -> bool:
    """Return whether a name is this GPU: its index, PCI address (any usual form), UUID, model or product name."""
    if not isinstance(name, str):
        return name == gpu.index
    if is_address(name):
        return is_address(name) == is_address(gpu.address)
    return name.lower() in (known.lower() for known in (gpu.uuid, gpu.model, gpu.name) if known)


def is_address(name: str) -> tuple[int, str] | None:
    """Parse a PCI address in any usual form to (domain, the rest); None if it is none."""
    parsed = _ADDRESS.fullmatch(name.lower())
    return (int(parsed[1] or "0", 16), parsed[2]) if parsed else None


def passes(filter_: str, gpu: Gpu) -> bool:
    """Return whether a filter of mig-parted, "0xDDDDVVVV" or "0xDDDDVVVV:0xSSSSVVVV", matches this GPU."""
    ids = filter_ids(filter_)
    return bool(ids) and (parse_id(gpu.pci), parse_id(gpu.subsystem))[: len(ids)] == ids


def filter_ids(filter_: str) -> tuple[int, ...]:
    """Return the one or two numbers of a device-filter; empty if mig-parted cannot read it."""
    ids = tuple(parse_id(part) for part in filter_.split(":"))
    return () if len(ids) > 2 or None in ids else tuple(number for number in ids if number is not None)


def parse_id(text: str) -> int | None:
    parsed = re.fullmatch(r"0[xX]([0-9a-fA-F]{1,8})|([1-9][0-9]{0,9}|0)", text)
    number = (int(parsed[1], 16) if parsed[1] else int(parsed[2])) if parsed else 1 << 32
    return number if number < 1 << 32 else None
