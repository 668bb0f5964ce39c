"""The items of a plan: each difference on a host, once, however a terminal or a page draws parts of it."""

from collections.abc import Callable, Iterable, Sequence

from gpuprov.capabilities.mig.partitions import Partition
from gpuprov.plan.fold import after_cut, before_cut, settings
from gpuprov.plan.model import HOST, HostPlan, Item

DISABLED = "MIG disabled"
# Identity of a difference: the kind, and the name without the architecture of a package.
Key = tuple[str, str]


def key(item: Item) -> Key:
    """Return the identity of an item, whatever its values."""
    return item.kind, item.name.partition(":")[0] if item.kind in ("package", "hold") else item.name


def items(plan: HostPlan) -> tuple[Item, ...]:
    """Return the items of a host: a file with its difference replaces the file alone, and a GPU's layout its
    instances."""
    compared = {diff.name for diff in plan.diffs}
    drawn = {*plan.section("setting")} - {*settings(plan)}
    changes = [
        change
        for change in plan.changes
        if change not in drawn and not (change.kind == "file" and change.name in compared)
    ]
    return (*changes, *plan.diffs, *map(_make_layout_item, plan.mig))


def by_capability(plan: HostPlan) -> dict[str, list[Item]]:
    """Return the items of a host by capability, in apply order, without clients, which are shown apart."""
    groups: dict[str, list[Item]] = {name: [] for name in plan.run}
    for item in items(plan):
        if item.kind != "client":
            groups.setdefault(item.capability or HOST, []).append(item)
    return groups


def _make_layout_item(partition: Partition) -> Item:
    before = before_cut(partition) if partition.enabled_before else DISABLED
    return Item(
        capability="mig",
        kind="mig",
        name=partition.gpu,
        before=before,
        after=after_cut(partition) if partition.enabled_after else DISABLED,
    )


def sizes(lists: Sequence[Iterable[Item]]) -> list[str]:
    """Describe the sizes of hosts' lists: `12 to 15 packages`, `5 files`, `MIG layout of 8 GPUs on 2`."""
    each = [tuple(series) for series in lists]
    parts = []
    for what, plural, counted in COUNTED:
        numbers = [len({item.name for item in group if counted(item)}) for group in each]
        if most := max(numbers, default=0):
            parts.append(f"{span(numbers)} {what if most == 1 else plural}")
    gpus = [number for group in each if (number := sum(item.kind == "mig" for item in group))]
    if gpus:
        some = f" on {len(gpus):,}" if len(gpus) < len(each) else ""
        parts.append(f"MIG layout of {span(gpus)} GPU{'s' * (max(gpus) != 1)}{some}")
    return parts


# Kinds of a plan's sentence: one, several, and what counts. Each name is counted once.
COUNTED: tuple[tuple[str, str, Callable[[Item], bool]], ...] = (
    ("package", "packages", lambda item: item.kind == "package"),
    ("hold", "holds", lambda item: item.kind == "hold"),
    ("file", "files", lambda item: item.kind == "file" and item.name.startswith("/")),
    ("unit", "units", lambda item: item.kind == "service"),
    ("module", "modules", lambda item: item.kind == "module"),
    ("initramfs", "initramfs images", lambda item: item.kind == "initramfs"),
    ("setting", "settings", lambda item: item.kind == "setting"),
    ("client stopped", "clients stopped", lambda item: item.kind == "client"),
)


def span(numbers: Sequence[int]) -> str:
    """Format the smallest and the largest: `3`, `2 to 3`, `up to 3`."""
    low, high = min(numbers), max(numbers)
    return str(high) if low == high else f"{low} to {high}" if low else f"up to {high}"
