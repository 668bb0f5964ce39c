"""Code for hosts runs there alone: standard library, an old Python, and modules that are documented."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov.render.carried import plugin_files
from tests.contracts.test_imports import PACKAGE, dotted, nodes
from tests.here import PLUGINS
from tests.host_code.modules import module
from tests.rows import run_each

FLOOR = (3, 8)
"""The oldest Python on a host that ansible-core 2.19 works with.
https://docs.ansible.com/ansible-core/2.19/reference_appendices/release_and_maintenance.html"""
ONHOST = sorted((PACKAGE / "host_code").rglob("*.py"))
FOR_DNF = frozenset((PACKAGE / "host_code" / "packages").glob("dnf_*.py"))
"""Parts of a program that dnf's own Python runs, 3.6 on EL 8: https://docs.python.org/3/whatsnew/3.6.html"""
OF_DNF = frozenset(("dnf", "hawkey", "rpm"))
MODULE = PACKAGE / "host_code" / "module.py"
"""The only module that uses Ansible's module API; programs on hosts that are not reached by Ansible do not import it.
"""
MODULES = sorted((PLUGINS / "modules").glob("*.py"))
ACTIONS = sorted((PLUGINS / "action").glob("*.py"))
ATTRIBUTES = frozenset(
    "removeprefix removesuffix is_relative_to bit_count hardlink_to batched pairwise to_thread UTC".split()
)
IMPORTED = frozenset(
    "tomllib zoneinfo graphlib cache batched pairwise UTC StrEnum TypeAlias ParamSpec Self override chdir "
    "aclosing".split()
)
ARGUMENTS = {"dataclass": {"slots", "kw_only"}, "zip": {"strict"}, "extractall": {"filter"}}
"""Names of the standard library that are newer than the minimum version: methods, imports, and arguments of calls."""


IMPORTS = re.compile(r"^(from|import|def) ", re.MULTILINE)


def test_syntax_and_names_are_those_of_the_oldest_python() -> None:
    wrong = []
    for path in (*ONHOST, *MODULES):
        text = path.read_text(encoding="utf-8")
        ast.parse(text, str(path), feature_version=(3, 6) if path in FOR_DNF else FLOOR)
        postponed = "from __future__ import annotations" in text or not IMPORTS.search(text)
        assert postponed != (path in FOR_DNF), (
            f"{path}: Python 3.6 has no annotations dated in the future, and list[str] needs them"
        )
        wrong += [f"{path}: {word}" for node in nodes(path) for word in _young(node)]
        wrong += [f"{path}: parenthesised with" for _ in re.finditer(r"^ *with \(\n", text, re.M)]
    assert not wrong


@run_each(
    "text",
    [
        "'a'.removeprefix('b')",
        "zip(a, b, strict=True)",
        "from functools import cache",
        "@dataclass(slots=True)\nclass A: ...",
    ],
)
def test_what_is_younger_is_found(text: str) -> None:
    assert [word for node in ast.walk(ast.parse(text)) for word in _young(node)]


def _young(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Attribute):
        return [node.attr] if node.attr in ATTRIBUTES else []
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.name for alias in node.names if alias.name in IMPORTED]
    if isinstance(node, ast.Call):
        name = dotted(node.func).rpartition(".")[2]
        return [f"{name}({key.arg}=)" for key in node.keywords if key.arg in ARGUMENTS.get(name, ())]
    return []


def test_only_the_standard_library_and_each_other() -> None:
    wrong = []
    for path in ONHOST:
        known = sys.stdlib_module_names | (OF_DNF if path in FOR_DNF else frozenset())
        known |= {"ansible"} if path == MODULE or path.parent.name == "steps" else set()
        for node in nodes(path):
            if isinstance(node, ast.Import):
                wrong += [f"{path}: {a.name}" for a in node.names if a.name.split(".")[0] not in known]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                wrong += [f"{path}: {node.module}"] if str(node.module).split(".")[0] not in known else []
            elif isinstance(node, ast.ImportFrom) and node.level > len(path.relative_to(PACKAGE / "host_code").parts):
                wrong.append(f"{path}: out of the package")
    assert not wrong


def test_modules_are_thin() -> None:
    assert not [
        path.name
        for path in MODULES
        if len(path.read_text(encoding="utf-8").partition('"""\n\nfrom ansible')[2].splitlines()) > 75
    ]


def test_every_plugin_is_ours_and_every_action_has_a_module() -> None:
    names = {path.stem for path in MODULES}
    assert names
    assert all(name.startswith("gpuprov_") for name in names)
    assert {path.stem for path in ACTIONS} <= names


def documented(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for node in ast.iter_child_nodes(nodes(path)[0]):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            found[ast.unparse(node.targets[0])] = yaml.safe_load(str(node.value.value))
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_documentation_is_the_argument_spec(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Types, choices, defaults and what is required, as Ansible takes them."""
    from ansible.module_utils import basic

    texts = documented(path)
    assert {"DOCUMENTATION", "EXAMPLES", "RETURN"} <= set(texts)
    assert texts["DOCUMENTATION"]["module"] == path.stem
    assert all(path.stem in task for task in texts["EXAMPLES"])
    seen: dict[str, Any] = {}

    class Stop(SystemExit):
        pass

    def take(_self: object, argument_spec: dict[str, Any], **more: Any) -> None:
        seen.update(argument_spec)
        assert more.get("supports_check_mode"), "check mode"
        raise Stop

    monkeypatch.setattr(basic.AnsibleModule, "__init__", take)
    with pytest.raises(Stop):
        module(path.stem).main()
    _same(texts["DOCUMENTATION"]["options"], seen, path.stem)


def _same(options: dict[str, Any], spec: dict[str, Any], place: str) -> None:
    assert set(options) == set(spec), place
    for name, option in options.items():
        assert option.get("description"), f"{place}.{name}: no description"
        for key in ("type", "elements", "choices", "default", "required"):
            assert option.get(key) == spec[name].get(key), f"{place}.{name}.{key}"
        _same(option.get("suboptions", {}), spec[name].get("options", {}), f"{place}.{name}")


def test_a_rendered_project_has_them_where_ansible_looks() -> None:
    files = plugin_files()
    assert {path.name for path in MODULES} == {Path(name).name for name in files if name.startswith("library/")}
    assert {path.name for path in ACTIONS} == {Path(name).name for name in files if name.startswith("action_plugins/")}
    beside = "module_utils/gpuprov_host_code/"
    assert {path.name for path in ONHOST} == {Path(name).name for name in files if name.startswith(beside)}


def test_the_linter_of_roles_knows_each_of_them() -> None:
    config = yaml.safe_load((PLUGINS.parent / ".ansible-lint").read_text(encoding="utf-8"))
    assert config["only_builtins_allow_modules"] == [path.stem for path in MODULES]
