"""Durations of the same work the last time, on this machine: shown to people who wait. Kept for that alone."""

import hashlib
from collections.abc import Collection

import msgspec

from gpuprov.core import disk_cache
from gpuprov.core.safe_parse import Unreadable, parse_typed_json

ROOM = "durations"
# Seconds below which no duration is shown.
LEAST = 5.0


class Took(msgspec.Struct, frozen=True):
    """Seconds, and number of hosts."""

    seconds: float
    hosts: int


def earlier(doing: str, roles: Collection[str]) -> str:
    """Return `6 min the last time (4 hosts)`; empty if it was never done, or took no time."""
    kept = disk_cache.read(ROOM, _name(doing, roles))
    try:
        took = parse_typed_json(kept, Took) if kept else None
    except Unreadable:
        return ""
    if took is None or not LEAST <= took.seconds < 10**7:
        return ""
    return f"{length(took.seconds)} the last time ({took.hosts} host{'s' * (took.hosts != 1)})"


def note(doing: str, roles: Collection[str], seconds: float, hosts: int) -> None:
    """Store how long it took."""
    disk_cache.write(ROOM, _name(doing, roles), msgspec.json.encode(Took(round(seconds, 1), hosts)))


def length(seconds: float) -> str:
    """Format a duration: `45 s`, `6 min`, `1 h 10 min`."""
    whole = int(seconds)
    if whole < 100:
        return f"{whole} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _name(doing: str, roles: Collection[str]) -> str:
    return hashlib.sha256("\0".join([doing, *sorted(roles)]).encode()).hexdigest()[:32]
