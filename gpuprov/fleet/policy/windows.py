"""Time windows: days and times of a time zone. Pure: the zone is looked up once, when the policy is read."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

Zone = tzinfo
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = f"({'|'.join(DAYS)})"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]"
SPAN = rf"^(daily|{_DAY}(-{_DAY})?(,{_DAY}(-{_DAY})?)*) {_TIME}-({_TIME}|24:00)$"


class Span(NamedTuple):
    """A window that opens on some days of the week; minutes from midnight. If it ends before it begins, it ends on the
    next day."""

    days: frozenset[int]
    begin: int
    length: int


def parsed(text: str) -> Span:
    """Parse `"mon-thu,sat 22:00-05:00"`, which matches SPAN."""
    days, _, times = text.partition(" ")
    begin, end = (int(part[:2]) * 60 + int(part[3:]) for part in times.split("-"))
    return Span(_parse_days(days), begin, end - begin if end > begin else end - begin + 1440)


def _parse_days(text: str) -> frozenset[int]:
    if text == "daily":
        return frozenset(range(7))
    days: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        start, stop = DAYS.index(first), DAYS.index(last or first)
        days |= {day % 7 for day in range(start, (stop if stop >= start else stop + 7) + 1)}
    return frozenset(days)


def zone(name: str) -> Zone | None:
    """Return the time zone of this name; None if there is none."""
    from zoneinfo import ZoneInfo

    if not re.fullmatch(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", name):
        return None
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (OSError, ValueError):  # ZoneInfoNotFoundError is a KeyError with a message of its own
        return None
    except KeyError:
        return None


class Pinned(tzinfo):
    """A zone as a list of changes: the offset in seconds east of UTC from each moment on. Independent of place and time
    of its use."""

    def __init__(self, changes: Sequence[tuple[float, int]]) -> None:
        self._changes = changes

    def utcoffset(self, moment: datetime | None) -> timedelta:
        """Return the offset at a local time; `fold` selects one of the two when an hour occurs twice."""
        offset = self._changes[0][1]
        if moment is None:
            return timedelta(seconds=offset)
        wall = moment.replace(tzinfo=UTC).timestamp()
        for at, after in self._changes[1:]:
            edge = min(offset, after) if moment.fold else max(offset, after)
            if wall < at + edge:
                break
            offset = after
        return timedelta(seconds=offset)

    def fromutc(self, moment: datetime) -> datetime:
        """Return local time; `fold` marks the second of an hour that occurs twice."""
        plain = moment.replace(tzinfo=UTC)
        now = plain.timestamp()
        past = [change for change in self._changes if change[0] <= now] or [self._changes[0]]
        local = (plain + timedelta(seconds=past[-1][1])).replace(tzinfo=self)
        again = len(past) > 1 and now - past[-1][0] < past[-2][1] - past[-1][1]
        return local.replace(fold=int(again))

    def tzname(self, moment: datetime | None) -> str:
        return str(self.utcoffset(moment))

    def dst(self, _moment: datetime | None) -> timedelta:
        return timedelta(0)


def changes(of: Zone, begin: float, end: float) -> list[tuple[float, int]]:
    """List a zone's offset at the beginning, and each change of it until the end, to the second."""

    def offset(at: float) -> int:
        return int((datetime.fromtimestamp(at, of).utcoffset() or timedelta(0)).total_seconds())

    first = int(begin)
    steps = [(float(first), offset(first))]
    for day in range(first, int(end), 86400):
        before, after = day, day + 86400
        if offset(before) == offset(after):
            continue
        while after - before > 1:
            middle = (before + after) // 2
            before, after = (middle, after) if offset(middle) == offset(before) else (before, middle)
        steps.append((float(after), offset(after)))
    return steps


def is_open(spans: Sequence[Span], zone: Zone, now: float, margin: int = 0) -> bool:
    """Return whether a window is open at this time (seconds since 1970, UTC) and for `margin` seconds more; adjacent
    windows count as one."""
    return any(begin <= now and now + margin < end for begin, end in _join_windows(_list_around(spans, zone, now)))


def opens(spans: Sequence[Span], zone: Zone, now: float) -> float:
    """Return when the next window opens after this time."""
    return min(begin for begin, _ in _list_around(spans, zone, now) if begin > now)


def _join_windows(windows: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    begin = end = float("-inf")
    for first, last in sorted(windows):
        if first > end:
            yield begin, end
            begin = first
        end = max(end, last)
    yield begin, end


def _list_around(spans: Sequence[Span], zone: Zone, now: float) -> list[tuple[float, float]]:
    """Return windows from a day before to eight days after, as times, with the zone's clock changes taken into
    account."""
    today = datetime.fromtimestamp(now, zone).date()
    around = []
    for offset in range(-1, 9):
        day = today + timedelta(days=offset)
        midnight = datetime(day.year, day.month, day.day)
        for span in spans:
            if day.weekday() in span.days:
                begin = midnight + timedelta(minutes=span.begin)
                end = begin + timedelta(minutes=span.length)
                around.append((begin.replace(tzinfo=zone).timestamp(), end.replace(tzinfo=zone).timestamp()))
    return around
