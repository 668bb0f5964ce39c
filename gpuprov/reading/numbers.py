"""Numbers that a host printed."""

from __future__ import annotations

import math
import re

from gpuprov.reading.limits import DIGITS, LONGEST_NUMBER, NUMBERS, Unreadable

_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?\Z")


def is_whole(text: str) -> bool:
    """Whether `whole` reads it."""
    return text.isascii() and text.isdigit() and len(text) <= DIGITS


def whole(text: str) -> int | None:
    """A whole number without sign, of ASCII digits; None for anything else, and for what does not fit 64 bits.

    Python's own `isdigit` is true for `²`, which `int` refuses.
    """
    return int(text) if is_whole(text) else None


def signed(text: str) -> int | None:
    """A whole number that may have a minus sign; None for anything else."""
    number = whole(text.removeprefix("-"))
    return None if number is None else (-number if text.startswith("-") else number)


def number(text: str) -> float | None:
    """A finite number as C prints it; None for anything else (`nan`, `inf`, `1_000`, other scripts' digits)."""
    if not text.isascii() or len(text) > LONGEST_NUMBER or "_" in text:
        return None
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def numbers(text: str) -> frozenset[int]:
    """`0-3,8` as numbers: how the kernel writes CPUs and ports. Raises Unreadable for a list that means more than NUMBERS."""
    ranges = [_range(part.strip()) for part in text.split(",") if part.strip()]
    if sum(map(len, ranges)) > NUMBERS:
        raise Unreadable(f'"{text[:60]}" means too many numbers', f"{NUMBERS}")
    return frozenset(number for one in ranges for number in one)


def _range(part: str) -> range:
    found = _RANGE.match(part)
    if not found:
        if part[0].isascii() and part[0].isdigit():
            raise Unreadable(f'"{part[:60]}" is no range of numbers')
        return range(0)
    first, last = whole(found[1]), whole(found[2] or found[1])
    if first is None or last is None:
        raise Unreadable(f'"{part[:60]}" has a number of too many digits', f"{DIGITS} digits")
    return range(first, last + 1)
