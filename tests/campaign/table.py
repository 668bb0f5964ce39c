"""The table of docs/explanation/faults.md, from the runs themselves."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.campaign.outside import INVARIANTS

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "faults.md"
BEGIN = "<!-- Written by `make faults`: the runs -->\n"
END = "<!-- the runs end here -->\n"


def text(rows: list[dict[str, Any]]) -> str:
    """The table of Markdown: the classes with their runs, and what broke."""
    kinds = Counter(row["kind"] for row in rows)
    broken = {kind: [row for row in rows if row["kind"] == kind and row["broken"]] for kind in kinds}
    upgrades = Counter(row["kind"] for row in rows if row["spec"] == "upgrade")
    lines = [f"{len(rows)} runs (seeds {', '.join(sorted({row['seed'] for row in rows})) or 'none'}), "
             f"{sum(map(len, broken.values()))} of them broke an invariant.\n",
             "| class | runs | in upgrades of the driver | ended the apply | its cause was named | broke |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for kind, number in sorted(kinds.items()):
        named = [row["named"] for row in rows if row["kind"] == kind and row.get("named") is not None]
        told = Counter(
            one.partition(":")[0] for row in broken[kind] for one in {one.partition(":")[0] for one in row["broken"]}
        )
        what = ", ".join(f"{name} ({count})" for name, count in sorted(told.items())) or "none"
        lines.append(f"| {kind} | {number} | {upgrades[kind]} | {len(named)} | {sum(named)} | {what} |")
    lines += ["", "| invariant | what it says | runs that broke it |", "|---|---|---|"]
    for name, says in INVARIANTS.items():
        count = sum(any(one.startswith(f"{name}:") for one in row["broken"]) for row in rows)
        lines.append(f"| {name} | {says} | {count} |")
    return "\n".join(lines) + "\n"


def write(runs: Path, page: Path = PAGE) -> None:
    """Put the table of these runs in the place of the one before."""
    rows = [json.loads(line) for line in runs.read_text(encoding="utf-8").splitlines()]
    head, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(f"{head}{BEGIN}\n{text(rows)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
