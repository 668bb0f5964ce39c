"""The page on security: each attack has its test, and each kind of person or source its part of the threat model."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/security.md").read_text(encoding="utf-8")
PARTS = """A hostile host; A hostile inventory source; A hostile user of a host; A bundle of packages; A hostile mirror;
Hosts that pull; A scheduler; Readers of reports, plans and pages; Secrets; Dependencies; Releases""".replace(
    "\n", " "
).split("; ")


def part(title: str) -> str:
    """The text under a heading."""
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_each_attack_has_a_test_that_is_there() -> None:
    attacks = rows(part("Attacks that were tried"))
    assert [int(cells[0].partition(".")[0]) for cells in attacks if re.match(r"\d+\.", cells[0])] == [*range(1, 13)]
    for attack, holds, tests in attacks:
        named = re.findall(r"\]\(\.\./\.\./(tests/[\w./]+)\)", tests)
        assert holds, attack
        assert named, attack
        assert [name for name in named if not (ROOT / name).exists()] == [], attack


def test_who_is_trusted_is_followed_by_what_each_can_do() -> None:
    assert len(rows(part("Who is trusted"))) >= 13
    for title in PARTS:
        assert part(title).strip(), title


def test_the_tests_and_programs_that_it_counts_on_are_there() -> None:
    named = set(re.findall(r"`((?:tests|gpuprov|\.github)/[\w./-]+)`", PAGE))
    assert len(named) > 15
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
