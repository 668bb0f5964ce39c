"""Schedule of the pairs: no host is in two tests at a time."""

from collections.abc import Sequence

from gpuprov.accept.model import GROUP, Pairing

Pair = tuple[str, str]


def plan_rounds(hosts: Sequence[str], pairing: Pairing = "auto") -> list[list[Pair]]:
    """Plan rounds of pairs; within a round every host is in one pair at most. Fewer than two hosts make no round.

    all: every pair once, by the circle method, n - 1 rounds (n if n is odd). ring: each host with the next, in two
    rounds, or three if n is odd. auto: all up to GROUP hosts.
    """
    names = list(hosts)
    if len(names) < 2:
        return []
    if pairing == "ring" or (pairing == "auto" and len(names) > GROUP):
        return _pair_ring(names)
    return _pair_all(names)


def split_rounds(planned: Sequence[Sequence[Pair]], at_a_time: int) -> list[list[Pair]]:
    """Split the rounds so that at most `at_a_time` servers, or clients, are started at once: a server ends if it waits
    too long."""
    return [list(pairs[start : start + at_a_time]) for pairs in planned for start in range(0, len(pairs), at_a_time)]


def _pair_all(names: list[str]) -> list[list[Pair]]:
    """Pair all hosts."""
    # https://en.wikipedia.org/wiki/Round-robin_tournament#Circle_method
    circle: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    half = len(circle) // 2
    result = []
    for _ in range(len(circle) - 1):
        matched = zip(circle[:half], reversed(circle[half:]), strict=True)
        result.append([(first, other) for first, other in matched if first is not None and other is not None])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return result


def _pair_ring(names: list[str]) -> list[list[Pair]]:
    if len(names) == 2:
        return [[(names[0], names[1])]]
    edges = [(name, names[(number + 1) % len(names)]) for number, name in enumerate(names)]
    last = [edges.pop()] if len(names) % 2 else []
    return [part for part in (edges[0::2], edges[1::2], last) if part]
