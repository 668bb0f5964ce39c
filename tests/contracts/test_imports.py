"""Imports run one way, heavy ones are late, and only the console and the reports write to the terminal."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "gpuprov"
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli", "pytest_plugin"),
    ("cli_accept", "cli_mig", "cli_topology"),
    ("options",),
    ("rehearse",),
    ("accept", "apply"),
    ("plan",),
    ("render", "verify", "export", "explain", "report"),
    ("gather",),
    ("fleet",),
    ("capabilities",),
    ("mig", "topology"),
    ("inventory", "spec", "probe", "catalog", "simulate"),
    (
        "resolve",
        "reload",
        "package_lists",
        "engines",
        "openpgp",
        "certificates",
        "sources",
        "console",
        "assets",
        "keep",
        "mig_layout",
        "mig_fit",
        "nccl_conf",
    ),
    ("errors",),
)
RANK = {name: len(LAYERS) - number for number, layer in enumerate(LAYERS) for name in layer}
SIDEWAYS = {
    ("inventory", "spec"),  # raw hosts and problems are spec's
    ("catalog", "spec"),
    ("simulate", "catalog"),  # simulated GPUs are the catalogue's
    ("report", "verify"),  # reports show results
    ("report", "explain"),
    ("report", "export"),
    ("verify", "report"),
}
FILES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    part = path.relative_to(PACKAGE).parts[0]
    return part.removesuffix(".py")


def imported(path: Path) -> set[tuple[str, ...]]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "gpuprov":
            names = [node.module] if node.module != "gpuprov" else [f"gpuprov.{alias.name}" for alias in node.names]
            if node.module.count(".") == 1:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {tuple(name.split(".")[1:]) for name in names}
        elif isinstance(node, ast.Import):
            found |= {tuple(alias.name.split(".")[1:]) for alias in node.names if alias.name.startswith("gpuprov.")}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path: Path) -> None:
    mine = room(path)
    for name in imported(path):
        other = name[0]
        if other in ("__version__", mine) or mine == "__init__":
            continue
        assert other in RANK, f"{other} has no layer"
        assert RANK[mine] > RANK[other] or (mine, other) in SIDEWAYS, f"{mine} must not import {other}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "capabilities").rglob("*.py")), ids=str)
def test_capabilities_never_import_each_other(path: Path) -> None:
    mine = path.relative_to(PACKAGE / "capabilities").parts[0].removesuffix(".py")
    if mine == "__init__":
        return
    others = {name[1] for name in imported(path) if name[0] == "capabilities" and len(name) > 1}
    assert others <= {"answers", "base", "repositories_checks", mine}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_console_and_reports_print(path: Path) -> None:
    if room(path) in ("console", "report", "__main__", "simulate"):
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write"), called


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_stay_small(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in output.stdout.split()}


def test_help_imports_nothing_but_click() -> None:
    heavy = {"ansible", "ansible_runner", "testinfra", "rich", "jinja2", "yaml", "paramiko", "msgspec", "pytest"}
    assert not heavy & loaded_by("import gpuprov.cli")


def test_verify_needs_no_ansible() -> None:
    assert not {"ansible", "rich", "jinja2", "pytest"} & loaded_by("import gpuprov.fleet, gpuprov.verify")


@pytest.mark.parametrize(
    "name",
    ["resolve.py", "package_lists.py", "reload.py", "engines.py", "openpgp.py", "sources.py", "catalog/toolchain.py"],
)
def test_what_ansible_carries_as_a_filter_is_standard_library_only(name: str) -> None:
    third = {"msgspec", "yaml", "ansible", "click", "gpuprov"}
    assert not third & loaded_by(f"import runpy; runpy.run_path({str(PACKAGE / name)!r})")
