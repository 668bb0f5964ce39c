"""The Ansible collection is the whole tree under full names: whatever role or plugin is added is in it."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml

from gpuprov.core.assets import files
from tests import collection
from tests.rows import run_each

ROOT = collection.ROOT
BRANCHES = ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers")


@cache
def read_tree() -> dict[str, str]:
    return collection.list_files()


def list_modules() -> set[str]:
    return {path.stem for path in (ROOT / "plugins/modules").glob("*.py")}


def find_actions(entries: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the action of each task of a file, including those in blocks."""
    from ansible.playbook.block import Block
    from ansible.playbook.play import Play
    from ansible.playbook.task import Task

    known = {*Task.fattributes, *Block.fattributes, *Play.fattributes, "import_playbook"}
    for entry in entries:
        yield from (key for key in entry if key not in known and not key.startswith("with_"))
        for branch in BRANCHES:
            yield from find_actions(entry.get(branch) or [])


def test_every_role_playbook_and_plugin_is_in_it() -> None:
    tree = read_tree()
    for folder, place in (("roles", "roles"), ("playbooks", "playbooks"), ("plugins/modules", "plugins/modules"),
                          ("plugins/action", "plugins/action")):  # fmt: skip
        wanted = {f"{place}/{name}" for name in files(ROOT / folder)}
        assert wanted <= tree.keys(), folder
    shared = {f"plugins/module_utils/gpuprov_host_code/{name}" for name in files(ROOT / "gpuprov/host_code")}
    assert shared <= tree.keys()
    assert "roles/mig/files/pynvml.py" in tree, "which make setup has beside gpuprov"


def test_every_task_runs_a_module_by_its_full_name() -> None:
    ours = {f"{collection.NAME}.{name}" for name in list_modules()}
    used: set[str] = set()
    for name, text in read_tree().items():
        if name.endswith(".yml") and ("/tasks/" in name or name.startswith("playbooks/")):
            used |= {*find_actions(yaml.safe_load(text) or [])}
    strange = {one for one in used if one not in ours and not one.startswith("ansible.builtin.")}
    assert strange == set()
    assert used & ours


def test_defaults_of_modules_name_them_in_full() -> None:
    short = list_modules()
    for name, text in read_tree().items():
        for play in yaml.safe_load(text) or [] if name.startswith("playbooks/") else []:
            assert not short & (play.get("module_defaults") or {}).keys(), name


def test_plugins_import_and_run_what_is_in_the_collection() -> None:
    short = list_modules()
    for name, text in read_tree().items():
        if name.startswith(("plugins/modules/", "plugins/action/")):
            assert "ansible.module_utils.gpuprov" not in text, name
            words = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
            assert not short & {word for word in words if isinstance(word, str)}, name


@run_each(
    ("text", "expected"),
    [
        ("- gpuprov_files:\n    files: {}", "- gpuprov.gpuprov.gpuprov_files:\n    files: {}"),
        ("  gpuprov_files: {a: b}", "  gpuprov.gpuprov.gpuprov_files: {a: b}"),
        ("  register: gpuprov_files", "  register: gpuprov_files"),
        ("  gpuprov_judged: {}", "  gpuprov_judged: {}"),
        ("  # gpuprov_files: writes", "  # gpuprov_files: writes"),
        ("  msg: a gpuprov_files: b", "  msg: a gpuprov_files: b"),
    ],
)
def test_only_keys_that_are_modules_are_renamed(text: str, expected: str) -> None:
    assert collection.qualify_yaml(text, {"gpuprov_files"}) == expected


def test_its_metadata_is_that_of_the_project() -> None:
    tree = read_tree()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    galaxy = yaml.safe_load(tree["galaxy.yml"])
    assert galaxy["version"] == project["version"]
    assert tree["requirements.txt"] == f"gpuprov=={project['version']}\n", (
        "another version's roles and judge do not fit"
    )
    assert f"ansible-core{yaml.safe_load(tree['meta/runtime.yml'])['requires_ansible']}" in project["dependencies"]
    assert all(tag.isalnum() and tag.islower() for tag in galaxy["tags"])
    assert "](../" not in tree["README.md"]
