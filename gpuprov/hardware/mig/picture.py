"""Placements as a picture of memory slices, in box-drawing characters or plain ASCII."""

from collections.abc import Sequence
from typing import NamedTuple

UNICODE, ASCII = tuple("─│┌┬┐└┴┘·"), tuple("-|++++++.")
GAP = "unused"
LEAST = 4  # columns of a slice: its number and a space


class Part(NamedTuple):
    """A range of memory slices; `label` may have several lines, and is empty for a gap."""

    start: int
    size: int
    label: tuple[str, ...] = ()


def slices(parts: Sequence[Part], grid: int, width: int, *, plain: bool = False) -> list[str]:
    """Draw the parts on a line of `grid` slices, in a box; no lines if that is wider than `width`."""
    filled = _fill_gaps(parts, grid)
    wide = [columns(filled, spaces) for spaces in (2, 1)]
    inner = next((needed for needed in wide if grid * (needed + 1) < width), 0)
    if not inner:
        return []
    flat, upright, top_left, top, top_right, low_left, low, low_right, _ = ASCII if plain else UNICODE
    rooms = [part.size * (inner + 1) - 1 for part in filled]
    height = max(len(part.label) for part in filled)
    rows = [
        upright.join(f" {_get_line(part, row)}".ljust(room) for part, room in zip(filled, rooms, strict=True))
        for row in range(height)
    ]
    edges = [flat * room for room in rooms]
    return [
        ruler(grid, inner),
        top_left + top.join(edges) + top_right,
        *(upright + row + upright for row in rows),
        low_left + low.join(edges) + low_right,
    ]


def strip(parts: Sequence[Part], grid: int, inner: int, *, plain: bool = False) -> str:
    """Draw the parts on one line, each slice `inner` columns wide."""
    upright, dot = (ASCII if plain else UNICODE)[1], (ASCII if plain else UNICODE)[-1]
    text = upright
    for part in _fill_gaps(parts, grid, dot):
        text += " ".join(part.label).ljust(part.size * (inner + 1) - 1) + upright
    return text


def columns(parts: Sequence[Part], spaces: int = 0) -> int:
    """Return the width that a slice needs for the labels of these parts, with so many spaces beside them."""
    return max(LEAST, *(-(-(max(map(len, part.label)) + spaces + 1) // part.size) - 1 for part in parts))


def ruler(grid: int, inner: int) -> str:
    """Draw the numbers of the slices, each above the start of its slice."""
    return "".join(f" {number}".ljust(inner + 1) for number in range(grid)).rstrip()


def _fill_gaps(parts: Sequence[Part], grid: int, gap: str = GAP) -> list[Part]:
    filled, at = [], 0
    for part in [*sorted(parts), Part(grid, 0)]:
        if part.start > at:
            filled.append(Part(at, part.start - at, (gap,)))
        if part.size:
            filled.append(part)
        at = part.start + part.size
    return filled


def _get_line(part: Part, row: int) -> str:
    return part.label[row] if row < len(part.label) else ""
