"""Finds the modules of gpuprov/host_code that one of them imports."""

import ast
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gpuprov import host_code


@cache
def find_modules(name: str) -> tuple[str, ...]:
    """Return the module and everything that it imports, directly or not, with their packages."""
    collected: set[str] = set()
    waiting = [name]
    while waiting:
        module_name = waiting.pop()
        if module_name not in collected and (file := _find_file(module_name)):
            collected.add(module_name)
            waiting += [module_name.rpartition(".")[0], *_find_imports(module_name, file)]
    return tuple(sorted(collected))


def _find_file(name: str) -> Path | None:
    if not name.startswith(host_code.__name__):
        return None
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # a name in a module
        return None
    return Path(spec.origin) if spec and spec.origin else None


def _find_imports(name: str, file: Path) -> Iterator[str]:
    """Yield what it imports relatively: modules, and names that may be modules."""
    above = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            place = ".".join([*above[: len(above) - node.level + 1], *([node.module] if node.module else [])])
            yield place
            yield from (f"{place}.{alias.name}" for alias in node.names)
