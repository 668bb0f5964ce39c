"""Generated documentation and the JSON Schema are what the code says now."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_reference_is_up_to_date() -> None:
    pages: dict[str, str] = runpy.run_path(str(ROOT / "docs" / "generate.py"))["pages"]()
    folder = ROOT / "docs" / "reference"
    for name, text in pages.items():
        assert (folder / name).read_text(encoding="utf-8") == text, f"{name} is stale: python docs/generate.py"
    assert {path.name for path in folder.iterdir()} == set(pages)
