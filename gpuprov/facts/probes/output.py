"""The output of a script on a host."""

import msgspec


class Output(msgspec.Struct, frozen=True):
    """Standard output, the first lines of standard error, exit status."""

    text: str
    status: int = 0
    error: str = ""

    def rows(self, *, bare: bool = False) -> dict[str, list[str]]:
        """Group lines `KIND|REST` by their kind; other lines are ignored, or with `bare` count as kinds of their
        own."""
        rows: dict[str, list[str]] = {}
        for line in self.text.splitlines():
            kind, bar, rest = line.partition("|")
            if bar or bare:
                rows.setdefault(kind, []).append(rest)
        return rows

    def cells(self) -> dict[str, list[list[str]]]:
        """Group lines `KIND|CELL|CELL...` by their kind, split into cells; other lines are ignored."""
        return {kind: [row.split("|") for row in rows] for kind, rows in self.rows().items()}
