"""What became of the lists of a run, for the terminal and for the page: items of one fate together, and the run in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from gpuprov.apply.items import MADE, UNTOUCHED, WAITS
from gpuprov.apply.model import AppliedItem, Became, HostOutcome
from gpuprov.plan.fold import bare
from gpuprov.plan.items import sizes

WORDS: dict[Became, str] = {"unforeseen": "also done"}
"""What stands for a state, where it is not the state itself."""
LATER: tuple[Became, ...] = ("not needed", "not done", "taken back", "unknown")
"""States that are counted beside what was done."""


class Fate(NamedTuple):
    """Items of a capability of which the same became."""

    capability: str
    state: Became
    why: str
    items: tuple[AppliedItem, ...]

    @property
    def told(self) -> str:
        """The state in words, and why."""
        return WORDS.get(self.state, self.state) + (f" ({self.why})" if self.why else "")

    @property
    def waits(self) -> bool:
        """Whether it comes with a reboot, and is not wrong."""
        return self.why.startswith(WAITS)


def fates(items: Iterable[AppliedItem]) -> list[Fate]:
    """Return the items by capability, and by what became of them."""
    order: dict[str, None] = {}
    found: dict[tuple[str, Became, str], list[AppliedItem]] = {}
    for one in items:
        order.setdefault(one.capability)
        found.setdefault((one.capability, one.state, one.why), []).append(one)
    return [Fate(*this, tuple(each)) for capability in order for this, each in found.items() if this[0] == capability]


def untouched(outcome: HostOutcome) -> bool:
    """Whether nothing of a host's list was done, for one reason that stands beside the host."""
    return outcome.state in UNTOUCHED and not any(one.state in MADE for one in outcome.items)


def timeless(items: Iterable[AppliedItem]) -> list[AppliedItem]:
    """Return the items without times and process ids, which are others on each host."""
    return [msgspec.structs.replace(one, name=bare(one.name)) if one.kind == "client" else one for one in items]


def in_numbers(outcomes: Sequence[HostOutcome]) -> str:
    """Say how much was done on these hosts, as the plan says how much there is to do: `done: 12 packages, 5 files; 1 not needed`."""
    lists = [[one for one in outcome.items if one.state in MADE] for outcome in outcomes if outcome.items]
    number = sum(map(len, lists))
    told = sizes(lists) or [f"{number:,} change{'s' * (number != 1)}"] * bool(number)
    words = [f"done: {', '.join(told)}"] if told else []
    counted = {state: sum(one.state == state for outcome in outcomes for one in outcome.items) for state in LATER}
    if rest := [f"{count:,} {state}" for state, count in counted.items() if count]:
        words.append(", ".join(rest))
    return "; ".join(words)
