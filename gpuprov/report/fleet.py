"""Results as the data of a page: each text once, each set of equal outcomes once, so that 10,000 hosts are one file."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from gpuprov.capabilities.base import Change
from gpuprov.inventory.names import fold_names as names
from gpuprov.report.folded import EVERY, ORDER, Finding
from gpuprov.report.page import State
from gpuprov.report.states import LETTERS, WORDS
from gpuprov.verify.evaluate import FAILING, Result
from gpuprov.verify.verify import NextBoot

T = TypeVar("T", bound=Hashable)
# Maximum size of all diagrams in a page, in characters; equal ones are stored once.
PICTURES = 5_000_000
RACK = ("rack", "cabinet")


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Data about a host on a page beside its results."""

    # From the inventory.
    groups: tuple[str, ...] = ()
    # If the inventory has it.
    rack: str = ""
    # SVG files by title.
    pictures: tuple[tuple[str, str], ...] = ()
    # What was applied, and when.
    receipt: tuple[tuple[str, str], ...] = ()
    # Of its software.
    versions: tuple[tuple[str, str], ...] = ()


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of one check: for the same reason, or with a different actual value on each host."""

    findings: tuple[Finding, ...]
    hosts: tuple[str, ...]

    @property
    def first(self) -> Result:
        return self.findings[0].result

    @property
    def where(self) -> str:
        return names(self.hosts)

    @property
    def followers(self) -> tuple[Result, ...]:
        """Return each check once."""
        return tuple({follower.check: follower for finding in self.findings for follower in finding.followers}.values())


class Numbers(Generic[T]):
    """Assigns a number to each distinct value."""

    def __init__(self) -> None:
        self.known: dict[T, int] = {}

    def __getitem__(self, value: T) -> int:
        return self.known.setdefault(value, len(self.known))


def causes(findings: Sequence[Finding]) -> list[Cause]:
    """Return the findings of most hosts first, whatever the actual values; else in the order given."""
    alike: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        alike.setdefault((finding.result.check, finding.result.status), []).append(finding)
    merged = [
        Cause(findings=tuple(same), hosts=tuple(dict.fromkeys(host for finding in same for host in finding.hosts)))
        for same in alike.values()
    ]
    return sorted(merged, key=lambda cause: (EVERY.index(cause.first.status), -len(cause.hosts)))


def group(groups: Sequence[str], rack: str = "") -> str:
    """Return the group under which a host is shown: its rack if the inventory sets it or a group is one, else the
    innermost."""
    if rack:
        return rack
    own = [name for name in groups if name not in ("all", "ungrouped")]
    racks = [name for name in own if name.lower().startswith(RACK)]
    return (racks or own or [""])[-1]


def _describe_change(change: Change) -> str:
    """Describe what apply would do."""
    moved = " -> ".join(filter(None, (change.before, change.after)))
    return f"{change.kind} {change.name}{f': {moved}' if moved else ''}"


def data(
    rows: Mapping[str, Sequence[Result]],
    states: Mapping[str, State],
    boots: Mapping[str, NextBoot],
    known: Mapping[str, Known],
    words: Mapping[State, str] = WORDS,
    *,
    verbose: bool = False,
) -> dict[str, Any]:
    """Return columns for fleet.js: numbers stand for texts, results and sets of results."""
    kinds = list(LETTERS)
    columns = _Columns(list(EVERY if verbose else ORDER))
    hosts = [
        [
            *columns.add_results(host, results, known.get(host, Known())),
            kinds.index(states[host]),
            *columns.add_facts(boots[host], known.get(host, Known())),
        ]
        for host, results in rows.items()
    ]
    return {
        "states": [[kind, LETTERS[kind], words[kind]] for kind in kinds],
        "statuses": columns.statuses,
        "texts": list(columns.texts.known),
        "checks": list(columns.checks.known),
        "results": list(columns.results.known),
        "sets": list(columns.sets.known),
        "pictures": list(columns.pictures.known),
        "versions": list(columns.versions.known),
        "hosts": hosts,
    }


class _Columns:
    """What hosts have in common, each once."""

    def __init__(self, statuses: Sequence[str]) -> None:
        self.statuses = statuses
        self.texts: Numbers[str] = Numbers()
        self.checks: Numbers[tuple[int, ...]] = Numbers()
        self.results: Numbers[tuple[int, ...]] = Numbers()
        self.sets: Numbers[tuple[int, ...]] = Numbers()
        self.pictures: Numbers[tuple[int, int]] = Numbers()
        self.versions: Numbers[tuple[tuple[int, int], ...]] = Numbers()
        self._room = PICTURES

    def add_results(self, host: str, results: Sequence[Result], known: Known) -> list[int]:
        """Return the numbers of the host's name, of its group, and of its set of results."""
        numbers = tuple(self._add_result(result) for result in results if result.status in self.statuses)
        return [self.texts[host], self.texts[group(known.groups, known.rack)], self.sets[numbers]]

    def _add_result(self, result: Result) -> int:
        texts = self.texts
        check = (texts[result.check], texts[result.capability], texts[", ".join(result.fields)], texts[result.moment])
        changes = "\n".join(map(_describe_change, result.changes)) if result.status in FAILING else ""
        columns = (
            *(result.expected, result.found, result.evidence, result.fix),
            *(result.reboot, result.version, result.follows, changes),
        )
        return self.results[
            (self.checks[check], self.statuses.index(result.status), *(texts[text] for text in columns))
        ]

    def add_facts(self, boot: NextBoot, known: Known) -> list[Any]:
        """Return the verdict for the next boot, the diagrams that there is room for, the receipt and the versions."""
        texts, drawn = self.texts, []
        for title, picture in known.pictures:
            if picture not in texts.known:
                self._room -= len(picture)
            if self._room > 0 or picture in texts.known:
                drawn.append(self.pictures[texts[title], texts[picture]])
        return [
            texts[boot.verdict],
            texts["; ".join(boot.shorten().reasons)],
            drawn,
            [[texts[name], texts[value]] for name, value in known.receipt],
            self.versions[tuple((texts[name], texts[value]) for name, value in known.versions)],
        ]
