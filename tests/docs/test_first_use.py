"""What people met who tried gpuprov for the first time: each has tests, and they are there."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import yaml

from tests.rows import run_each

ROOT = Path(__file__).parents[2]
MET = yaml.safe_load(Path(__file__).with_name("first_use.yaml").read_text(encoding="utf-8"))


@cache
def list_tests(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@run_each("one", MET, ids=lambda one: one["met"][:40])
def test_what_was_met_has_tests(one: dict[str, list[str]]) -> None:
    assert one["held_by"]
    for name in one["held_by"]:
        file, _, test = name.partition("::")
        assert test in list_tests(file), name
