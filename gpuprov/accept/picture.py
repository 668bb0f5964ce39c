"""A heat map of pairs as SVG: nothing is loaded from anywhere, everything from a host is escaped.

Matching cells are quiet, missed ones are orange: a hue that people with any colour-blindness can tell from paper and
ink. No meaning is in colour alone: each cell has its number, with ! and a thick border if it is missed. It follows the
reader's light or dark mode.
"""

from collections.abc import Sequence

from gpuprov.accept.maps import SAMPLES, Cell, Level, Map, format_cell
from gpuprov.hardware.topology.canvas import Canvas

CELL_WIDTH, CELL_HEIGHT, MARGIN, CHARACTER = 64, 34, 16, 7.2
# Pairs in a line, and width in pixels, of the list in which a sparse map (a ring of many hosts) is drawn.
COLUMNS, WIDE = 6, 1400
SPARSE = 16
STYLE = (
    "text{font:13px ui-sans-serif,system-ui,sans-serif;fill:#1b1e22}.h{font-weight:600;"
    "font-size:15px}.s{font-size:12px;fill:#59616a}"
    ".m{font-weight:700}.c,.l{text-anchor:middle}.e{text-anchor:end}.paper{fill:#fafaf9}.plate{fill:#fafaf9}"
    "rect.met,rect.skipped,rect.untested{fill:#fff;stroke:#d3d6da}rect.same{fill:#e9ebed}"
    "rect.slow{fill:#f8ebcd;stroke:#8a5a00}rect.missed{fill:#f6c3ad;stroke:#1b1e22;stroke-width:2.5}"
    "rect.far{fill:#b93000;stroke:#1b1e22;stroke-width:2.5}text.far{fill:#fff}"
    "rect.none{fill:url(#none);stroke:#1b1e22;stroke-width:2.5}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e8ea}.s{fill:#9ca6af}.paper,.plate{fill:#111417}"
    "rect.met,rect.skipped,rect.untested{fill:#191d21;stroke:#3a4148}rect.same{fill:#2c3238}rect.slow{fill:#463412;"
    "stroke:#e6b04c}"
    "rect.missed{fill:#52230f;stroke:#e6e8ea}rect.far{fill:#ff8d6b;"
    "stroke:#e6e8ea}text.far{fill:#111417}rect.none{stroke:#e6e8ea}}"
)
PATTERN = (
    '<defs><pattern id="none" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<line x1="0" y1="0" x2="0" y2="6" stroke="#8a929a" stroke-width="2"/></pattern></defs>'
)


# Width and height of a drawing.
Size = tuple[float, float]


def document(maps: Sequence[Map]) -> str:
    """Draw all maps, one below the other, as one SVG file. The same maps give the same text."""
    canvas, width, y = Canvas(STYLE), 320.0, float(MARGIN)
    canvas.parts.append(PATTERN)
    for chart in maps:
        wide, high = draw(canvas, chart, MARGIN, y)
        width, y = max(width, wide), y + high + 2 * MARGIN
    if not maps:
        canvas.text(16, 36, "no pair was tested", "")
        y = 60.0
    return canvas.file("Figures between pairs of hosts", width + 2 * MARGIN, y)


def is_sparse(chart: Map) -> bool:
    """True if the map is a list of pairs rather than a mostly empty table."""
    return len(chart.hosts) > SPARSE and 2 * len(chart.cells) < len(chart.hosts) * (len(chart.hosts) - 1)


def draw(canvas: Canvas, chart: Map, x: float, y: float) -> Size:
    """Draw one map with its title and its legend: a matrix, or for a sparse map of many hosts a list of pairs."""
    canvas.text(x, y + 14, chart.title, "h")
    wide, high = (_draw_list if is_sparse(chart) else _draw_matrix)(canvas, chart, x, y + 28)
    legend, low = _draw_legend(canvas, chart, x, y + high + 44)
    return max(wide, legend, len(chart.title) * 8.5), high + 44 + low


def _draw_matrix(canvas: Canvas, chart: Map, x: float, y: float) -> Size:
    longest = max((len(name) for name in chart.hosts), default=0) * CHARACTER
    left, slanted = longest + 12, longest > CELL_WIDTH - 6
    top = longest * 0.72 + 14 if slanted else 24.0
    for column, name in enumerate(chart.hosts):
        middle = x + left + (column + 0.5) * CELL_WIDTH
        canvas.text(middle, y + top - 8, name, "" if slanted else "c", turned=-45 if slanted else 0)
    for row, name in enumerate(chart.hosts):
        below = y + top + row * CELL_HEIGHT
        canvas.text(x + left - 8, below + CELL_HEIGHT / 2 + 5, name, "e")
        for column, other in enumerate(chart.hosts):
            cell = chart.cells.get((name, other))
            _draw_cell(canvas, x + left + column * CELL_WIDTH, below, chart, cell, same=name == other)
    return left + len(chart.hosts) * CELL_WIDTH + (top if slanted else 0), top + len(chart.hosts) * CELL_HEIGHT


def _draw_list(canvas: Canvas, chart: Map, x: float, y: float) -> Size:
    """Draw pairs one after the other, in the order of the ring."""
    wide = max(len(a) + len(b) for a, b in chart.cells) * CHARACTER + 40
    each = wide + CELL_WIDTH + 18
    most = max(1, min(COLUMNS, int(WIDE // each)))
    for number, ((name, other), cell) in enumerate(chart.cells.items()):
        left, top = x + (number % most) * each, y + (number // most) * CELL_HEIGHT
        canvas.text(left + wide - 8, top + CELL_HEIGHT / 2 + 5, f"{name} to {other}", "e")
        _draw_cell(canvas, left + wide, top, chart, cell)
    return min(most, len(chart.cells)) * each, -(-len(chart.cells) // most) * CELL_HEIGHT


def _draw_cell(canvas: Canvas, x: float, y: float, chart: Map, cell: Cell | None, *, same: bool = False) -> None:
    level = chart.level(cell) if cell else None
    canvas.begin(cell.text if cell else "")
    text = "" if same and cell is None else format_cell(cell, level)
    _draw_square(canvas, x, y, level or ("same" if same else "untested"), text)
    canvas.end()


def _draw_square(canvas: Canvas, x: float, y: float, kind: Level | str, text: str, place: str = "c") -> None:
    width, height = CELL_WIDTH - 2, CELL_HEIGHT - 2
    canvas.rect(kind, x + 1, y + 1, width, height)
    if kind == "none":
        canvas.rect("plate", x + 14, y + 8, width - 26, 18)
    bold = " m" if kind in ("missed", "far", "none") else ""
    canvas.text(x + CELL_WIDTH / 2, y + CELL_HEIGHT / 2 + 5, text, f"{place} {kind}{bold}")


def _draw_legend(canvas: Canvas, chart: Map, x: float, y: float) -> Size:
    rows = chart.legend()
    for number, (level, text) in enumerate(rows):
        top = y + number * (CELL_HEIGHT + 2)
        _draw_square(canvas, x, top, level, SAMPLES[level], "l")
        canvas.text(x + CELL_WIDTH + 10, top + CELL_HEIGHT / 2 + 5, text, "")
    return CELL_WIDTH + 10 + max(len(text) for _, text in rows) * CHARACTER, len(rows) * (CELL_HEIGHT + 2)
