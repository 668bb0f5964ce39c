"""Words that readers stumbled over are in no message and on no page: plain English says the same."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.test_imports import FILES, nodes

ROOT = Path(__file__).parents[2]
BETTER = {
    r"\bshall\b": "should",
    r"\bamiss\b": "wrong",
    r", asked for is\b": "expected",
    r"\bmust be said\b": "is required",
    r"\bway out:": "fix:",
    r"\bnothing speaks against\b": "is supported",
    r"\bare borne\b": "are tolerated",
    r"\band its like\b": "the family",
    r"\bcut GPUs up\b": "partition GPUs",
    r"\bprove whose they are\b": "are signed",
    r"\b1 (?:hosts|errors|images|checks|packages)\b": "the singular",
    r"\bthat apply cannot mend\b": "apply cannot fix it",
}


def messages() -> Iterator[tuple[str, str]]:
    """Texts in the code that somebody may read, by place; docstrings are for those who read the code."""
    for path in FILES:
        alone = {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value
    for folder, kind in (
        ("docs/how-to", "*.md"),
        ("docs/explanation", "*.md"),
        ("roles", "*.sh"),
        ("roles", "*.yml"),
        ("roles", "*.j2"),
    ):
        for path in sorted((ROOT / folder).rglob(kind)):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    yield from runpy.run_path(str(ROOT / "docs" / "generate.py"))["pages"]().items()


@pytest.fixture(scope="module")
def told() -> list[tuple[str, str]]:
    found = list(messages())
    assert len(found) > 10_000
    return found


@pytest.mark.parametrize("words", BETTER)
def test_what_readers_stumbled_over_is_nowhere(words: str, told: list[tuple[str, str]]) -> None:
    pattern = re.compile(words, re.IGNORECASE)
    assert [(place, match[0]) for place, text in told for match in pattern.finditer(text)] == [], BETTER[words]
