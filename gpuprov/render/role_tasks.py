"""The task files of a role, from the tasks that its capability declares."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from gpuprov.capabilities.base import Capability
from gpuprov.capabilities.tasks import Block, Part, Taken, Task, each_task
from gpuprov.core.sanitize import wrapped
from gpuprov.host_code.json_members import Json

# What ansible-lint has to know of the variable in which the judge's answer is kept.
SHARED = " # noqa: var-naming[no-role-prefix] (all roles share it)"
# Modules whose actions know what is desired, by the name of a capability.
OWN = ("gpuprov_files", "gpuprov_packages", "gpuprov_repository", "gpuprov_step", "gpuprov_unit")
# The key of a task of these modules that does not name one.
IMPLIED = {"gpuprov_unit": "unit", "gpuprov_files": "files"}
# Most characters of options that are written on one line.
SHORT = 110


def stage_files(capability: Capability) -> dict[str, str]:
    """Return the role's files by path below its `tasks/`, without the ending .yml and without their headers."""
    answers, texts = _list_answers(capability), dict[str, str]()
    for stage, declared in capability.tasks.items():
        waiting: list[tuple[str, Iterable[Task | Block | Part]]] = [(stage, declared)]
        while waiting:
            path, tasks = waiting.pop()
            texts[path] = "\n".join(_format_text(capability.name, stage, task, answers) for task in tasks)
            waiting += [(f"{stage}/{task.file}", task.tasks) for task in _list_parts(tasks)]
    return texts


def _list_parts(tasks: Iterable[Task | Block | Part]) -> Iterator[Part]:
    for task in tasks:
        if isinstance(task, Part):
            yield task
        elif isinstance(task, Block):
            yield from _list_parts(task.tasks)


def _list_answers(capability: Capability) -> set[str]:
    """Return the keys of tasks whose answers others read."""
    named = [
        value
        for task in each_task(capability.tasks)
        for value in (*task.takes.values(), task.only_if, task.unless, task.within)
    ]
    shared = (task.key for task in each_task(capability.tasks) if task.shared)
    return {value.partition(".")[0] for value in (*named, *shared) if value}


def _format_text(name: str, stage: str, declared: Task | Block | Part, answers: set[str]) -> str:
    if isinstance(declared, Part):
        include = {"name": declared.title, "ansible.builtin.include_tasks": f"{stage}/{declared.file}.yml"}
        return _dump([{**include, "when": _format_needed(name, declared.key)}])
    if isinstance(declared, Task):
        return _add_comment(declared.why, _dump([_make_task(name, declared, answers)]))
    inner = "\n".join(_format_text(name, stage, task, answers) for task in declared.tasks)
    top: dict[str, Json] = {"name": declared.title}
    if declared.key:
        top["when"] = _format_needed(name, declared.key)
    undo = _add_indent(_format_text(name, stage, declared.undo, answers))
    return _add_comment(declared.why, f"{_dump([top])}  block:\n{_add_indent(inner)}  rescue:\n{undo}")


def _add_indent(text: str) -> str:
    return "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))


def _make_task(name: str, task: Task, answers: set[str]) -> dict[str, Json]:
    made: dict[str, Any] = {"name": task.title, task.module: _shorten(_make_options(name, task))}
    variable = f"__{name}_{task.key}"
    if task.module == "gpuprov_judge" and not task.key:
        made["register"] = "gpuprov_judged"
    elif task.prepares == "once" or task.key in answers:
        made["register"] = variable
    if task.each:
        made["loop"] = f"{{{{ {_format_entry(name, task.key)} | default([]) }}}}"
        made["loop_control"] = _Short({"label": f"{{{{ item.{task.each} }}}}"})
    if task.prepares:
        once = f"{variable} is changed and ansible_check_mode"
        made["changed_when"] = {"once": once, "never": False, "always": "ansible_check_mode"}[task.prepares]
    if task.secret:
        made["no_log"] = True
    if task.secret or not task.shows:
        made["diff"] = False
    if conditions := list(_list_conditions(name, task)):
        made["when"] = conditions[0] if len(conditions) == 1 else conditions
    return made


def _make_options(name: str, task: Task) -> dict[str, Json]:
    place = "item" if task.each else _format_entry(name, task.key)
    given: dict[str, Any] = {
        key: f"{{{{ {place}.{value.name} }}}}" if isinstance(value, Taken) else value
        for key, value in task.options.items()
    }
    part, action = given.pop("part", ""), given.pop("action", "")
    arguments: dict[str, Json] = dict(given.pop("arguments", {}))
    taking = arguments if task.module == "gpuprov_step" else given
    taking |= {key: _format_answer(name, at) for key, at in task.takes.items()}
    if task.module == "gpuprov_judge":
        return {"capabilities": [name], **given}
    if task.module not in OWN or (task.module == "gpuprov_step" and not task.key):
        return given | ({"arguments": arguments} if arguments else {})
    first = {key: given.pop(key) for key in ("name",) if key in given}
    whole: dict[str, Json] = {**({"action": action} if action not in ("", "settle") else {}), **first}
    whole["capability"] = f"{name}.{part}" if part else name
    if task.key and task.key not in (first.get("name"), IMPLIED.get(task.module)):
        whole["task"] = task.key
    return {**whole, **given, **({"arguments": arguments} if arguments else {})}


def _list_conditions(name: str, task: Task) -> Iterator[str]:
    if task.key and not task.each and task.module not in OWN:
        yield _format_needed(name, task.key)
    if task.when:
        yield task.when
    if task.only_if:
        yield f"__{name}_{task.only_if} | default('') is truthy"
    if task.unless:
        value = f"__{name}_{task.unless}"
        yield f"{value} is not defined or {value} == ''"
    if task.within:
        yield f"not (ansible_check_mode and __{name}_{task.within} is changed)"
    if not task.checks:
        yield "not ansible_check_mode"


def _format_entry(name: str, key: str) -> str:
    return f"gpuprov_judged.desired.{name}.tasks.{key}"


def _format_needed(name: str, key: str) -> str:
    return f"'{key}' in gpuprov_judged.desired.{name}.tasks"


def _format_answer(name: str, value: str) -> str:
    return f"{{{{ __{name}_{value} | default(omit) }}}}"


def _add_comment(why: str, text: str) -> str:
    return "".join(f"# {line}\n" for line in wrapped(why, 130)) + text


class Dumper(yaml.SafeDumper):
    """A dumper that indents the items of a list, as the linters require."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless
        super().increase_indent(flow, False)


class _TaskDumper(Dumper):
    """A dumper of tasks: short options on one line, templates in double quotes."""


class _Short(dict[str, Json]):
    """Options on one line."""


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if "{{" in text or text.startswith("'") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _write_short(dumper: yaml.SafeDumper, value: _Short) -> yaml.MappingNode:
    return dumper.represent_mapping("tag:yaml.org,2002:map", dict(value), flow_style=True)


_TaskDumper.add_representer(str, _write_text)
_TaskDumper.add_representer(_Short, _write_short)


def _shorten(options: Mapping[str, Json]) -> dict[str, Json]:
    """Return options that go on one line, if they fit there."""
    inner = {key: _shorten(value) if isinstance(value, dict) else value for key, value in options.items()}
    return _Short(inner) if len(str(options)) < SHORT else inner


def _dump(value: Iterable[Any]) -> str:
    made: str = yaml.dump(value, Dumper=_TaskDumper, sort_keys=False, width=150, allow_unicode=True)
    return made.replace("register: gpuprov_judged\n", f"register: gpuprov_judged{SHARED}\n")
