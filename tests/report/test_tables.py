"""The catalogue's tables on terminals of any width."""

from __future__ import annotations

from gpuprov.catalog import listing
from gpuprov.report.tables import FEW, fitted
from tests.rows import run_each


@run_each("name", listing.LISTINGS)
@run_each("room", [80, 100, 120])
def test_every_table_fits(name: str, room: int) -> None:
    table = listing.build_table(name)
    lines, gone = fitted(table.header, table.rows, room, table.spare)
    assert [line for line in lines if len(line) > room and " " in line.strip()] == []
    assert set(gone) <= set(table.spare)
    header = lines[0]
    assert all(column in header for column in table.header if column not in gone)


@run_each("name", listing.LISTINGS)
def test_what_is_searched_is_left_whole(name: str) -> None:
    table = listing.build_table(name)
    lines, gone = fitted(table.header, table.rows, 0, table.spare)
    assert gone == []
    assert len(lines) == 1 + len(table.rows)
    for line, row in zip(lines[1:], table.rows, strict=True):
        assert line.split() == " ".join(row).split()


def test_few_rows_are_shown_whole() -> None:
    table = listing.build_table("gpus")
    rows = table.rows[:FEW]
    lines, gone = fitted(table.header, rows, 80, table.spare)
    assert gone == []
    assert max(map(len, lines)) <= 80
    text = " ".join(lines)
    assert all(" ".join(cell.split()) in " ".join(text.split()) for row in rows for cell in row)
    assert all(f" {column} " in text for column in table.header[1:])
