"""Numbers that a host printed."""

import math
import re

from gpuprov.core.safe_parse.limits import DIGITS, LONGEST_NUMBER, NUMBERS, Unreadable

_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?\Z")


def is_whole(text: str) -> bool:
    """Return whether `parse_whole` reads it."""
    return text.isascii() and text.isdigit() and len(text) <= DIGITS


def parse_whole(text: str) -> int | None:
    """A whole number without sign, of ASCII digits; None for anything else, and for what does not fit 64 bits."""
    # Python's own `isdigit` is true for `²`, which `int` refuses.
    return int(text) if is_whole(text) else None


def parse_signed(text: str) -> int | None:
    """A whole number that may have a minus sign; None for anything else."""
    number = parse_whole(text.removeprefix("-"))
    return None if number is None else (-number if text.startswith("-") else number)


def parse_number(text: str) -> float | None:
    """A finite number as C prints it; None for anything else (`nan`, `inf`, `1_000`, other scripts' digits)."""
    if not text.isascii() or len(text) > LONGEST_NUMBER or "_" in text:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers at the beginning of a version, for comparing; () if it begins with none."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def parse_numbers(text: str) -> frozenset[int]:
    """`0-3,8` as numbers: how the kernel writes CPUs and ports. Raises Unreadable for a list that means more than
    NUMBERS."""
    ranges = [parse_range(part.strip()) for part in text.split(",") if part.strip()]
    if sum(map(len, ranges)) > NUMBERS:
        raise Unreadable(f'"{text[:60]}" means too many numbers', f"{NUMBERS}")
    return frozenset(number for span in ranges for number in span)


def parse_range(part: str) -> range:
    match = _RANGE.match(part)
    if not match:
        if part[0].isascii() and part[0].isdigit():
            raise Unreadable(f'"{part[:60]}" is not a range of numbers')
        return range(0)
    first, last = parse_whole(match[1]), parse_whole(match[2] or match[1])
    if first is None or last is None:
        raise Unreadable(f'"{part[:60]}" has a number of too many digits', f"{DIGITS} digits")
    return range(first, last + 1)
