"""Rules for every role."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gpuprov.capabilities import BY_NAME
from gpuprov.render.carried import role_files
from tests.contracts.test_imports import nodes

ROOT = Path(__file__).parents[2]
TASKS = sorted((ROOT / "roles").glob("*/tasks/**/*.yml"))
PARTS = {"tasks", "meta", "defaults", "vars", "files"}


def shown(paths: Iterable[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


@cache
def read(path: Path) -> list[dict[str, Any]]:
    return list(yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader) or [])


def test_task_files_are_short() -> None:
    assert not shown(path for path in TASKS if len(path.read_text(encoding="utf-8").splitlines()) > 60)


def test_a_role_writes_what_python_made() -> None:
    """No templates: a configuration has one writer, `desired`. No handlers: what follows a change is a state, too. Of
    programs it has those in shell: the others are in gpuprov/host_code."""
    parts = [path for path in (ROOT / "roles").glob("*/*") if path.name not in PARTS]
    parts += [path for path in (ROOT / "roles").glob("*/files/**/*") if path.is_file() and path.suffix != ".sh"]
    assert not shown(parts)


def test_no_role_reboots_but_the_houses_own() -> None:
    for path in TASKS:
        if "ansible.builtin.reboot" in path.read_text(encoding="utf-8"):
            assert path.parts[-3] == "host"


def test_errors_are_not_swallowed() -> None:
    for path in TASKS:
        for task in tasks_of(path):
            assert not task.get("ignore_errors"), f"{path}: {task.get('name')}"


def test_what_a_task_includes_of_a_role_is_there() -> None:
    """A file of another role that is gone is found only when a host comes to the task."""
    playbooks = [path for path in (ROOT / "playbooks").rglob("*.yml") if path.name == "site.yml"]
    tasks = [(path, task) for path in TASKS for task in tasks_of(path)]
    tasks += [
        (path, inner)
        for path in playbooks
        for play in read(path)
        for task in play["tasks"]
        for inner in [task, *task.get("block", []), *task.get("always", [])]
    ]
    wrong = []
    for path, task in tasks:
        included = task.get("ansible.builtin.include_role") or {}
        name, file = included.get("name", ""), included.get("tasks_from", "main")
        if name and "{{" not in f"{name}{file}" and not (ROOT / "roles" / name / "tasks" / f"{file}.yml").is_file():
            wrong.append(f"{path.relative_to(ROOT)}: {task['name']}: {name}/{file}")
    assert not wrong


ACTS_ON_MODULES = re.compile(r"(^|[ ;{])(rmmod|modprobe) (?!-c)")


def tasks_of(path: Path) -> list[dict[str, Any]]:
    """Return all tasks of a file, including those in blocks."""
    found: list[dict[str, Any]] = []
    waiting = list(read(path))
    while waiting:
        task = waiting.pop()
        found.append(task)
        waiting += [*task.get("block", []), *task.get("rescue", []), *task.get("always", [])]
    return found


def test_roles_look_up_no_file() -> None:
    """What a role writes comes from its values or by step: a looked-up name that is wrong is found on a host only."""
    looks = re.compile(r"(lookup|query)\('ansible\.builtin\.(file|template)'")
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "roles").glob("*/*/**/*.yml")}
    assert len(texts) > 100
    assert [path for path, text in texts.items() if looks.search(text)] == []


def test_what_is_brought_to_a_host_its_role_has() -> None:
    """`role_files` names files of the role, its own or carried; a wrong one is found only on a host."""
    wrong, found = [], 0
    for path in sorted((ROOT / "gpuprov" / "capabilities").rglob("*.py")):
        role = path.relative_to(ROOT / "gpuprov" / "capabilities").parts[0].removesuffix(".py")
        words = [node.value for node in nodes(path) if isinstance(node, ast.Constant)]
        names = {word for word in words if isinstance(word, str) and re.fullmatch(r"[\w-]+\.(sh|py)", word)}
        has = {Path(name).name for name in role_files(role)} if role in BY_NAME else names
        wrong += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(names - has)]
        found += len(names)
    assert not wrong
    assert found


def test_no_role_acts_on_modules_by_a_command() -> None:
    """In a privileged container they would be the machine's own. gpuprov's modules do, and are told by what was
    judged."""
    commands = (
        (path, task, f"{task.get('ansible.builtin.shell', '')}{task.get('ansible.builtin.command', '')}")
        for path in TASKS
        for task in tasks_of(path)
    )
    assert [f"{path}: {task['name']}" for path, task, command in commands if ACTS_ON_MODULES.search(command)] == []
    assert ACTS_ON_MODULES.search("true; modprobe nvidia")


METHODS = re.compile(
    r"gpuprov_judged\.desired(?:\.\w+)*\.(" + "|".join(sorted(set(dir(dict)) - set(dir(object)))) + r")\b(?!\()"
)


def test_what_a_role_takes_of_the_judge_is_no_method_of_a_dictionary() -> None:
    """Jinja finds the method `keys` before a key of that name, and the task ends with an error of Ansible's."""
    assert METHODS.findall("{{ gpuprov_judged.desired.rdma.ofed.keys }}") == ["keys"]
    assert not shown(path for path in TASKS if METHODS.search(path.read_text(encoding="utf-8")))


TAKEN = re.compile(r"gpuprov_judged\.desired\.(\w+)((?:\.\w+)+)")


@cache
def words_of(capability: str) -> set[str]:
    """Return every text of a capability's Python, and the fields of its structures."""
    folder = ROOT / "gpuprov" / "capabilities"
    files = [folder / f"{capability}.py", *(folder / capability).rglob("*.py")]
    found: set[str] = set()
    for path in filter(Path.is_file, files):
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
            elif isinstance(node, ast.keyword) and node.arg:
                found.add(node.arg)
    return found


def test_what_a_role_takes_of_the_judge_is_given() -> None:
    """A name that nothing gives is found only when a host comes to the task."""
    wrong = []
    for path in TASKS:
        for name, keys in TAKEN.findall(path.read_text(encoding="utf-8")):
            wrong += [
                f"{path.relative_to(ROOT)}: {name}.{key}" for key in keys.split(".")[1:] if key not in words_of(name)
            ]
    assert not wrong
