"""A heat map of pairs as SVG: nothing is loaded from anywhere, everything from a host is escaped.

What is as wanted is quiet, what is missed is orange: a hue that people with any colour-blindness tell from paper and ink. No meaning
is in colour alone: each cell has its number, with ! where it is missed and a thick border. It follows the reader's light or dark.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpuprov.accept.maps import SAMPLES, Cell, Level, Map, words
from gpuprov.shown import in_markup

CELL_WIDTH, CELL_HEIGHT, MARGIN, CHARACTER = 64, 34, 16, 7.2
COLUMNS, WIDE = 6, 1400
"""Pairs in a line, and pixels, of the list that a sparse map (a ring of many hosts) is drawn as."""
SPARSE = 16
STYLE = (
    "text{font:13px ui-sans-serif,system-ui,sans-serif;fill:#1b1e22}.h{font-weight:600;font-size:15px}.s{font-size:12px;fill:#59616a}"
    ".m{font-weight:700}.c,.l{text-anchor:middle}.e{text-anchor:end}.paper{fill:#fafaf9}.plate{fill:#fafaf9}"
    "rect.met,rect.skipped,rect.untested{fill:#fff;stroke:#d3d6da}rect.same{fill:#e9ebed}"
    "rect.slow{fill:#f8ebcd;stroke:#8a5a00}rect.missed{fill:#f6c3ad;stroke:#1b1e22;stroke-width:2.5}"
    "rect.far{fill:#b93000;stroke:#1b1e22;stroke-width:2.5}text.far{fill:#fff}"
    "rect.none{fill:url(#none);stroke:#1b1e22;stroke-width:2.5}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e8ea}.s{fill:#9ca6af}.paper,.plate{fill:#111417}"
    "rect.met,rect.skipped,rect.untested{fill:#191d21;stroke:#3a4148}rect.same{fill:#2c3238}rect.slow{fill:#463412;stroke:#e6b04c}"
    "rect.missed{fill:#52230f;stroke:#e6e8ea}rect.far{fill:#ff8d6b;stroke:#e6e8ea}text.far{fill:#111417}rect.none{stroke:#e6e8ea}}"
)
PATTERN = (
    '<defs><pattern id="none" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<line x1="0" y1="0" x2="0" y2="6" stroke="#8a929a" stroke-width="2"/></pattern></defs>'
)


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
        f'<style>{STYLE}</style><rect class="paper" width="100%" height="100%"/>{PATTERN}{"".join(parts)}</svg>\n'
    )


def is_sparse(one: Map) -> bool:
    """Whether it is a list of pairs rather than a table of mostly nothing."""
    return len(one.hosts) > SPARSE and 2 * len(one.cells) < len(one.hosts) * (len(one.hosts) - 1)


def draw(one: Map) -> Drawn:
    """One map with its title and its legend: a matrix, or for a sparse map of many hosts a list of pairs."""
    body = _list(one) if is_sparse(one) else _matrix(one)
    legend = _legend(one)
    text = (
        f'<text class="h" y="14">{in_markup(one.title)}</text>'
        f'<g transform="translate(0 28)">{body.text}</g>'
        f'<g transform="translate(0 {body.height + 44:g})">{legend.text}</g>'
    )
    wide = max(body.width, legend.width, len(one.title) * 8.5)
    return Drawn(text, wide, body.height + 44 + legend.height)


def _matrix(one: Map) -> Drawn:
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
            x = left + column * CELL_WIDTH
            parts.append(_cell(x, y, one, one.cells.get((name, other)), same=name == other))
    width = left + len(one.hosts) * CELL_WIDTH + (top if slanted else 0)
    return Drawn("".join(parts), width, top + len(one.hosts) * CELL_HEIGHT)


def _list(one: Map) -> Drawn:
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
        parts.append(_cell(x + wide, y, one, cell))
    columns, rows = min(most, len(one.cells)), -(-len(one.cells) // most)
    return Drawn("".join(parts), columns * (wide + CELL_WIDTH + 18), rows * CELL_HEIGHT)


def _cell(x: float, y: float, one: Map, cell: Cell | None, *, same: bool = False) -> str:
    level = one.level(cell) if cell else None
    told = "" if same and cell is None else words(cell, level)
    title = f"<title>{in_markup(cell.told)}</title>" if cell else ""
    return f"<g>{title}{_square(x, y, level or ('same' if same else 'untested'), told)}</g>"


def _square(x: float, y: float, kind: Level | str, told: str, place: str = "c") -> str:
    width, height = CELL_WIDTH - 2, CELL_HEIGHT - 2
    box = f'<rect class="{kind}" x="{x + 1:g}" y="{y + 1:g}" width="{width}" height="{height}"/>'
    plate = (
        f'<rect class="plate" x="{x + 14:g}" y="{y + 8:g}" width="{width - 26}" height="18"/>' if kind == "none" else ""
    )
    bold = " m" if kind in ("missed", "far", "none") else ""
    text = f'<text class="{place} {kind}{bold}" x="{x + CELL_WIDTH / 2:g}" y="{y + CELL_HEIGHT / 2 + 5:g}">{in_markup(told)}</text>'
    return f"{box}{plate}{text if told else ''}"


def _legend(one: Map) -> Drawn:
    parts, rows = [], one.legend()
    for number, (level, told) in enumerate(rows):
        y = number * (CELL_HEIGHT + 2)
        parts.append(_square(0, y, level, SAMPLES[level], "l"))
        parts.append(f'<text x="{CELL_WIDTH + 10}" y="{y + CELL_HEIGHT / 2 + 5:g}">{in_markup(told)}</text>')
    return Drawn(
        "".join(parts), CELL_WIDTH + 10 + max(len(told) for _, told in rows) * CHARACTER, len(rows) * (CELL_HEIGHT + 2)
    )
