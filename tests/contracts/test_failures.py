"""The state that a failed role leaves behind: running services, held packages, unchanged package sources."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.rows import run_each

ROLES = Path(__file__).parents[2] / "roles"
Task = dict[str, Any]
Met = tuple[Task, tuple[list[Task], ...], bool]


def load(path: Path) -> list[Task]:
    return list(yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader) or [])


def asks(task: Task, of: str) -> bool:
    """Return whether a task includes this file of the role host."""
    return str((task.get("ansible.builtin.include_role") or {}).get("tasks_from", "")) == of


def walk(role: Path, tasks: list[Task], around: tuple[list[Task], ...] = (), rescuing: bool = False) -> Iterator[Met]:
    """Yield the tasks in the order of a run, with included files of the role in their places and the rescues of the
    blocks around each."""
    for task in tasks:
        yield task, around, rescuing
        yield from walk(
            role, task.get("block", []), (*around, task["rescue"]) if "rescue" in task else around, rescuing
        )
        yield from walk(role, task.get("rescue", []), around, True)
        yield from walk(role, task.get("always", []), around, rescuing)
        included = task.get("ansible.builtin.include_tasks")
        name = included["file"] if isinstance(included, dict) else included
        for file in sorted((role / "tasks").glob(re.sub(r"{{.*?}}", "*", name))) if name else []:
            yield from walk(role, load(file), around, rescuing)


def run(role: str, act: str) -> list[Met]:
    return list(walk(ROLES / role, load(ROLES / role / "tasks" / f"{act}.yml")))


def step(task: dict[str, Any]) -> str:
    """Return the step that a task of gpuprov_step does."""
    return str(task.get("gpuprov_step", {}).get("name", ""))


def starts(task: dict[str, Any]) -> bool:
    return step(task) == "clients" and task["gpuprov_step"]["arguments"]["state"] == "started"


STOPPING = sorted(
    (path.parts[len(ROLES.parts)], act)
    for path in ROLES.glob("*/tasks")
    for act in ("assert", "install", "configure", "service")
    if (path / f"{act}.yml").exists()
    and any(asks(task, "stop_clients") for task, *_ in walk(path.parent, load(path / f"{act}.yml")))
)


def test_the_acts_that_stop_services_are_found() -> None:
    roles = (
        ("fabric_manager", "install"),
        ("fabric_manager", "service"),
        ("mig", "service"),
        ("nvidia_absent", "install"),
        ("nvidia_driver", "install"),
        ("passthrough", "service"),
    )
    assert tuple(STOPPING) == roles


@run_each(("role", "act"), STOPPING)
def test_what_was_stopped_is_started_again_after_a_failure(role: str, act: str) -> None:
    for task, rescues, _ in run(role, act):
        if asks(task, "stop_clients"):
            assert rescues, f"{role}, {act}: {task['name']}: no rescue"
            last = [one for one, *_ in walk(ROLES / role, rescues[-1])][-1]
            assert step(last) == "give_up", f"{role}, {act}: {task['name']}: {last['name']}"


@run_each(("role", "act"), STOPPING)
def test_what_follows_a_stop_in_the_same_act_has_the_same_rescue(role: str, act: str) -> None:
    """But for the start itself, which tries every service and then says which do not start."""
    stopped = False
    for task, rescues, rescuing in run(role, act):
        stopped = stopped or asks(task, "stop_clients")
        if stopped and not rescuing and not starts(task):
            assert rescues, f"{role}, {act}: {task['name']}"


def test_giving_up_begins_with_the_reason_of_what_failed() -> None:
    """One task, in which nothing else can fail before the reason is known: tests/host_code/test_giving_up.py."""
    for role, act in STOPPING:
        for task in load(ROLES / role / "tasks" / f"{act}.yml"):
            for (undo,) in [task["rescue"]] if "rescue" in task else []:
                assert step(undo) == "give_up"
                assert undo["gpuprov_step"]["arguments"]["failure"] == "{{ ansible_failed_result }}"
                assert undo["gpuprov_step"]["arguments"].get("driver", False) is (
                    role in ("nvidia_absent", "nvidia_driver")
                )


JUDGING = sorted(path.parts[-3] for path in ROLES.glob("*/tasks/assert.yml"))


@run_each("role", JUDGING)
def test_act_1_takes_no_package_source_away(role: str) -> None:
    for task, _, rescuing in run(role, "assert"):
        file = task.get("ansible.builtin.file") or {}
        assert rescuing or file.get("state") != "absent" or "source" not in str(file["path"]), f"{role}: {task['name']}"
