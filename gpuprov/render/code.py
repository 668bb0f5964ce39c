"""What an answer of gpuprov's own Python rests on: the code that is named, and all of gpuprov that it names, by the syntax trees.

Docstrings, lines of comment and blank lines do not count. What is called through an object is found by the object's class, which
whoever makes or takes the object names.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = "gpuprov"
ON_HOST = "ansible.module_utils.gpuprov_onhost"
"""What `gpuprov.onhost` is called in a module that Ansible takes to a host."""


class Name(NamedTuple):
    """Something at the top level of a module; without a `symbol` the module as a whole."""

    module: str
    symbol: str = ""


VERSION = Name(PACKAGE, "__version__")
"""Stands in messages alone."""


class Piece(NamedTuple):
    """Statements of a module as text, and what they name; without a module where it is their own."""

    text: str
    names: tuple[Name, ...]


class Module:
    """A module's source: what it defines, what it imports, and its statements that are neither."""

    def __init__(self, source: str, package: str) -> None:
        tree = ast.parse(source)
        self._lines = _without_comments(source, tree)
        self._definitions: dict[str, list[ast.stmt]] = {}
        self._loose: list[ast.stmt] = []
        self.imports: dict[str, Name] = dict(_imports(tree, package))
        self._pieces: dict[str, Piece] = {}
        for statement in tree.body:
            names = _defined(statement)
            for name in names:
                self._definitions.setdefault(name, []).append(statement)
            if not names and not isinstance(statement, ast.Import | ast.ImportFrom):
                self._loose.append(statement)

    def piece(self, symbol: str = "") -> Piece:
        """What defines a symbol, or all; with the statements that define nothing, which run whenever the module is loaded."""
        if symbol not in self._pieces:
            every = [one for found in self._definitions.values() for one in found]
            named = self._definitions.get(symbol, []) if symbol else every
            statements = list(dict.fromkeys([*named, *self._loose]))
            names = dict.fromkeys(name for one in statements for name in self._names(one))
            self._pieces[symbol] = Piece(self._text(statements), tuple(names))
        return self._pieces[symbol]

    def _text(self, statements: Iterable[ast.stmt]) -> str:
        found = []
        for one in sorted(statements, key=lambda statement: statement.lineno):
            decorators = [node.lineno for node in getattr(one, "decorator_list", [])]
            found += self._lines[min([one.lineno, *decorators]) - 1 : one.end_lineno]
        return "\n".join(line for line in found if line.strip())

    def _names(self, statement: ast.stmt) -> Iterator[Name]:
        """What a statement names; without a module where it is defined here."""
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                if node.id in self._definitions:
                    yield Name("", node.id)
                elif (found := self.imports.get(node.id)) and found.symbol:
                    yield found
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found = self.imports.get(node.value.id)
                if found and not found.symbol:
                    yield Name(found.module, node.attr)


def rests_on(names: Iterable[Name]) -> dict[Name, str]:
    """The text of these, and of all that they name, directly or not."""
    texts: dict[Name, str] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in texts or name == VERSION or (module := _module(name.module)) is None:
            continue
        texts[name], named = module.piece(name.symbol)
        waiting += (one if one.module else Name(name.module, one.symbol) for one in named)
    return dict(sorted(texts.items()))


def imported_by(file: Path) -> list[Name]:
    """What of gpuprov a program names that is no module of gpuprov: one that Ansible takes to a host."""
    return [name for name in _parsed(file.read_text(encoding="utf-8"), "").piece().names if name.module]


def modules(name: str) -> list[str]:
    """A module of gpuprov, and all of gpuprov that is imported with it, directly or not, with the packages that they lie in."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in found or (module := _module(one)) is None:
            continue
        found.add(one)
        waiting += [one.rpartition(".")[0], *(imported.module for imported in module.imports.values())]
    return sorted(found)


@cache
def _module(name: str) -> Module | None:
    if (
        name.split(".", maxsplit=1)[0] != PACKAGE
        or (found := importlib.util.find_spec(name)) is None
        or not found.origin
    ):
        return None
    package = name if found.submodule_search_locations is not None else name.rpartition(".")[0]
    return _parsed(Path(found.origin).read_text(encoding="utf-8"), package)


@cache
def _parsed(source: str, package: str) -> Module:
    return Module(source, package)


def _imports(tree: ast.Module, package: str) -> Iterator[tuple[str, Name]]:
    """Local names of what comes from gpuprov, wherever in the file it is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname and _ours(alias.name):
                    yield alias.asname, Name(_ours(alias.name))
        elif isinstance(node, ast.ImportFrom) and (place := _ours(_absolute(node, package))):
            for alias in node.names:
                inner = f"{place}.{alias.name}"
                yield alias.asname or alias.name, Name(inner) if _is_module(inner) else Name(place, alias.name)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    above = package.split(".")
    return ".".join([*above[: len(above) - node.level + 1], *([node.module] if node.module else [])])


def _ours(module: str) -> str:
    """The module's name in gpuprov; empty for another's."""
    if module == ON_HOST or module.startswith(f"{ON_HOST}."):
        return f"{PACKAGE}.onhost{module.removeprefix(ON_HOST)}"
    return module if module.split(".", maxsplit=1)[0] == PACKAGE else ""


@cache
def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is a module, not a package
        return False


def _defined(statement: ast.stmt) -> list[str]:
    """The names that a statement at the top level gives a meaning."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
    return []


def _without_comments(source: str, tree: ast.Module) -> list[str]:
    """The lines of a source, with nothing where docstrings and lines of comment were. A `#` inside of a text is the text's."""
    lines = source.splitlines()
    kept: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
            kept |= set(range(node.lineno - 1, node.end_lineno or node.lineno))
        for prose in _prose(node):
            for row in range(prose.lineno - 1, prose.end_lineno or prose.lineno):
                lines[row] = ""
    return ["" if row not in kept and line.lstrip().startswith("#") else line for row, line in enumerate(lines)]


def _prose(node: ast.AST) -> list[ast.stmt]:
    """Statements of a body that are nothing but a text: docstrings, and what stands below a constant."""
    body = getattr(node, "body", [])
    return [
        one
        for one in (body if isinstance(body, list) else [])
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str)
    ]
