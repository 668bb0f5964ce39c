"""Rows that list changes, as plan and apply show them on a terminal and on a page: what is equal is one row with its
members."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from gpuprov.capabilities.base import Change
from gpuprov.plan.fold import Sign, by_folder, sets, sign
from gpuprov.plan.model import Item

NOTHING_HELD = ("", "held", "not held")
# Number of devices from which equal changes share a row.
ALIKE = 3
_DEVICE = re.compile(r"GPU \d+(?: \([^()]*\))?|(?<![\w:.])(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?!\w)")


_FOLDED = re.compile(r"(/.*)/\{([^{}]+)\}")


class Row(NamedTuple):
    """A row: its sign, its text, and the members that the text summarises."""

    sign: Sign
    text: str
    members: tuple[str, ...] = ()
    # A terminal names the members, too.
    spelled: bool = False
    # What they are, where the text does not say how many.
    noun: str = ""

    def line(self, *, verbose: bool = False) -> str:
        """Format the row for a terminal. verbose: with its members."""
        return f"{self.text}: {', '.join(self.members)}" if self.members and (self.spelled or verbose) else self.text


def rows(changes: Iterable[Item]) -> list[Row]:
    """List changes: packages and layouts with equal changes share a row, as do files of one folder and equal settings
    of devices."""
    items = list(changes)
    packages = [item for item in items if item.kind == "package"]
    others = [item for item in items if item.kind not in ("package", "hold", "mig")]
    return [
        *_list_package_rows(packages),
        *_list_hold_rows([item for item in items if item.kind == "hold"], packages),
        *(
            Row(entry.sign, f"{_join_gpus(entry.names)}: {_describe_outcome(entry.before, entry.end)}")
            for entry in sets(_list_of_kind("mig", items))
        ),
        *_list_device_rows(others),
    ]


def describe(change: Change) -> str:
    """Describe a change in words."""
    if change.before and change.after:
        return f"{change.name}: {change.before} -> {change.after}"
    rest = change.after or change.before
    return f"{change.name}: {rest}" if rest else change.name


def _list_of_kind(kind: str, items: Iterable[Item]) -> Iterator[Item]:
    return (item for item in items if item.kind == kind)


def _describe_outcome(before: str, end: str) -> str:
    return f"{before} -> {end}" if before not in NOTHING_HELD else end


def _list_package_rows(packages: Sequence[Item]) -> Iterator[Row]:
    """Yield sets of packages that move alike; packages with versions of their own share a row for each sign."""
    package_sets = sets(packages)
    single: dict[Sign, list[str]] = {}
    for entry in package_sets:
        if len(entry.names) == 1 and entry.after:
            version = _describe_outcome(entry.before, entry.end)
            single.setdefault(entry.sign, []).append(f"{entry.names[0]} {version}")
    together = {mark: tuple(named) for mark, named in single.items() if len(named) > 1}
    for entry in package_sets:
        if not (entry.sign in together and len(entry.names) == 1 and entry.after):
            yield Row(entry.sign, _describe_outcome(entry.before, entry.end), entry.names, True, "packages")
    yield from (Row(mark, f"{len(named)} packages", named, True) for mark, named in together.items())


def _list_hold_rows(holds: Sequence[Item], packages: Sequence[Item]) -> Iterator[Row]:
    """Yield holds; those of a set of packages, all of which are named above, name it by its version."""
    named = {frozenset(_list_bare(entry.names)): entry for entry in sets(packages) if len(entry.names) > ALIKE}
    for entry in sets(holds):
        whole = named.get(frozenset(_list_bare(entry.names)))
        if whole:
            yield Row(entry.sign, f"{entry.end}: the {len(entry.names)} packages of {whole.end}", entry.names)
        else:
            yield Row(entry.sign, entry.end, entry.names, True)


def _list_bare(names: Iterable[str]) -> Iterator[str]:
    return (name.partition(":")[0] for name in names)


def _list_device_rows(items: Sequence[Item]) -> Iterator[Row]:
    """Yield files by folder, and a row for equal changes of several devices."""
    alike: dict[object, list[Item]] = {}
    for item in items:
        setting = item.kind == "setting"
        alike.setdefault((_find_setting(item.name), item.before, item.after) if setting else id(item), []).append(item)
    kept: list[Item] = []
    for group in alike.values():
        if len(group) < ALIKE or not _DEVICE.search(group[0].name):
            kept += group
    shared = {id(item) for item in kept}
    for item in by_folder(item for item in items if id(item) in shared):
        folded = _FOLDED.fullmatch(item.name)
        members = tuple(folded[2].split(",")) if folded else ()
        if folded and len(members) > ALIKE:
            text = describe(msgspec.structs.replace(item, name=f"{len(members)} files in {folded[1]}"))
            yield Row(sign(item), text, members)
        else:
            yield Row(sign(item), describe(item))
    for group in alike.values():
        if id(group[0]) not in shared:
            yield Row(sign(group[0]), _summarize_row(group), tuple(_find_device(item.name) for item in group))


def _find_device(name: str) -> str:
    match = _DEVICE.search(name)
    return match[0] if match else name


def _find_setting(name: str) -> str:
    """Return the name of a setting without its device."""
    return re.sub(r" of\Z", "", _DEVICE.sub("", name).strip(" :"))


def _summarize_row(group: Sequence[Item]) -> str:
    first, what = group[0], _find_setting(group[0].name)
    devices = [_find_device(item.name) for item in group]
    noun = "ports" if what.startswith("ACS") else "PCIe devices"
    which = _join_gpus(devices) if devices[0].startswith("GPU ") else f"{len(group)} {noun}"
    values = " -> ".join(filter(None, (first.before, first.after)))
    return f"{which}: {' '.join(filter(None, (what, values)))}"


def _join_gpus(names: Sequence[str]) -> str:
    """Return the names of GPUs; those of several as `GPUs 0, 1, 2`."""
    numbers = [match[1] for name in names if (match := re.match(r"GPU (\d+)", name))]
    return f"GPUs {', '.join(numbers)}" if 1 < len(numbers) == len(names) else ", ".join(names)


# Number of lines beyond which a terminal folds a diff.
LONG = 20


def is_long(diff: str) -> bool:
    """Return whether a terminal shows only the size of a diff."""
    return diff.count("\n") > LONG


def size(diff: str) -> str:
    """Describe the size of a diff: `3 lines added, 1 removed`."""
    lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
    added, removed = (sum(line.startswith(mark) for line in lines) for mark in "+-")
    parts = [f"{added} line{'s' * (added != 1)} added"] if added or not removed else []
    return ", ".join([*parts, *([f"{removed} removed"] if removed else [])])
