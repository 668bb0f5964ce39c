"""The index of the decisions is complete, in order, and one line each."""

from __future__ import annotations

import re
from pathlib import Path

DECISIONS = Path(__file__).parents[2] / "docs/adr"
FILES = sorted(DECISIONS.glob("[0-9]*.md"))


def test_each_decision_has_a_line_in_order() -> None:
    rows = re.findall(
        r"(?m)^\| \[(\d+)\]\(([^)]+)\) \| (.+) \|$", (DECISIONS / "README.md").read_text(encoding="utf-8")
    )
    assert [name for _, name, _ in rows] == [path.name for path in FILES]
    assert [int(number) for number, _, _ in rows] == sorted({int(path.name[:4]) for path in FILES})


def test_each_has_its_number_as_its_title() -> None:
    for path in FILES:
        title = path.read_text(encoding="utf-8").partition("\n")[0]
        assert title.startswith(f"# {int(path.name[:4])}. "), path.name


def test_what_is_superseded_names_what_does_it() -> None:
    for path in FILES:
        for target in re.findall(r"(?i)superseded by[^(\n]*\(([^)]+)\)", path.read_text(encoding="utf-8")):
            assert (DECISIONS / target).is_file(), f"{path.name}: {target}"
            assert path.name in (DECISIONS / target).read_text(encoding="utf-8"), (
                f"{target} says nothing of {path.name}"
            )
