"""Generated documentation and the JSON Schema match the code."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from gpuprov.capabilities import BY_NAME
from gpuprov.explain import fields
from gpuprov.render import checkout
from tests.counts import is_generated
from tests.rows import run_each

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return checkout.files()


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    found: dict[str, str] = runpy.run_path(str(ROOT / "docs" / "generate.py"))["pages"]()
    return found


def test_the_schemas_are_up_to_date(pages: dict[str, str]) -> None:
    folder = ROOT / "docs" / "reference"
    schemas = {name: text for name, text in pages.items() if name.endswith(".json")}
    for name, text in schemas.items():
        assert (folder / name).read_text(encoding="utf-8") == text, f"{name} is stale: python docs/generate.py"
    assert {path.name for path in folder.glob("*.json")} == set(schemas)


def test_what_follows_from_the_code_is_what_it_says_now(made: dict[str, str]) -> None:
    for name, text in made.items():
        file = ROOT / name
        written = file.read_text(encoding="utf-8") if file.is_file() else "not there"
        assert written == text, (
            f"{name} does not say what the code says. It is generated: change the code that its first lines name, "
            "then run python docs/generate.py, and commit both"
        )


def test_no_file_is_left_of_tasks_that_are_declared_no_more(made: dict[str, str]) -> None:
    there = {str(file.relative_to(ROOT)) for file in ROOT.glob("roles/*/tasks/**/*.yml") if is_generated(file)}
    assert there == {name for name in made if "/tasks/" in name}


def test_the_modules_that_roles_may_use_are_those_that_there_are() -> None:
    settings = (ROOT / ".ansible-lint").read_text(encoding="utf-8")
    assert runpy.run_path(str(ROOT / "docs" / "generate.py"))["with_modules"](settings) == settings
    fewer = settings.replace("  - gpuprov_lock\n", "")
    assert runpy.run_path(str(ROOT / "docs" / "generate.py"))["with_modules"](fewer) == settings


@run_each("page", [*BY_NAME, "README", "commands", "distributions"])
def test_no_row_of_a_table_is_broken(page: str, pages: dict[str, str]) -> None:
    """A docstring of several lines, or a `|` in it, ends a row early, and what follows is not a table any more."""
    text = re.sub(r"^```.*?^```$", "", pages[f"{page}.md"], flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n{2,}", text):
        rows = block.strip().splitlines()
        if not any(row.lstrip().startswith("|") for row in rows):
            continue
        assert re.fullmatch(r"\|(---\|)+", rows[1]), f"{page}: no table starts so: {rows[0]}"
        for row in rows:
            assert len(re.findall(r"(?<!\\)\|", row)) == rows[1].count("|"), f"{page}: {row}"
            assert row.startswith("|"), f"{page}: {row}"
            assert row.endswith("|"), f"{page}: {row}"
            bare = re.sub(r"`[^`]*`", "", row)
            assert "<" not in bare, f"{page}: taken for HTML: {row}"


@run_each("name", list(BY_NAME))
def test_every_field_has_a_row(name: str, pages: dict[str, str]) -> None:
    page = pages[f"{name}.md"]
    for field in fields.fields(name):
        shown = field.path[1] if len(field.path) == 2 else field.name.removeprefix(f"{name}.")
        assert page.count(f"\n| `{shown}` |") == 1, field
