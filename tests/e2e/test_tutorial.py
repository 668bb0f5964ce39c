"""The tutorial: its commands, in order and on the host that it starts, print what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gpuprov.simulate import container
from tests.e2e.lab import Lab

pytestmark = pytest.mark.e2e
NAME = "e2e-tutorial"
TUTORIAL = Path(__file__).parents[2] / "docs/tutorial.md"
CODES = {"plan": [1], "verify": [0, 1]}
"""Exit codes by verb, the first time and then; 0 for all others."""


def commands(text: str) -> list[tuple[str, list[str]]]:
    """The commands to run, and the lines shown of what each prints."""
    (up,) = re.findall(r"(?m)^    gpuprov (simulate up .*)", text)
    blocks = re.findall(r"(?ms)^```console\n(.*?)^```", text)
    shown = [each.split("\n") for block in blocks for each in block.split("$ gpuprov ")[1:]]
    return [(up, []), *((command, [line for line in lines if line not in ("", "...")]) for command, *lines in shown)]


def without_numbers(line: str) -> str:
    return re.sub(r"\d[\w.+~-]*", "0", line)


def check_printed(lines: list[str], text: str) -> None:
    """Line for line and in order, but for versions, times and what is left out with three dots."""
    printed = list(map(without_numbers, text.splitlines()))
    for line in map(without_numbers, lines):
        head = line.removesuffix("...").rstrip()
        fits = [n for n, one in enumerate(printed) if one == line or (head != line and one.startswith(head))]
        assert fits, f"not printed here: {line}\n{text}"
        printed = printed[fits[0] :]


def test_the_tutorial_shows_what_is_printed(lab: Lab) -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    (inventory,) = re.findall(r"(?ms)^```yaml\n(# inventory.yaml\n.*?)^```", text)
    (lab.folder / "inventory.yaml").write_text(inventory.replace("gpu01", NAME))
    codes = {verb: list(each) for verb, each in CODES.items()}
    container.down(NAME)
    try:
        for command, lines in commands(text):
            verb, *words = shlex.split(command.replace("gpu01", NAME))
            ran = lab.run(verb, *words, *(["--yes"] if verb == "apply" else []))
            assert ran.code == (codes[verb].pop(0) if verb in codes else 0), ran
            check_printed(lines, f"{ran.err}{ran.out}".replace(NAME, "gpu01"))
    finally:
        container.down(NAME)
