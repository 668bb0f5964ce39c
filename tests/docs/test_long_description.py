"""What PyPI shows: README.md with absolute links, and metadata that it accepts."""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

ROOT = Path(__file__).parents[2]


def read_metadata() -> ProjectMetadata[PluginManager]:
    return ProjectMetadata(str(ROOT), PluginManager())


def test_every_link_is_absolute_and_leads_to_a_file() -> None:
    project = read_metadata().core
    base = project.urls["Repository"]
    targets = re.findall(r"\]\(([^)]+)\)", project.readme)
    assert len(targets) > 10
    for target in targets:
        if target.startswith(project.urls["Documentation"]):
            continue  # tests/docs/test_site.py
        found = re.fullmatch(rf"{re.escape(base)}/(tree|blob)/main/([^#]+)(#.*)?", target)
        assert found, target
        path = ROOT / found[2]
        assert path.is_dir() if found[1] == "tree" else path.is_file(), target


def test_nothing_but_links_differs_from_the_readme() -> None:
    shown, page = read_metadata().core.readme, (ROOT / "README.md").read_text(encoding="utf-8")
    assert shown != page
    assert re.sub(r"\]\([^)]+\)", "]", shown) == re.sub(r"\]\([^)]+\)", "]", page)


def test_pypi_knows_the_classifiers_and_who_wrote_it() -> None:
    project = read_metadata().core
    assert project.classifiers, "hatchling refuses one that PyPI does not know"
    assert project.authors
    assert {"Repository", "Documentation", "Changelog", "Issues"} <= project.urls.keys()
    elsewhere = {name for name, url in project.urls.items() if not url.startswith(project.urls["Repository"])}
    assert elsewhere == {"Documentation"}, "one place to change"
