"""A heat map of pairs as SVG: nothing is loaded from anywhere, everything from a host is escaped.

Colours are ColorBrewer's PuOr, which people with colour-blindness can tell apart (https://colorbrewer2.org): orange is worse than the
threshold, purple better; and no meaning is in colour alone: each cell has its number, a miss its mark and a thick border.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from gpuprov.accept.model import Status
from gpuprov.shown import in_markup

SHADES = ("#b35806", "#f1a340", "#fee0b6", "#f7f7f7", "#d8daeb", "#998ec3", "#542788")
BOUNDS = (-0.20, -0.10, -0.02, 0.02, 0.10, 0.20)
"""Where one shade ends, as the part by which a figure is better than the threshold, or else the median."""
WORDS = ("20 % worse", "10 %", "2 %", "as wanted", "2 %", "10 %", "20 % better")
LIGHT = {"#b35806", "#542788"}
CELL_WIDTH, CELL_HEIGHT, MARGIN, CHARACTER = 64, 34, 16, 7.2
COLUMNS, WIDE = 6, 1400
"""Pairs in a line, and pixels, of the list that a sparse map (a ring of many hosts) is drawn as."""
SPARSE = 16
STYLE = (
    "text{font:13px ui-sans-serif,system-ui,sans-serif;fill:#1b1f24}.h{font-weight:600;font-size:15px}.s{font-size:11px}"
    ".w{fill:#fff}.m{font-weight:700}.c{text-anchor:middle}.e{text-anchor:end}"
)


class Cell(msgspec.Struct, frozen=True):
    """What one pair showed: its worst rail's figure (None: there is none), the verdict, and words for the tooltip."""

    value: float | None
    status: Status
    told: str


class Map(msgspec.Struct, frozen=True, kw_only=True):
    """A test between pairs: cells by (from, to). `threshold` 0: the median is compared with. `less`: less is better."""

    title: str
    unit: str
    hosts: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]
    threshold: float = 0.0
    less: bool = False


class Drawn(msgspec.Struct, frozen=True):
    """A piece of SVG and its size."""

    text: str
    width: float
    height: float


def document(maps: Sequence[Map]) -> str:
    """One SVG file with all maps, one below the other. The same maps give the same text."""
    drawn = [draw(one) for one in maps]
    width = max((one.width for one in drawn), default=320.0) + 2 * MARGIN
    parts, y = [], float(MARGIN)
    for one in drawn:
        parts.append(f'<g transform="translate({MARGIN} {y:g})">{one.text}</g>')
        y += one.height + 2 * MARGIN
    if not drawn:
        parts.append('<text x="16" y="36">no pair was tested</text>')
        y = 60.0
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{y:g}" viewBox="0 0 {width:g} {y:g}" role="img">'
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>{PATTERN}{"".join(parts)}</svg>\n'
    )


PATTERN = (
    '<defs><pattern id="none" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" fill="#fff"/><line x1="0" y1="0" x2="0" y2="6" stroke="#9aa3ab" stroke-width="2"/></pattern></defs>'
)


def draw(one: Map) -> Drawn:
    """One map with its title and its legend: a matrix, or for a sparse map of many hosts a list of pairs."""
    reference, what = _reference(one)
    sparse = len(one.hosts) > SPARSE and 2 * len(one.cells) < len(one.hosts) * (len(one.hosts) - 1)
    body = _list(one, reference) if sparse else _matrix(one, reference)
    legend = _legend(reference, what, one.unit)
    head = f'<text class="h" y="14">{in_markup(one.title)}</text>'
    text = (
        head
        + f'<g transform="translate(0 28)">{body.text}</g>'
        + f'<g transform="translate(0 {body.height + 44:g})">{legend.text}</g>'
    )
    wide = max(body.width, legend.width, len(one.title) * 8.5)
    return Drawn(text, wide, body.height + 44 + legend.height)


def _reference(one: Map) -> tuple[float, str]:
    if one.threshold:
        return one.threshold, "threshold"
    values = [cell.value for cell in one.cells.values() if cell.value is not None]
    return (median(values), "median") if values else (0.0, "")


def shade(value: float, reference: float, *, less: bool) -> str:
    """The colour of a figure: by how much better than the reference it is."""
    better = (value / reference - 1) * (-1 if less else 1) if reference else -1.0 if less and value > 0 else 0.0
    return SHADES[sum(better >= bound for bound in BOUNDS)]


def _matrix(one: Map, reference: float) -> Drawn:
    left = max((len(name) for name in one.hosts), default=0) * CHARACTER + 12
    slanted = any(len(name) * CHARACTER > CELL_WIDTH - 6 for name in one.hosts)
    top = max((len(name) for name in one.hosts), default=0) * CHARACTER * 0.72 + 14 if slanted else 24.0
    parts = []
    for column, name in enumerate(one.hosts):
        x = left + (column + 0.5) * CELL_WIDTH
        turn = f' transform="rotate(-45 {x:g} {top - 8:g})"' if slanted else ""
        parts.append(f'<text class="{"" if slanted else "c"}" x="{x:g}" y="{top - 8:g}"{turn}>{in_markup(name)}</text>')
    for row, name in enumerate(one.hosts):
        y = top + row * CELL_HEIGHT
        parts.append(f'<text class="e" x="{left - 8:g}" y="{y + CELL_HEIGHT / 2 + 5:g}">{in_markup(name)}</text>')
        for column, other in enumerate(one.hosts):
            cell = one.cells.get((name, other))
            parts.append(_cell(left + column * CELL_WIDTH, y, cell, reference, one, same=name == other))
    width = left + len(one.hosts) * CELL_WIDTH + (top if slanted else 0)
    return Drawn("".join(parts), width, top + len(one.hosts) * CELL_HEIGHT)


def _list(one: Map, reference: float) -> Drawn:
    """Pairs one after the other, in the order of the ring."""
    wide = max(len(a) + len(b) for a, b in one.cells) * CHARACTER + 40
    most = max(1, min(COLUMNS, int(WIDE // (wide + CELL_WIDTH + 18))))
    parts = []
    for number, ((name, other), cell) in enumerate(one.cells.items()):
        x, y = (number % most) * (wide + CELL_WIDTH + 18), (number // most) * CELL_HEIGHT
        middle = y + CELL_HEIGHT / 2 + 5
        parts.append(
            f'<text class="e" x="{x + wide - 8:g}" y="{middle:g}">{in_markup(name)} to {in_markup(other)}</text>'
        )
        parts.append(_cell(x + wide, y, cell, reference, one, same=False))
    columns, rows = min(most, len(one.cells)), -(-len(one.cells) // most)
    return Drawn("".join(parts), columns * (wide + CELL_WIDTH + 18), rows * CELL_HEIGHT)


def _cell(x: float, y: float, cell: Cell | None, reference: float, one: Map, *, same: bool) -> str:
    width, height = CELL_WIDTH - 2, CELL_HEIGHT - 2
    place = f'x="{x + 1:g}" y="{y + 1:g}" width="{width}" height="{height}"'
    if cell is None:
        fill, words, klass = ("#e6e9ec", "", "") if same else ("#fff", "-", "")
    elif cell.value is None:
        fill, words, klass = "url(#none)", "none", "m"
    else:
        fill = shade(cell.value, reference, less=one.less)
        missed = cell.status == "fail"
        words = f"{figure(cell.value)}{' !' if missed else ''}"
        klass = f"{'w' if fill in LIGHT else ''} {'m' if missed else ''}".strip()
    bad = cell is not None and cell.status in ("fail", "error", "unreachable")
    border = 'stroke="#1b1f24" stroke-width="2.5"' if bad else 'stroke="#c8ced4"'
    title = f"<title>{in_markup(cell.told)}</title>" if cell else ""
    plate = ""
    if words == "none":
        plate = f'<rect x="{x + 14:g}" y="{y + 8:g}" width="{width - 26}" height="18" fill="#fff"/>'
    text = (
        f'<text class="c {klass}" x="{x + CELL_WIDTH / 2:g}" y="{y + CELL_HEIGHT / 2 + 5:g}">{in_markup(words)}</text>'
    )
    return f'<g>{title}<rect {place} fill="{fill}" {border}/>{plate}{text if words else ""}</g>'


def _legend(reference: float, what: str, unit: str) -> Drawn:
    parts = []
    for number, (colour, words) in enumerate(zip(SHADES, WORDS, strict=True)):
        x = number * 84
        parts.append(f'<rect x="{x}" width="80" height="14" fill="{colour}" stroke="#c8ced4"/>')
        parts.append(f'<text class="s" x="{x}" y="28">{in_markup(words)}</text>')
    told = f"compared with the {what}, {figure(reference)} {unit}" if what else "no figure"
    parts.append(f'<text class="s" y="46">{in_markup(told)}; ! and a thick border: missed; none: no figure</text>')
    return Drawn("".join(parts), 7 * 84.0, 50.0)


def figure(value: float) -> str:
    """A number in three digits, or all that stand before the point; two where it is small."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.1 else f"{value:.2g}"
