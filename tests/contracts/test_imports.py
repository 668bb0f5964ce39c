"""Imports go one way, and heavy ones are late."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, TypeVar

from tests.rows import run_each

N = TypeVar("N", bound=ast.AST)

PACKAGE = Path(__file__).parents[2] / "gpuprov"
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli", "pytest_plugin"),
    ("bundle", "bake"),
    ("rehearse", "rollout", "pull"),
    ("jobs",),
    ("accept", "apply", "repair"),
    ("checkpoints", "host_page"),
    ("plan", "init", "drift"),
    ("play", "render", "export", "explain", "report"),
    ("fleet",),
    ("verify",),
    ("capabilities",),
    ("hardware", "resources"),
    ("facts", "simulate"),
    ("inventory", "spec", "catalog"),
    ("core", "rules", "host_code"),
)
RANK = {name: len(LAYERS) - number for number, layer in enumerate(LAYERS) for name in layer}
SIDEWAYS = {
    ("inventory", "spec"),  # raw hosts and problems are spec's
    ("catalog", "spec"),
    ("report", "explain"),
    ("report", "export"),
}
SHARED = {
    "answers",
    "at_boot",
    "base",
    "booting",
    "compared",
    "computing",
    "driver",
    "masks",
    "package_sources",
    "read_files",
    "steps",
    "tasks",
}
"""What capabilities import from beside them."""
FILES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    part = path.relative_to(PACKAGE).parts[0]
    return part.removesuffix(".py")


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return the nodes of a source, the module first: parsed once for all contracts. The garbage collector, which would
    take most of the time, never scans them."""
    gc.disable()
    try:
        found: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
        for node in found:  # as ast.walk does, in half the time
            for field in node._fields:
                value = getattr(node, field, None)
                if isinstance(value, list):
                    found += [child for child in value if isinstance(child, ast.AST)]
                elif isinstance(value, ast.AST) and field != "ctx":
                    found.append(value)
        return tuple(found)
    finally:
        gc.freeze()
        gc.enable()


@cache
def _nodes_by_kind(path: Path) -> dict[type[ast.AST], list[Any]]:
    found: dict[type[ast.AST], list[Any]] = {}
    for node in nodes(path):
        found.setdefault(type(node), []).append(node)
    return found


def find_nodes(path: Path, kind: type[N]) -> list[N]:
    """Return the nodes of one kind."""
    return _nodes_by_kind(path).get(kind, [])


@cache
def imported(path: Path) -> frozenset[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "gpuprov":
            names = [node.module] if node.module != "gpuprov" else [f"gpuprov.{alias.name}" for alias in node.names]
            if node.module.count(".") == 1:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {tuple(name.split(".")[1:]) for name in names}
        elif isinstance(node, ast.Import):
            found |= {tuple(alias.name.split(".")[1:]) for alias in node.names if alias.name.startswith("gpuprov.")}
    return frozenset(found)


def shown(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def dotted(node: ast.expr) -> str:
    """Return the name of a call, such as `click.echo`; "" if it has no plain name."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


# One test for all files of a rule: a test for each would be a seventh of all tests, and most of their time pytest's
# own.
def test_imports_run_one_way() -> None:
    pairs = {(room(path), name[0], shown(path)) for path in FILES for name in imported(path)}
    crossing = {pair for pair in pairs if pair[0] != "__init__" and pair[1] not in ("__version__", pair[0])}
    assert not {(other, path) for _, other, path in crossing if other not in RANK}, "without a layer"
    wrong = {
        (path, f"{mine} must not import {other}")
        for mine, other, path in crossing
        if RANK[mine] <= RANK[other] and (mine, other) not in SIDEWAYS
    }
    assert not wrong


def test_the_drawing_of_the_house_is_true() -> None:
    drawn = (PACKAGE.parent / "docs" / "README.md").read_text(encoding="utf-8").split("```text\n")[1].split("```")[0]
    rows = [line.split()[: len(layer)] for line, layer in zip(drawn.splitlines(), LAYERS, strict=True)]
    assert [set(row) for row in rows] == [set(layer) for layer in LAYERS]


def reached(path: Path) -> frozenset[str]:
    """Return the modules of gpuprov that a module imports, when loaded or later, by name or relatively."""
    found: set[str] = set()
    mine = path.relative_to(PACKAGE.parent).with_suffix("").parts
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            above = [*mine[: -node.level], *filter(None, [node.module])] if node.level else [node.module or ""]
            inner = {f"{'.'.join(above)}.{alias.name}" for alias in node.names}
            found |= {name if module_file(name) else ".".join(above) for name in inner}
    return frozenset(name for name in found if name.startswith("gpuprov"))


@cache
def module_file(name: str) -> Path | None:
    place = PACKAGE.parent.joinpath(*name.split("."))
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def test_there_are_no_circles() -> None:
    graph = {path: {found for name in reached(path) if (found := module_file(name))} - {path} for path in FILES}
    TopologicalSorter(graph).prepare()


def test_capabilities_never_import_each_other() -> None:
    wrong = {}
    for path in sorted((PACKAGE / "capabilities").rglob("*.py")):
        mine = path.relative_to(PACKAGE / "capabilities").parts[0].removesuffix(".py")
        others = {name[1] for name in imported(path) if name[0] == "capabilities" and len(name) > 1}
        if mine != "__init__" and (found := others - {*SHARED, mine}):
            wrong[shown(path)] = found
    assert not wrong


def test_files_stay_small() -> None:
    lengths = {shown(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert not {path: length for path, length in lengths.items() if length > 300}


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in output.stdout.split()}


def test_help_imports_nothing_but_click() -> None:
    heavy = {"ansible", "ansible_runner", "testinfra", "rich", "jinja2", "yaml", "paramiko", "msgspec", "pytest"}
    assert not heavy & loaded_by("import gpuprov.cli")


def test_verify_needs_no_ansible() -> None:
    assert not {"ansible", "rich", "jinja2", "pytest"} & loaded_by("import gpuprov.fleet.specs, gpuprov.verify")


@run_each("path", sorted((PACKAGE / "rules").glob("[!_]*.py")), ids=lambda path: path.stem)
def test_what_is_shared_is_standard_library_only(path: Path) -> None:
    assert not {"msgspec", "yaml", "ansible", "click"} & loaded_by(f"import gpuprov.rules.{path.stem}")


PROGRAM_LINE = re.compile(
    r"(?m)(?:^|[;\"'n])\s*from (gpuprov(?:\.\w+)*) import (\w+(?: as \w+)?(?:, \w+(?: as \w+)?)*)"
)


def test_programs_in_texts_import_what_there_is() -> None:
    """Programs that tests run as texts are seen neither by mypy nor, where they are marked `install`, by the fast
    tests. `login_notice` is the capability that test_tenth.py makes."""
    missing = set()
    for path in sorted((PACKAGE.parent / "tests").rglob("*.py")):
        for module, names in PROGRAM_LINE.findall(path.read_text(encoding="utf-8")):
            for name in (part.split()[0] for part in names.split(", ")):
                if not (module.endswith(".login_notice") or module_file(f"{module}.{name}") or _defines(module, name)):
                    missing.add(f"{path.name}: from {module} import {name}")
    assert not missing


@cache
def _defines(module: str, name: str) -> bool:
    file = module_file(module)
    return file is not None and re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")) is not None
