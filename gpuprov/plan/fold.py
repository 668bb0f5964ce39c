"""Condenses plans: groups hosts with the same plan, packages that move as one set, and additions, removals and
changes."""

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from gpuprov.capabilities.base import Change
from gpuprov.capabilities.mig.partitions import Part, Partition
from gpuprov.core.sanitize import counted, fold_paths
from gpuprov.inventory.names import fold_names as names
from gpuprov.plan.model import HostPlan, Item

Sign = Literal["+", "-", "~"]
GONE = ("not held", "removed", "destroyed", "disabled", "stopped", "unloaded", "ended")
ANEW = ("rebuilt", "restarted", "reloaded", "made anew")
NOTHING = ("", "absent", "none", "no key", "not held")
_MOMENT = re.compile(r" ?\(?\d{4}-\d\d-\d\dT[0-9:.]+Z?\)?")
_PROCESS = re.compile(r"\bpid \d+(?:, )?|(?<=process) \d+(?=\))|(?<=\.service) \d+(?=\))|(?<=\.scope) \d+(?=\))")


class Group(NamedTuple):
    """Hosts with the same plan."""

    # The first one's, without what differs on each host (times, process ids).
    plan: HostPlan
    hosts: tuple[str, ...]

    @property
    def where(self) -> str:
        return names(self.hosts)

    @property
    def state(self) -> Literal["blocked", "unreachable", "changes", "idle"]:
        if self.plan.unreachable:
            return "unreachable"
        return "blocked" if self.plan.blocked else "idle" if self.plan.idle else "changes"


ORDER = ("blocked", "unreachable", "changes", "idle")


class Set(NamedTuple):
    """Packages with the same change."""

    sign: Sign
    before: str
    after: str
    names: tuple[str, ...]

    @property
    def end(self) -> str:
        """Return their outcome: a version, or a word if none is known."""
        return self.after or ("installed" if self.sign == "+" else "removed")


class Cut(NamedTuple):
    """GPUs that are partitioned alike; `gpus` as `GPUs 0, 1`."""

    gpus: str
    layout: Partition


def groups(plans: Sequence[HostPlan]) -> list[Group]:
    """Group the hosts by plan: blocked and unreachable ones first, else in the order given."""
    alike: dict[bytes, list[HostPlan]] = {}
    for plan in plans:
        alike.setdefault(_compute_likeness(plan), []).append(plan)
    folded = [Group(_merge_plans(group), tuple(plan.host for plan in group)) for group in alike.values()]
    return sorted(folded, key=lambda group: ORDER.index(group.state))


def sign(change: Change) -> Sign:
    """Return the sign of a change: added (+), removed (-), or changed (~), as in git and Terraform."""
    if change.after in GONE or (change.before and not change.after):
        return "-"
    return "+" if change.before in NOTHING and change.after not in ANEW and change.kind != "client" else "~"


def sets(changes: Iterable[Change]) -> list[Set]:
    """Group packages by outcome, the largest set first, each by name."""
    alike: dict[tuple[Sign, str, str], list[str]] = {}
    for change in changes:
        alike.setdefault((sign(change), change.before, change.after), []).append(change.name)
    folded = [Set(*key, tuple(sorted(set(listed)))) for key, listed in alike.items()]
    return sorted(folded, key=lambda entry: -len(entry.names))


# The first lines of each diff, which are always the same.
DIFF_HEAD = ("--- before", "+++ after")


def by_folder(changes: Iterable[Item]) -> list[Item]:
    """Return the changes; files of one folder with the same outcome become one, FOLDER/{A,B}, in shell syntax."""
    folders: dict[object, list[Item]] = {}
    for change in changes:
        folder = (
            change.name.rpartition("/")[0] if change.kind == "file" and change.name.startswith("/") else change.name
        )
        folders.setdefault((folder, change.before, change.after), []).append(change)
    return [_together(each) for each in folders.values()]


def _together(files: Sequence[Item]) -> Item:
    return msgspec.structs.replace(files[0], name=fold_paths(file.name for file in files)[0])


def cuts(mig: Iterable[Partition]) -> list[Cut]:
    """Group GPUs with the same change."""
    alike: dict[Partition, list[Partition]] = {}
    for layout in mig:
        alike.setdefault(msgspec.structs.replace(layout, index=0, gpu=""), []).append(layout)
    return [
        Cut(group[0].gpu if len(group) == 1 else f"GPUs {', '.join(str(layout.index) for layout in group)}", group[0])
        for group in alike.values()
    ]


def listed(parts: Sequence[Part]) -> str:
    """Format parts: `2 x 1g.10gb, 3g.40gb`."""
    counted: dict[str, int] = {}
    for part in parts:
        counted[part.name] = counted.get(part.name, 0) + 1
    return ", ".join(f"{number} x {name}" if number > 1 else name for name, number in counted.items()) or "no instance"


def before_cut(partition: Partition) -> str:
    """Describe the current instances of a GPU."""
    return listed(partition.before)


def after_cut(partition: Partition) -> str:
    """Describe the planned instances of a GPU."""
    return listed(partition.after) if partition.grid or partition.after else "the instances of the spec"


def settings(plan: HostPlan) -> tuple[Item, ...]:
    """Return the settings, without those that the MIG diagrams show."""
    drawn = tuple(f"{layout.gpu}: " for layout in plan.mig)
    return tuple(
        change
        for change in plan.section("setting")
        if change.capability != "mig" or not change.name.startswith(drawn or "\0")
    )


def _merge_plans(group: Sequence[HostPlan]) -> HostPlan:
    if len(group) == 1:
        return group[0]
    plan = _strip_times(group[0], keep=len({plan.last_apply for plan in group}) == 1)
    return msgspec.structs.replace(plan, places=dict(_list_common_places(group)))


def _list_common_places(group: Sequence[HostPlan]) -> Iterable[tuple[str, str]]:
    """Yield by check the place in the spec, or the first one and the number of others."""
    for check in dict.fromkeys(check for plan in group for check in plan.places):
        first, *others = dict.fromkeys(plan.places[check] for plan in group if check in plan.places)
        yield check, f"{first} and {counted(len(others), 'other place')}" if others else first


def _strip_times(plan: HostPlan, *, keep: bool = False) -> HostPlan:
    """Return the plan without what differs on each host: times, process ids, places in the inventory. keep: the time of
    the last apply."""
    blocked = [
        msgspec.structs.replace(result, host="", found=bare(result.found), changes=()) for result in plan.blocked
    ]
    return msgspec.structs.replace(
        plan,
        run={name: bare(why) for name, why in plan.run.items()},
        skipped={name: bare(why) for name, why in plan.skipped.items()},
        changes=tuple(
            msgspec.structs.replace(change, name=bare(change.name)) if change.kind == "client" else change
            for change in plan.changes
        ),
        blocked=tuple(blocked),
        places={},
        unmended=tuple(msgspec.structs.replace(result, host="", changes=(), machine="") for result in plan.unmended),
        last_apply=plan.last_apply if keep else "",
        last_apply_seconds=None,
    )


def bare(text: str) -> str:
    """Strip times and process ids, which differ on each host."""
    return " ".join(_PROCESS.sub("", _MOMENT.sub("", text)).replace("()", "").split())


def _compute_likeness(plan: HostPlan) -> bytes:
    """Return the key by which hosts share one plan. Unreachable hosts are grouped by the reason."""
    if plan.unreachable:
        return msgspec.json.encode([value.replace(plan.host, "") for value in (plan.unreachable, plan.unreachable_fix)])
    return msgspec.json.encode(msgspec.structs.replace(_strip_times(plan), host=""))
