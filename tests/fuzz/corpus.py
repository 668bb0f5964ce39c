"""Where mutation begins: captured outputs, the texts of the tests, the words of the probes' own scripts."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import gpuprov.facts.probes
import tests
from gpuprov.facts.probes.base import Probe

TESTS = Path(str(tests.__file__)).parent
LARGEST = 8_000
"""Characters of a seed; of a longer one, its beginning."""


@cache
def modules() -> tuple[ModuleType, ...]:
    """Every module of `gpuprov.facts.probes`; whoever adds one adds its parsers to these tests."""
    names = sorted(
        module.name for module in pkgutil.walk_packages(gpuprov.facts.probes.__path__, "gpuprov.facts.probes.")
    )
    return tuple(importlib.import_module(name) for name in names)


@cache
def probes() -> dict[str, Probe[object]]:
    """Every probe by name."""
    return {one.name: one for module in modules() for one in vars(module).values() if isinstance(one, Probe)}


@cache
def home() -> dict[str, str]:
    """The module that each probe stands in."""
    found: dict[str, str] = {}
    for module in modules():
        for one in vars(module).values():
            if isinstance(one, Probe):
                found.setdefault(one.name, module.__name__.rpartition(".")[2])
    return found


@cache
def _literals() -> dict[str, tuple[str, ...]]:
    """The longer texts of each file of tests, under the probe modules that the file imports."""
    found: dict[str, dict[str, None]] = {}
    for path in sorted(TESTS.rglob("*.py")):
        if path.is_relative_to(Path(__file__).parent):
            continue
        source = path.read_text(encoding="utf-8")
        if "gpuprov.facts.probes" not in source:
            continue
        tree = ast.parse(source)
        mine: set[str] = set()
        texts: list[str] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpuprov.facts.probes"):
                mine |= {(node.module or "").rpartition(".")[2], *(alias.name for alias in node.names)}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 8:
                texts.append(node.value[:LARGEST])
        for name in mine:
            found.setdefault(name, {}).update(dict.fromkeys(texts))
    return {name: tuple(texts) for name, texts in found.items()}


@cache
def captured(probe: str) -> tuple[str, ...]:
    """The outputs of real machines kept under the probe's name."""
    files = sorted((TESTS / "facts" / "probes" / "data" / probe).rglob("*"))
    return tuple(file.read_text(encoding="utf-8", errors="replace")[:LARGEST] for file in files if file.is_file())


@cache
def words(script: str) -> tuple[str, ...]:
    """The keys that a script prints before a separator, and what it greps for."""
    keys = re.findall(r"([A-Za-z_][\w.-]*[|= :@])", script)
    return tuple(dict.fromkeys(keys))[:200]


@cache
def seeds(module: str, probe: str = "") -> tuple[str, ...]:
    """What the parsers of a module are fed with; lines of the script's own words where nothing was captured."""
    every = [*captured(probe), *_literals().get(module, ())]
    if probe:
        keys = words(probes()[probe].script)
        every.append("".join(f"{key}{number}|{key}\n" for number, key in enumerate(keys)))
        every.append("".join(f"{key} 0 0 0 0\n" for key in keys))
    return tuple(every) or ("",)
