"""The documentation is so: specs are accepted, quoted messages told, commands have these options, links lead
somewhere."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from gpuprov.cli import cli
from gpuprov.fleet.policy import policy
from gpuprov.fleet.specs import load_fleet
from gpuprov.spec.problem import Problem, SpecError

ROOT = Path(__file__).parents[2]
USERS = [ROOT / "README.md", ROOT / "docs/tutorial.md", *sorted((ROOT / "docs/how-to").glob("*.md"))]
INDEX = ROOT / "docs/index.md"
TOP = [INDEX, ROOT / "docs/README.md", *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"))]
PAGES = [*USERS, *TOP, *sorted((ROOT / "docs/explanation").glob("*.md"))]
HEAD = "all:\n  hosts: {gpu001: {}, head1: {}, head2: {}}\n  vars:\n"
PLACEHOLDERS = {'sha256: "..."': f"sha256: '{'0' * 64}'", 'fingerprint: "..."': f"fingerprint: '{'0' * 40}'"}
# Files of the reader's own, and a branch whose support has ended since: the examples have the versions of Debian 12.
BORNE = ("No such file or directory", "support of branch 535 ended")
PROVOKED = """
nvidia_drivr: {version: "535"}
nvidia_driver: {version: "580", source: mirror, repository: {url: "https://mirror.example/cuda/"}}
dcgm: {version: "3"}
---
nvidia_driver: {version: "570"}
cuda_toolkit: {versions: ["13.0"], default: "13.0"}
---
nvidia_driver: {version: "535"}
"""


def inventory(example: str) -> str:
    """A whole inventory of an example, which may be a host's spec alone."""
    for placeholder, value in PLACEHOLDERS.items():
        example = example.replace(placeholder, value)
    if re.search("(?m)^(all|gpuprov_rollout):", example):
        return example
    if example.startswith("simulated_host:"):
        example += "gpuprov: {nouveau: {}}\n"
    elif not example.startswith("gpuprov:"):
        example = "gpuprov:\n" + textwrap.indent(example, "  ")
    return HEAD + textwrap.indent(example, "    ")


def problems(path: Path, text: str) -> list[Problem]:
    path.write_text(text, encoding="utf-8")
    try:
        if "gpuprov_rollout:" in text:
            policy.load(path)
            return []
        return list(load_fleet([str(path)], cache=False).warnings)
    except SpecError as error:
        return list(error.problems)


def test_every_spec_is_accepted(tmp_path: Path) -> None:
    told = []
    for page in USERS:
        text = page.read_text(encoding="utf-8")
        for example in re.finditer(r"(?ms)^```yaml\n(.*?)^```", text):
            place = f"{page.name}:{text[: example.start()].count(chr(10)) + 1}"
            found = [str(one) for one in problems(tmp_path / "inventory.yaml", inventory(example[1]))]
            told += [f"{place}: {one}" for one in found if not any(words in one for words in BORNE)]
    assert not told, "\n".join(told)


def test_every_quoted_message_is_told(tmp_path: Path) -> None:
    specs = PROVOKED.split("---\n")
    known = {re.sub(r"^\S+ ", "", str(one)) for spec in specs for one in problems(tmp_path / "i.yaml", inventory(spec))}
    shown = [words for page in PAGES for words in re.findall(r"(?m)^ +inventory\.yaml:[\d:]+ (.*)$", page.read_text())]
    assert shown
    assert [words for words in shown if words not in known] == []


def command_lines(text: str) -> Iterator[list[str]]:
    """Lines of code blocks that begin with gpuprov, and code within lines that has more than its name."""
    blocks = re.findall(r"(?m)^(?: {4}|```\w*\n)(?:\$ )?(gpuprov .*)$", text)
    for line in [*blocks, *re.findall(r"`(gpuprov [^`\n]+)`", text)]:
        yield shlex.split(line.split("  #")[0].replace("...", ""))


def test_every_command_has_these_options() -> None:
    told = []
    for page in PAGES:
        for words in command_lines(page.read_text(encoding="utf-8")):
            command: click.Command = cli
            for word in words[1:]:
                if isinstance(command, click.Group) and word in command.commands:
                    command = command.commands[word]
                elif isinstance(command, click.Group) and not word.startswith("-"):
                    told.append(f"{page.name}: {shlex.join(words)}: no command {word}")
                    break
                elif word.startswith("-"):
                    known = {name for one in command.params for name in one.opts} | {"-h", "--help"}
                    told += [f"{page.name}: {shlex.join(words)}: no {word}"] * (word.partition("=")[0] not in known)
    assert not told, "\n".join(told)


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"(?m)^#+ (.*)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_link_leads_somewhere_and_no_page_is_alone() -> None:
    linked, told = set(), []
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text(encoding="utf-8")):
            name, _, anchor = target.partition("#")
            file = (page.parent / name).resolve() if name else page
            linked |= {file} if page == INDEX else set()
            if not file.exists() or (anchor and anchor not in anchors(file)):
                told.append(f"{page.name}: {target}")
    assert told == []
    listed = [*USERS, *(ROOT / "docs/explanation").glob("*.md"), ROOT / "docs/adr/README.md"]
    assert [page.name for page in listed if page not in linked] == [], "docs/index.md lists every page"


def test_the_readme_is_one_that_people_read() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    assert {"    make demo", "    make test"} <= set(lines)
