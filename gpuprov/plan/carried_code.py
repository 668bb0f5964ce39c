"""Finds the modules of gpuprov/onhost that one of them imports."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gpuprov import onhost


@cache
def find_modules(name: str) -> tuple[str, ...]:
    """Return the module and everything that it imports, directly or not, with their packages."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one not in found and (file := _find_file(one)):
            found.add(one)
            waiting += [one.rpartition(".")[0], *_find_imports(one, file)]
    return tuple(sorted(found))


def _find_file(name: str) -> Path | None:
    if not name.startswith(onhost.__name__):
        return None
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # a name in a module
        return None
    return Path(found.origin) if found and found.origin else None


def _find_imports(name: str, file: Path) -> Iterator[str]:
    """Yield what it imports relatively: modules, and names that may be modules."""
    above = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            place = ".".join([*above[: len(above) - node.level + 1], *([node.module] if node.module else [])])
            yield place
            yield from (f"{place}.{alias.name}" for alias in node.names)
