"""Which hosts go first, how many at a time, and how many may fail."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from gpuprov.errors import GpuprovError
from gpuprov.plan.read import Pair

NUMBER = r"\s*\d+\s*%?\s*"


def size(text: str, total: int, option: str, *, least: int) -> int:
    """`"5"` or `"20%"` of `total` (rounded down) as a number of hosts, at least `least`."""
    found = re.fullmatch(r"\s*(\d{1,9})\s*(%?)\s*", text)
    if found is None or (found[2] and int(found[1]) > 100) or (not found[2] and int(found[1]) < least):
        allowed = f"a number of hosts from {least} on (5), or a share of them up to 100% (20%)"
        raise GpuprovError(f'{option} is "{text}"', f"allowed: {allowed}")
    number = int(found[1])
    return max(least, total * number // 100 if found[2] else number)


def batches(
    hosts: Sequence[str], *, canary: str = "", serial: str = "", known: Mapping[str, Collection[str]] | None = None
) -> list[tuple[str, ...]]:
    """The hosts in the order they are done: the canary first, then `serial` at a time.

    canary: a number, or hosts, groups and globs with commas, of those `known` (each host with its groups; default:
    `hosts`). A canary that has nothing to do is left out; a word that names nobody is an error.
    """
    if re.fullmatch(NUMBER, canary):
        first = tuple(hosts[: size(canary, len(hosts), "--canary", least=1)])
    else:
        named = canaries(canary, dict.fromkeys(hosts, ()) if known is None else known)
        first = tuple(host for host in hosts if host in named)
    early = frozenset(first)
    rest = [host for host in hosts if host not in early]
    step = size(serial, len(hosts), "--serial", least=1) if serial else max(len(rest), 1)
    parts = [tuple(rest[start : start + step]) for start in range(0, len(rest), step)]
    return [first, *parts] if first else parts


def proved_first(canary: str, parts: Sequence[Collection[str]], known: Mapping[str, Collection[str]]) -> set[str]:
    """The hosts that must be good before any other is touched: the first of `parts` for a number, else all that are named."""
    if re.fullmatch(NUMBER, canary):
        return set(parts[0])
    return canaries(canary, known)


def canaries(canary: str, known: Mapping[str, Collection[str]]) -> set[str]:
    """The hosts that the words of --canary name."""
    found: set[str] = set()
    for word in filter(None, (word.strip() for word in canary.split(","))):
        named = {host for host, groups in known.items() if word in groups or fnmatchcase(host, word)}
        if not named:
            hint = "allowed: a number of hosts, or names, groups and globs of hosts with commas"
            raise GpuprovError(f'--canary: no host in this run is called "{word}"', hint)
        found |= named
    return found


def too_many(failed: int, max_fail: str, total: int) -> bool:
    """Whether so many failed hosts, of all that have something to do, end the run before the next batch."""
    return failed > size(max_fail, total, "--max-fail", least=0)


def groups_of(pairs: Iterable[Pair]) -> dict[str, tuple[str, ...]]:
    """By host, as the inventory has them."""
    return {raw.name: raw.groups for raw, _ in pairs}
