"""Changes by mkdocs to the files of docs/ for the site: the README as its first page, a menu from docs/index.md, links
out of docs/."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

sys.path.insert(0, str(Path(__file__).parent))
from links import find_repository, find_site, link_to_repository, rewrite

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
MOVED = {ROOT / "README.md": "index.md", DOCS / "index.md": "all-pages.md", DOCS / "README.md": "where-things-live.md"}
"""Files with another place in the site: mkdocs takes both README.md and index.md for the page of their folder."""
GENERATED = re.compile(rf"(?<=\]\(){re.escape(find_site(ROOT))}(reference/\w+)\.html")
"""A link to a page that git lacks, which docs/generate.py writes: from outside of the site it leads to the published one."""
ITEM = re.compile(r"\* \[([^\]]+)\]\(([^)#]+)\)")
Menu = list[dict[str, "str | Menu"]]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    # Not as repo_url, whose link asks GitHub for its number of stars.
    config.extra["social"] = [{"icon": "fontawesome/brands/git-alt", "link": find_repository(ROOT), "name": "Source"}]
    config.mdx_configs["toc"] = {"permalink": True, "slugify": slugify(case="lower")}  # anchors as GitHub has them
    config.nav = [{"gpuprov": "index.md"}, *read_menu((DOCS / "index.md").read_text(encoding="utf-8"))]
    config.nav[-1]["Reference"] += list_reference()
    config.nav[-2]["How it works"] += [{"Every decision": list_decisions()}, {"All pages": "all-pages.md"}]
    return config


def read_menu(text: str) -> Menu:
    """Return the menu described by a page of headings and lists of links: a tab for each `##`, a group for each
    `###`."""
    menu: Menu = []
    into = menu
    for line in GENERATED.sub(find_page, text).splitlines():
        if heading := re.fullmatch(r"(##|###) (.*)", line):
            above = menu if heading[1] == "##" else menu[-1][next(iter(menu[-1]))]
            into = []
            above.append({heading[2]: into})
        elif found := ITEM.match(line):
            into.append({found[1]: MOVED.get((DOCS / found[2]).resolve(), found[2])})
    return menu


def find_page(link: re.Match[str]) -> str:
    """Return the path under docs/ of a page that a link to the published site means."""
    return link[1].replace("/index", "/README") + ".md"


def list_reference() -> Menu:
    """Return a page for each capability, in the order of its index."""
    text = (DOCS / "reference/README.md").read_text(encoding="utf-8")
    return [{found[1]: f"reference/{found[2]}"} for found in ITEM.finditer(text) if found[2].endswith(".md")]


def list_decisions() -> list[str]:
    return [f"adr/{path.name}" for path in sorted((DOCS / "adr").glob("[0-9]*.md"))]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in ("README.md", "index.md"):
        if file := files.get_file_from_path(name):
            files.remove(file)
    for path, name in MOVED.items():
        text = path.read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text, inclusion=InclusionLevel.INCLUDED))
    return files


def find_source(page: Page) -> Path:
    """Return the file in the repository that a page is made of."""
    name = page.file.src_uri
    return next((path for path, moved in MOVED.items() if moved == name), DOCS / name)


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    source = find_source(page)
    if page.file.src_uri.startswith("adr/"):
        page.meta["search"] = {"boost": 0.3}  # why comes after how
    up = "../" * (len(source.parts) - len(ROOT.parts) - 1)
    inside = "docs/" if source.parent == ROOT else up[3:]
    markdown = GENERATED.sub(lambda link: inside + find_page(link), markdown)
    return rewrite(markdown, lambda target: place_in_site(source, page.file.src_uri, target))


def place_in_site(source: Path, name: str, target: str) -> str:
    """Return a link's target in the site: another page, or the repository for files that are not documentation."""
    path, mark, anchor = target.partition("#")
    file = (source.parent / path).resolve() if path else source
    if file.is_dir() and (file / "README.md").is_file():
        file /= "README.md"
    if not file.exists():
        raise PluginError(f"{source.relative_to(ROOT)}: a link to {target}, which does not exist")
    if file in MOVED or (file.is_relative_to(DOCS) and file.is_file()):
        inside = MOVED.get(file) or str(file.relative_to(DOCS))
        return "../" * name.count("/") + inside + mark + anchor
    return link_to_repository(ROOT, source, target)
