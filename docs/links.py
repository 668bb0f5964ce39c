"""Links of a page, rewritten for another place: README.md on PyPI, for which hatchling runs this as a metadata hook."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s]+)(?=\))")
FENCE = re.compile(r"(?ms)^(```.*?^```)")


def rewrite(text: str, replace: Callable[[str], str]) -> str:
    """Return the page with each relative link replaced; blocks of code are unchanged."""
    parts = FENCE.split(text)
    return "".join(part if part.startswith("```") else LINK.sub(lambda link: replace(link[0]), part) for part in parts)


def find_repository(root: Path) -> str:
    """Return the address of the repository, from pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Repository"])


def find_site(root: Path) -> str:
    """Return the address of the published site, with a `/` at its end, from pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Documentation"])


def link_to_repository(root: Path, page: Path, target: str) -> str:
    """Return the address in the repository for the target of a page's relative link."""
    name, mark, anchor = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    kind = "tree" if path.is_dir() else "blob"
    return f"{find_repository(root)}/{kind}/main/{path.relative_to(root)}{mark}{anchor}"


class ReadmeHook(MetadataHookInterface):
    """The long description: README.md, with links that work outside of the repository."""

    def update(self, metadata: dict) -> None:
        root = Path(self.root).resolve()
        page = root / "README.md"
        text = rewrite(page.read_text(encoding="utf-8"), lambda target: link_to_repository(root, page, target))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
