"""Every fact of the catalogue is of use: what nothing reads is not kept up, and says one thing while the code does
another."""

from __future__ import annotations

import ast

import pytest

from tests.contracts.test_imports import FILES, PACKAGE, find_nodes

SHOWN = {
    **dict.fromkeys(("max_instances", "nvlink_note", "switches_per_board"), "gpuprov catalog gpus --json"),
    "open_default_since": "the source of what gpuprov.rules.resolve repeats: test_one_truth.py",
    "meaning": "words for those who read the file",
    "sources_of": "for those who read the file; test_catalog_data.py resolves them",
    "nvml_profiles": "the ids of profiles are compared with them: test_catalog_data.py",
}
"""Fields that no code names, and where they are of use."""


@pytest.mark.install
def test_no_field_is_unread() -> None:
    fields, read = set(), set()
    for path in FILES:
        for node in find_nodes(path, ast.ClassDef) if path.is_relative_to(PACKAGE / "catalog") else ():
            named = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
            fields |= {one.id for one in named if isinstance(one, ast.Name)}
        read |= {node.attr for node in find_nodes(path, ast.Attribute)}
        read |= {str(node.value) for node in find_nodes(path, ast.Constant)}
    assert len(fields) > 100
    assert fields - read == set(SHOWN)
