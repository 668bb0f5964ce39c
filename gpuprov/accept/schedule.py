"""Which hosts are tested with which, and when: no host is in two tests at a time."""

from __future__ import annotations

from collections.abc import Sequence

from gpuprov.accept.model import GROUP, Pairing

Pair = tuple[str, str]


def rounds(hosts: Sequence[str], pairing: Pairing = "auto") -> list[list[Pair]]:
    """Rounds of pairs; within a round every host is in one pair at most. Fewer than two hosts make no round.

    all: every pair once, by the circle method, n - 1 rounds (n with an odd number). ring: each host with the next, in two rounds,
    or three with an odd number. auto: all up to GROUP hosts.
    """
    names = list(hosts)
    if len(names) < 2:
        return []
    if pairing == "ring" or (pairing == "auto" and len(names) > GROUP):
        return _ring(names)
    return _all(names)


def narrowed(planned: Sequence[Sequence[Pair]], at_a_time: int) -> list[list[Pair]]:
    """The rounds, cut so that no more than so many servers, or clients, are started at a time: a server ends if it waits too long."""
    return [list(one[start : start + at_a_time]) for one in planned for start in range(0, len(one), at_a_time)]


def _all(names: list[str]) -> list[list[Pair]]:
    """https://en.wikipedia.org/wiki/Round-robin_tournament#Circle_method"""
    circle: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    half = len(circle) // 2
    found = []
    for _ in range(len(circle) - 1):
        matched = zip(circle[:half], reversed(circle[half:]), strict=True)
        found.append([(one, other) for one, other in matched if one is not None and other is not None])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return found


def _ring(names: list[str]) -> list[list[Pair]]:
    if len(names) == 2:
        return [[(names[0], names[1])]]
    edges = [(name, names[(number + 1) % len(names)]) for number, name in enumerate(names)]
    last = [edges.pop()] if len(names) % 2 else []
    return [part for part in (edges[0::2], edges[1::2], last) if part]
