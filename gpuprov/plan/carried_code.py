"""The modules of gpuprov/onhost that one of them needs, found by its imports."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gpuprov import onhost


@cache
def modules(name: str) -> tuple[str, ...]:
    """The module, and all that are imported with it, directly or not, with the packages that they lie in."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one not in found and (file := _file(one)):
            found.add(one)
            waiting += [one.rpartition(".")[0], *_imported(one, file)]
    return tuple(sorted(found))


def _file(name: str) -> Path | None:
    if not name.startswith(onhost.__name__):
        return None
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # a name in a module
        return None
    return Path(found.origin) if found and found.origin else None


def _imported(name: str, file: Path) -> Iterator[str]:
    """What it imports from beside it: modules, and names that may be modules."""
    above = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            place = ".".join([*above[: len(above) - node.level + 1], *([node.module] if node.module else [])])
            yield place
            yield from (f"{place}.{alias.name}" for alias in node.names)
