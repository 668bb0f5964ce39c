"""The documentation as a site: complete, searchable, without anything from elsewhere, and refused where a link leads
nowhere."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rows import run_each

pytestmark = pytest.mark.install
pytest.importorskip("mkdocs", reason="make site installs it")
ROOT = Path(__file__).parents[2]
PARTS = ("mkdocs.yml", "pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


def copy_tree(folder: Path) -> Path:
    """What the site is made of, to be broken; all else by links, so that links out of docs lead somewhere."""
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    runpy.run_path(str(ROOT / "docs" / "generate.py"))["write_pages"](folder / "docs")
    for name in PARTS:
        shutil.copy(ROOT / name, folder / name)
    for name in ("tests", "inventories", "gpuprov"):
        shutil.copytree(ROOT / name, folder / name, copy_function=os.link, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def build(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_tree(tmp_path_factory.mktemp("tree"))
    done = build(root, root / "site")
    assert done.returncode == 0, done.stderr
    return root / "site"


def test_every_page_is_there_and_can_be_found(site: Path) -> None:
    moved = {"README.md": "where-things-live", "index.md": "all-pages"}
    docs = site.parent / "docs"
    pages = [path.relative_to(docs) for path in docs.rglob("*.md")]
    places = [str(page).removesuffix(".md").replace("README", "index") for page in pages if str(page) not in moved]
    wanted = {f"{name}.html" for name in [*places, *moved.values(), "index"]}
    assert wanted <= {str(path.relative_to(site)) for path in site.rglob("*.html")}
    found = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))["docs"]
    assert wanted == {entry["location"].partition("#")[0] or "index.html" for entry in found}
    assert any("Fabric Manager" in entry["text"] for entry in found)


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]* src=\"([^\"]*)\"", text)
        loaded += re.findall(r"<link[^>]* rel=\"(?:stylesheet|preload|icon)\"[^>]* href=\"([^\"]*)\"", text)
        assert [one for one in loaded if re.match(r"(https?:)?//", one)] == [], page
        assert 'data-md-component="source"' not in text, "which asks GitHub for its stars"


@run_each(
    ("page", "link", "message"),
    [
        ("docs/how-to/mig.md", "mps.md#no-such-heading", "no-such-heading"),
        (
            "docs/how-to/mig.md",
            "no-such-page.md",
            "docs/how-to/mig.md: a link to no-such-page.md, which does not exist",
        ),
        ("docs/how-to/mig.md", "https://gpuprov.github.io/gpuprov/reference/migg.html", "reference/migg.md"),
        ("docs/how-to/mig.md", "https://gpuprov.github.io/gpuprov/reference/mig.html#chekcs", "chekcs"),
        ("README.md", "docs/no-such-page.md", "README.md: a link to docs/no-such-page.md, which does not exist"),
        ("docs/how-to/lonely.md", "mig.md", "how-to/lonely.md"),
    ],
)
def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path, page: str, link: str, message: str) -> None:
    root = copy_tree(tmp_path)
    with (root / page).open("a", encoding="utf-8") as file:
        file.write(f"\n[somewhere]({link})\n")
    done = build(root, tmp_path / "out")
    assert done.returncode == 1
    assert message in done.stderr
