"""The table of docs/explanation/faults.md, from the runs themselves."""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.campaign.outside import INVARIANTS

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "faults.md"
BEGIN = "<!-- Written by `make faults`: the runs -->\n"
END = "<!-- the runs end here -->\n"


KILLS = (
    "host killed",
    "ssh killed",
    "program killed",
    "power cut",
    "apply killed",
    "apply all-killed",
    "apply terminated",
    "apply interrupted",
)
GIVEN_UP = re.compile(r"given up after (\d+) s")
PACKETS = re.compile(r"(\d+) packets of .* were read")


def figures(rows: list[dict[str, Any]]) -> list[str]:
    """The figures of the page, each with how it was measured."""
    kills = [row for row in rows if row["kind"] in KILLS]
    same = [row for row in kills if not any(one.startswith(("same:", "completes:")) for one in row["broken"])]
    frozen = [int(found[1]) for row in rows for note in row["notes"] if (found := GIVEN_UP.fullmatch(note))]
    ended = [row for row in rows if row.get("named") is not None]
    named = sum(row["named"] for row in ended)
    seen = [int(found[1]) for row in rows for note in row["notes"] if (found := PACKETS.fullmatch(note))]
    return [
        "| figure | reached | how it was measured |",
        "|---|---|---|",
        f"| kills and power cuts after which the next apply came to the state of an undisturbed one | {len(same)} "
        f"of {len(kills)} |"
        " files, modes, packages, modules, units and leftovers are compared line by line |",
        "| longest time until a host that froze for good was given up | "
        f"{f'{max(frozen)} s' if frozen else 'none froze for good'} |"
        " from the moment that the container was paused to the end of the apply, which other hosts took part in |",
        f"| faults that ended an apply on their host, and whose cause it named | {named} of {len(ended)} |"
        " the report's lines on that host have the words that this fault must be told with (`cause` in `classes.py`) |",
        f"| secrets seen | {sum(any(one.startswith('secret:') for one in row['broken']) for row in rows)} |"
        f" by value, in files, journals, arguments, environments and {max(seen, default=0)} packets of one group at "
        "most |",
        f"| longest disturbed apply | {max((row.get('seconds', 0) for row in rows), default=0)} s |"
        " by the clock, of a group of up to seven hosts; a busy machine takes longer |",
    ]


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
    return "\n".join([*lines, "", *figures(rows)]) + "\n"


def read(runs: Path) -> list[dict[str, Any]]:
    """The runs of a file; of one that was done again the last."""
    found = {}
    with suppress(FileNotFoundError):
        for line in runs.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            found[row["seed"], row["number"]] = row
    return list(found.values())


def write(runs: Path, page: Path = PAGE) -> None:
    """Put the table of these runs in the place of the one before."""
    rows = read(runs)
    head, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(f"{head}{BEGIN}\n{text(rows)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
