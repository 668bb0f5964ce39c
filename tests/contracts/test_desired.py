"""The values computed for a role are those that its tasks use: each of their expressions is evaluated with them, and
all of them are read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
from jinja2 import ChainableUndefined
from jinja2.nativetypes import NativeEnvironment

from gpuprov.capabilities import BY_NAME, CAPABILITIES
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.tasks import Taken, Task, each_key, each_task
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.play import STEPS
from gpuprov.play.arguments import FILES
from gpuprov.render.role_tasks import OWN
from gpuprov.resources import Packages
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import facts, good
from tests.capabilities.specs import SPECS
from tests.contracts.test_roles import words_of
from tests.host_code.modules import module, on_host
from tests.rows import run_each

ROLES = Path(__file__).parents[2] / "roles"
CONDITIONS = ("when", "until", "changed_when", "failed_when")
THERE = [one.name for one in CAPABILITIES if one.desired]
MORE = {"cuda_requires": "", "acceptance_packages": "native|amd64\n"}
JUDGE = {"later"}
"""Values that the judge itself uses."""
ELSEWHERE = {
    "nvidia_driver": set("builds components flavour kernels leaving module packages version".split()),
}
"""Values read by others than the role: plan, bundles of packages, hosts that take a build host's modules."""


class Recorder(dict[str, Any]):
    """A mapping that records which of its keys were used, and fails for a missing key."""

    def __init__(self, values: Mapping[str, Any], place: str = "") -> None:
        super().__init__({key: wrapped(value, f"{place}.{key}") for key, value in values.items()})
        self.its_place, self.asked_for = place, set[str]()

    def __getitem__(self, key: str) -> Any:
        self.asked_for.add(key)
        return super().__getitem__(key)

    def __missing__(self, key: str) -> Any:
        # What is empty says nothing of its keys; a task may not be needed.
        if not self or self.its_place.endswith(".tasks"):
            return ChainableUndefined()
        raise AssertionError(f"the role asks for {self.its_place}.{key}, which is not worked out")


def wrapped(value: Any, place: str) -> Any:
    if isinstance(value, Mapping):
        return Recorder(value, place)
    return [wrapped(one, f"{place}[]") for one in value] if isinstance(value, list | tuple) else value


def tasks(node: Any) -> Iterator[dict[str, Any]]:
    for one in node if isinstance(node, list) else ():
        yield one
        for branch in ("block", "rescue", "always"):
            yield from tasks(one.get(branch))


def strings(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        node = [*node.keys(), *node.values()]
    for one in node if isinstance(node, list) else [node]:
        if isinstance(one, list | dict):
            yield from strings(one)
        elif isinstance(one, str):
            yield one


def ask(task: dict[str, Any], known: dict[str, Any], jinja: NativeEnvironment) -> None:
    """Evaluate all expressions of a task, for each item of its loop."""
    items: list[Any] = [None]
    loop = task.get("loop")
    if isinstance(loop, str):
        items = list(jinja.from_string(loop).render(known) or ())
    elif loop:
        items = loop
    for item in items:
        mine = {**known, "item": item}
        for word in CONDITIONS:
            given = task.get(word, [])
            for condition in given if isinstance(given, list) else [given]:
                every = re.sub(r"\b(?:and|or)\b", ",", str(condition))  # so that none is left out
                jinja.compile_expression(f"({every})", undefined_to_none=False)(mine)
        rest = {
            key: value for key, value in task.items() if key not in (*CONDITIONS, "loop", "block", "rescue", "always")
        }
        for text in strings(rest):
            for expression in re.findall(r"\{\{(.*?)\}\}(?!\})", text, re.DOTALL):
                jinja.compile_expression(expression.strip(), undefined_to_none=False)(mine)


def read_whole(task: dict[str, Any], judged: dict[str, Any]) -> None:
    """Read what the actions of gpuprov's modules use of a capability that a task names."""
    options = {"gpuprov_packages": Packages.__struct_fields__, "gpuprov_files": (*FILES.values(), "reboot")}
    for used in OWN:
        given = task.get(used) or {}
        place = given.get("capability", "")
        values: Any = judged["desired"]
        for name in filter(None, place.split(".")):
            values = values[name]
        key = given.get("task") or {"gpuprov_unit": "unit", "gpuprov_step": given.get("name")}.get(used)
        if place and key:
            values["tasks"].asked_for.add(key)
        elif place:
            values.asked_for |= {*options.get(used, ("repository",))} & set(values)


def happened(result: object) -> bool:
    """Replace Ansible's tests of a task's result, since there are no results here."""
    return bool(result)


@run_each("name", THERE)
def test_a_role_and_what_is_worked_out_for_it_have_the_same_names(name: str) -> None:
    capability = BY_NAME[name]
    assert capability.desired
    block = capability.fragment()
    made = capability.desired.make(
        Context(HostSpec(name="gpu1", capabilities={name: block}), block, facts(**good(), **MORE))
    )
    recorder = Recorder(made, name)
    jinja = NativeEnvironment(undefined=ChainableUndefined)
    jinja.tests |= dict.fromkeys(("changed", "failed", "truthy"), happened)
    judged = {"desired": {name: recorder}}
    every = [
        task
        for file in sorted((ROLES / name / "tasks").rglob("*.yml"))
        for task in tasks(yaml.safe_load(file.read_text()))
    ]
    known: dict[str, Any] = {"gpuprov_judged": judged}
    known |= {task["register"]: judged for task in every if "gpuprov_judge" in task and "register" in task}
    for task in every:
        ask(task, known, jinja)
        read_whole(task, judged)
    elsewhere = JUDGE | ELSEWHERE.get(name, set())
    assert recorder.asked_for | elsewhere == set(recorder) | elsewhere
    inner = {
        one.its_place: set(one) - one.asked_for
        for one in dict.values(recorder)
        if isinstance(one, Recorder) and one.asked_for and not one.its_place.endswith(".tasks")
    }
    assert not {place: unread for place, unread in inner.items() if unread}


def options_of(task: Task) -> set[str]:
    """Return the names of the arguments that a task's module takes, or its step."""
    if task.module == "gpuprov_step":
        name = task.options["name"]
        return set(STEPS[name].Arguments.__annotations__ if name in STEPS else on_host(f"steps.{name}").OPTIONS)
    if task.module == "gpuprov_packages":
        return set(module(task.module).ARGUMENTS)
    if task.module == "gpuprov_unit":
        return set(module(task.module).SPEC)
    return {value.name for value in task.options.values() if isinstance(value, Taken)}


@run_each("name", THERE)
def test_a_task_is_handed_what_its_module_takes(name: str) -> None:
    """By its key, on hosts with all defaults and with the capability's fullest spec."""
    capability = BY_NAME[name]
    assert capability.desired
    by_key: dict[str, list[Task]] = {}
    for task in each_task(capability.tasks):
        if task.module != "gpuprov_files":
            by_key.setdefault(task.key, []).append(task)
    assert set(by_key) - {""} <= words_of(name), "no entry of `tasks` has this key"
    for block in (capability.fragment(), SPECS.get(name, capability.fragment())):
        ctx = Context(HostSpec(name="gpu1", capabilities={name: block}), block, facts(**good(), **MORE))
        try:
            made = msgspec.to_builtins(capability.desired.make(ctx)).get("tasks", {})
        except ProbeFailed:
            continue
        assert set(made) <= each_key(capability.tasks)
        for key, entry in made.items():
            for task in by_key.get(key, ()):
                for given in entry if isinstance(entry, list) else [entry]:
                    assert set(given) <= options_of(task), f"{name}: {task.title}"
                assert isinstance(entry, list) == bool(task.each), f"{name}: {task.title}"
