"""Many host names in few words, and back: `gpu[001:032]`, as in the ranges of an inventory and in --limit."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

_NUMBER = re.compile(r"([0-9]{1,18})")
_RANGE = re.compile(r"\[([0-9]{1,18}):([0-9]{1,18})\]")
# Minimum number of consecutive names for a range.
_LEAST = 3

# A name split at its numbers, which have the odd indices.
Parts = tuple[str, ...]


def fold_names(hosts: Iterable[str]) -> str:
    """Join the names with commas, and runs of numbers as ranges: `gpu[001:003], login`.

    If a name has several numbers (`train100.dc1.example.com`), the one that makes the fewest words becomes a range
    first, then the others.
    """
    alike: dict[Parts, list[Parts]] = {}
    for host in dict.fromkeys(hosts):
        plain = any(sign in host for sign in ":[],")  # an IPv6 address, or no name that --limit could take
        parts = (host,) if plain else tuple(_NUMBER.split(host))
        alike.setdefault(parts[::2], []).append(parts)
    return ", ".join("".join(parts) for group in alike.values() for parts in combine_into_ranges(group))


def combine_into_ranges(group: list[Parts]) -> list[Parts]:
    """Combine names that differ only in their numbers into ranges."""
    places = range(len(group[0]) - 2, 0, -2)
    if len(group) < _LEAST or not places:
        return group
    best = min(places, key=lambda place: len(combine_at(group, place)))
    group = combine_at(group, best)
    for place in places:
        group = combine_at(group, place) if place != best else group
    return group


def combine_at(group: Sequence[Parts], place: int) -> list[Parts]:
    """Combine names that differ only at one index into ranges at that index."""
    others: dict[Parts, list[str]] = {}
    for parts in group:
        others.setdefault((*parts[:place], "", *parts[place + 1 :]), []).append(parts[place])
    return [
        (*parts[:place], number, *parts[place + 1 :])
        for parts, numbers in others.items()
        for number in (format_runs(numbers) if len(numbers) >= _LEAST else numbers)
    ]


def format_runs(numbers: Iterable[str]) -> Iterator[str]:
    run: list[str] = []
    for number in [*sorted(numbers, key=lambda text: (int(text), len(text))), ""]:
        if run and number and is_next(run[-1], number):
            run.append(number)
            continue
        yield from [f"[{run[0]}:{run[-1]}]"] if len(run) >= _LEAST else run
        run = [number]


def is_next(number: str, following: str) -> bool:
    return int(following) == int(number) + 1 and len(following) == max(len(number), len(str(int(following))))


def unfold_names(pattern: str, known: Collection[str]) -> set[str]:
    """Return the known names that match a name with ranges; empty if it has no ranges."""
    ranges = [(int(first), int(last), len(first)) for first, last in _RANGE.findall(pattern)]
    if not ranges:
        return set()
    shape = re.compile("([0-9]{1,18})".join(map(re.escape, _RANGE.sub("\0", pattern).split("\0"))))
    unfolded: set[str] = set()
    for name in known:
        if (seen := shape.fullmatch(name)) and all(
            low <= int(number) <= high and len(number) == max(width, len(str(int(number))))
            for number, (low, high, width) in zip(seen.groups(), ranges, strict=True)
        ):
            unfolded.add(name)
    return unfolded
