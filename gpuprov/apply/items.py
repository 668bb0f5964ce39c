"""Outcomes of the changes that the plan lists, from a reading after the run and from what modules report as done.
Pure."""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from gpuprov.apply.model import AppliedItem, Became, HostOutcome
from gpuprov.plan.items import Key, key
from gpuprov.plan.made import REBOOT
from gpuprov.plan.model import HOST, Item
from gpuprov.spec.model import BLOCKS
from gpuprov.verify.evaluate import Result

# Kinds of items for which the package manager's own rows report the changes.
PACKAGES = ("package", "hold")
# States of items that exist now because of the run.
MADE = ("done", "unforeseen")
# Kinds that a module names in the same way as a plan.
UNFORESEEN = (*PACKAGES, "file", "service", "initramfs")
# The reason why nothing was done, by the state of a host that the run did not change.
UNTOUCHED = {
    "blocked": "blocked: {task}",
    "locked": "another run works on the host",
    "not-started": "not started",
    "prepared": "only prepared: apply does it",
}
WAITS = "waits for a reboot"
NOT_READ, NOT_SEEN = "the host was not read after the run", "what the host has could not be read after the run"


class After(msgspec.Struct, frozen=True, kw_only=True):
    """A host as it was read after the run. left: the remaining differences, with the plan's own code. waiting:
    capabilities with package changes still to come; unread: those that could not be read completely."""

    left: frozenset[Key]
    waiting: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    results: Sequence[Result] = ()


def applied(
    planned: Sequence[Item],
    comparable: Collection[Key],
    outcome: HostOutcome,
    after: After | None,
    *,
    shown: bool = True,
) -> list[AppliedItem]:
    """Return the outcomes of a plan's items, then of unplanned changes. comparable: the list from an earlier reading of
    the same kind as the one after the run; for all other items, such as packages that only the package manager names,
    the reported changes decide. shown: whether anybody has seen the plan; beside one that nobody has, which names no
    packages, nothing is unforeseen."""
    made = _merge_changes(outcome.made)
    judge = _Judge(comparable, outcome, after, made)
    applied_items = [judge.item(item) for item in planned]
    known = {key(item) for item in planned}
    beside = [item for item in made.values() if key(item) not in known and item.kind in UNFORESEEN]
    return [*applied_items, *(_make_applied_item(item, "unforeseen" if shown else "done") for item in beside)]


def taken_back(items: Iterable[AppliedItem], back: Iterable[AppliedItem], why: str) -> list[AppliedItem]:
    """Return the items of a run whose host was rolled back, with the rollback's additional changes. back: the
    rollback's own items."""
    undone = {key(item): item for item in back if item.state in MADE}
    merged_items = [
        msgspec.structs.replace(item, state="taken back", why="")
        if item.state in MADE and key(item) in undone
        else item
        for item in items
    ]
    known = {key(item) for item in merged_items}
    return [
        *merged_items,
        *(msgspec.structs.replace(item, why=why) for this, item in undone.items() if this not in known),
    ]


def _merge_changes(made: Iterable[Item]) -> dict[Key, Item]:
    """Return the net change of each thing, by key; a package whose hold was released for a transaction and set again is
    left out."""
    latest: dict[Key, Item] = {}
    first: dict[Key, str] = {}
    for item in made:
        latest[key(item)] = item
        first.setdefault(key(item), item.before)
    return {name: item for name, item in latest.items() if item.kind != "hold" or item.after != first[name]}


def _make_applied_item(item: Item, state: Became, why: str = "", after: str | None = None) -> AppliedItem:
    values = msgspec.structs.asdict(item)
    return AppliedItem(**values | {"after": item.after if after is None else after, "state": state, "why": why})


class _Judge:
    """Decides the outcomes of one host's items."""

    def __init__(
        self, comparable: Collection[Key], outcome: HostOutcome, after: After | None, made: dict[Key, Item]
    ) -> None:
        self._comparable, self._outcome, self._after, self._made = comparable, outcome, after, made
        self._stopped = [item.name for item in outcome.made if item.kind == "client"]
        self._moving = {item.capability for item in outcome.made if item.kind in PACKAGES}
        roles = {label.partition(": ")[0] for label in outcome.changed}
        self._rebooted = REBOOT in outcome.made
        self._acting = {role if role in BLOCKS else HOST for role in roles}

    def item(self, item: Item) -> AppliedItem:
        """Return an item with its outcome."""
        this, after = key(item), self._after
        if after and this in after.left:
            return _make_applied_item(item, "not done", self._why(item, after))
        if made_item := self._made.get(this):
            return _make_applied_item(
                item,
                "done",
                _describe_other_version(item, made_item),
                made_item.after if item.kind == "package" else None,
            )
        if item.kind == "client" and any(unit in item.name for unit in self._stopped):
            return _make_applied_item(item, "done")
        compared = bool(after) and this in self._comparable
        if self._outcome.state in UNTOUCHED and not compared:
            return _make_applied_item(item, "not done", self._why(item, after))
        if after is None:
            return _make_applied_item(item, "unknown", NOT_READ)
        if item.capability in after.unread:
            return _make_applied_item(item, "unknown", NOT_SEEN)
        unfinished = item.capability in after.waiting if item.kind in PACKAGES else self._cut_off(item.capability)
        if not compared and unfinished:
            return _make_applied_item(item, "not done", self._why(item, after))
        return _make_applied_item(item, "done" if self._acted(item) else "not needed")

    def _cut_off(self, capability: str) -> bool:
        """Return whether it is unknown if the run completed a capability."""
        ended_well = self._outcome.state in ("changed", "unchanged")
        return not ended_well and (capability == self._outcome.culprit or capability not in self._acting)

    def _acted(self, item: Item) -> bool:
        """Return whether a task has changed something that may have caused this. Package changes, and settings that are
        put back, are each named; running things may be due to the reboot."""
        if item.kind in PACKAGES and item.capability in self._moving:
            return False
        if (item.kind == "client" and self._stopped) or (item.kind, item.capability) == ("setting", HOST):
            return False
        return item.capability in self._acting or (self._rebooted and item.kind not in (*PACKAGES, "file"))

    def _why(self, item: Item, after: After | None) -> str:
        outcome = self._outcome
        if outcome.state in UNTOUCHED:
            return UNTOUCHED[outcome.state].format(task=outcome.task or outcome.message)
        failed = outcome.task or outcome.message
        if outcome.state not in ("changed", "unchanged"):
            own = item.capability == outcome.culprit or not outcome.culprit
            return f"{outcome.state}: {failed}" if own else f"not reached: {failed} came before"
        named, others = _split_results(item, after.results if after else ())
        if reboot := next((other.reboot for other in (*named, *others) if other.reboot), ""):
            return f"{WAITS}: {reboot}"
        return f"{named[0].check} fails" if named else "it still differs"


def _describe_other_version(item: Item, made: Item) -> str:
    """Return the plan's text about a package that was changed to another version; "" if it named no version, or this
    one."""
    named = item.kind == "package" and ("0" <= item.after[:1] <= "9" or item.after == "removed")
    return f"the plan said {item.after}" if named and not made.after.startswith(item.after) else ""


def _split_results(item: Item, results: Iterable[Result]) -> tuple[list[Result], list[Result]]:
    """Return the failures that name an item, and the other failures of its capability."""
    failing = [result for result in results if result.status == "fail" and result.capability == item.capability]
    named = [
        result for result in failing if any((each.kind, each.name) == (item.kind, item.name) for each in result.changes)
    ]
    return named, [result for result in failing if result not in named]
