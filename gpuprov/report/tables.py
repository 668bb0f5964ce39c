"""A table of the catalogue, fitted to the width of the terminal."""

from collections.abc import Collection, Iterator, Sequence

from gpuprov.core.sanitize import wrapped

Rows = Sequence[Sequence[str]]

# Number of rows up to which a table that is too wide is shown as records, with every column.
FEW = 5


def fitted(header: Sequence[str], rows: Rows, room: int, spare: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the lines, of at most `room` characters (0: any number), and the columns dropped to fit, taken from
    `spare` in order."""
    gone: list[str] = []
    if room and len(rows) <= FEW and _measure_width(header, rows) > room:
        return [line for row in rows for line in wrapped(_format_row(header, row), room, hang="  ")], gone
    for name in spare:
        if room and _measure_width(header, rows) > room:
            place = header.index(name)
            header, *rows = ([*row[:place], *row[place + 1 :]] for row in (header, *rows))
            gone.append(name)
    return list(_format_columns(header, rows, room)), gone


def _format_row(header: Sequence[str], row: Sequence[str]) -> str:
    return f"{row[0]}: {', '.join(f'{name} {cell}' for name, cell in zip(header[1:], row[1:], strict=True) if cell)}"


def _measure_columns(header: Sequence[str], rows: Rows) -> list[int]:
    return [max(len(row[n]) for row in (header, *rows)) for n in range(len(header))]


def _measure_width(header: Sequence[str], rows: Rows) -> int:
    return sum(_measure_columns(header, rows)) + 2 * (len(header) - 1)


def _format_columns(header: Sequence[str], rows: Rows, room: int) -> Iterator[str]:
    """Yield the lines; the last column wraps between words if it does not fit."""
    *widths, _ = _measure_columns(header, rows)
    indent = sum(widths) + 2 * len(widths)
    for row in (header, *rows):
        before = "".join(cell.ljust(width) + "  " for cell, width in zip(row[:-1], widths, strict=True))
        first, *more = wrapped(row[-1], max(room - indent, 20) if room else 0) or [""]
        yield f"{before}{first}".rstrip()
        yield from (" " * indent + line for line in more)
