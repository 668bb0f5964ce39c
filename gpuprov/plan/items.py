"""The items of a plan: each difference on a host, once, however a terminal or a page draws parts of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpuprov.capabilities.mig.partitions import Partition
from gpuprov.plan.fold import after_cut, before_cut, settings
from gpuprov.plan.model import HOST, HostPlan, Item

DISABLED = "MIG disabled"
Key = tuple[str, str]
"""Identity of a difference: the kind, and the name without the architecture of a package."""


def key(item: Item) -> Key:
    """Return the identity of an item, whatever its values."""
    return item.kind, item.name.partition(":")[0] if item.kind in ("package", "hold") else item.name


def items(plan: HostPlan) -> tuple[Item, ...]:
    """Return the items of a host: a file with its difference replaces the file alone, and a GPU's layout its instances."""
    compared = {one.name for one in plan.diffs}
    drawn = {*plan.section("setting")} - {*settings(plan)}
    changes = [one for one in plan.changes if one not in drawn and not (one.kind == "file" and one.name in compared)]
    return (*changes, *plan.diffs, *map(_layout, plan.mig))


def by_capability(plan: HostPlan) -> dict[str, list[Item]]:
    """Return the items of a host by capability, in apply order, without clients, which are shown apart."""
    found: dict[str, list[Item]] = {name: [] for name in plan.run}
    for one in items(plan):
        if one.kind != "client":
            found.setdefault(one.capability or HOST, []).append(one)
    return found


def _layout(one: Partition) -> Item:
    before = before_cut(one) if one.enabled_before else DISABLED
    return Item(
        capability="mig",
        kind="mig",
        name=one.gpu,
        before=before,
        after=after_cut(one) if one.enabled_after else DISABLED,
    )


def sizes(lists: Sequence[Iterable[Item]]) -> list[str]:
    """Describe the sizes of hosts' lists: `12 to 15 packages`, `5 files`, `MIG layout of 8 GPUs on 2`."""
    each = [tuple(one) for one in lists]
    told = []
    for what, plural, counted in COUNTED:
        numbers = [len({one.name for one in found if counted(one)}) for found in each]
        if most := max(numbers, default=0):
            told.append(f"{span(numbers)} {what if most == 1 else plural}")
    gpus = [number for found in each if (number := sum(one.kind == "mig" for one in found))]
    if gpus:
        some = f" on {len(gpus):,}" if len(gpus) < len(each) else ""
        told.append(f"MIG layout of {span(gpus)} GPU{'s' * (max(gpus) != 1)}{some}")
    return told


COUNTED: tuple[tuple[str, str, Callable[[Item], bool]], ...] = (
    ("package", "packages", lambda one: one.kind == "package"),
    ("hold", "holds", lambda one: one.kind == "hold"),
    ("file", "files", lambda one: one.kind == "file" and one.name.startswith("/")),
    ("unit", "units", lambda one: one.kind == "service"),
    ("module", "modules", lambda one: one.kind == "module"),
    ("initramfs", "initramfs images", lambda one: one.kind == "initramfs"),
    ("setting", "settings", lambda one: one.kind == "setting"),
    ("client stopped", "clients stopped", lambda one: one.kind == "client"),
)
"""Kinds of a plan's sentence: one, several, and what counts. Each name is counted once."""


def span(numbers: Sequence[int]) -> str:
    """Format the smallest and the largest: `3`, `2 to 3`, `up to 3`."""
    low, high = min(numbers), max(numbers)
    return str(high) if low == high else f"{low} to {high}" if low else f"up to {high}"
