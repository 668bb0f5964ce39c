"""Outcomes of a run's lists, for the terminal and the page: items with the same outcome together, and the totals of the
run."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from gpuprov.apply.items import MADE, UNTOUCHED, WAITS
from gpuprov.apply.model import AppliedItem, Became, HostOutcome
from gpuprov.plan.fold import bare
from gpuprov.plan.items import sizes

# Words for states that differ from the state's name.
WORDS: dict[Became, str] = {"unforeseen": "also done"}
# States that are counted beside the changes made.
LATER: tuple[Became, ...] = ("not needed", "not done", "taken back", "unknown")


class Fate(NamedTuple):
    """Items of a capability with the same outcome."""

    capability: str
    state: Became
    why: str
    items: tuple[AppliedItem, ...]

    @property
    def description(self) -> str:
        """Describe the state, with its reason."""
        return WORDS.get(self.state, self.state) + (f" ({self.why})" if self.why else "")

    @property
    def waits(self) -> bool:
        """Return whether it takes effect at a reboot, and is not an error."""
        return self.why.startswith(WAITS)


def fates(items: Iterable[AppliedItem], ran: Iterable[str] = ()) -> list[Fate]:
    """Return the items by capability and outcome. ran: capabilities in apply order, which is that of the plan."""
    order = dict.fromkeys(ran)
    grouped: dict[tuple[str, Became, str], list[AppliedItem]] = {}
    for item in items:
        order.setdefault(item.capability)
        grouped.setdefault((item.capability, item.state, item.why), []).append(item)
    return [Fate(*this, tuple(each)) for capability in order for this, each in grouped.items() if this[0] == capability]


def untouched(outcome: HostOutcome) -> bool:
    """Return whether nothing in a host's list was done, for one reason that is shown beside the host."""
    return outcome.state in UNTOUCHED and not any(item.state in MADE for item in outcome.items)


def timeless(items: Iterable[AppliedItem]) -> list[AppliedItem]:
    """Return the items without times and process ids, which differ between hosts."""
    return [msgspec.structs.replace(item, name=bare(item.name)) if item.kind == "client" else item for item in items]


def in_numbers(outcomes: Sequence[HostOutcome]) -> str:
    """Summarise the changes made on these hosts, in the format of the plan's summary: `done: 12 packages, 5 files; 1
    not needed`."""
    lists = [[item for item in outcome.items if item.state in MADE] for outcome in outcomes if outcome.items]
    number = sum(map(len, lists))
    counts = sizes(lists) or [f"{number:,} change{'s' * (number != 1)}"] * bool(number)
    words = [f"done: {', '.join(counts)}"] if counts else []
    counted = {state: sum(item.state == state for outcome in outcomes for item in outcome.items) for state in LATER}
    if rest := [f"{count:,} {state}" for state, count in counted.items() if count]:
        words.append(", ".join(rest))
    return "; ".join(words)
