"""The tasks of a capability's role, declared by stage and in order: docs/generate.py writes the role's files from them.

A task says what it does, and with which module. What it hands to the module on one host is among the desired values of
the capability, as `tasks`, by the key of the task; without an entry there the task is not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

Stage = Literal["assert", "install", "configure", "boot", "service"]
Options = Mapping[str, Any]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a role."""

    title: str
    module: str
    # Those of the module that are the same on every host; a template in them names a variable of the play.
    options: Options = {}
    # The entry of `tasks` with the others; "" for a task that needs none.
    key: str = ""
    # Arguments that are values of an earlier task's answer, as KEY.VALUE.
    takes: Mapping[str, str] = {}
    # `only_if`, `unless`: the task is not needed where such a value is empty, or is not.
    only_if: str = ""
    unless: str = ""
    # The key of a task that makes the folder for it, which check mode does not.
    within: str = ""
    # The entry is a list, done one by one; the name of the value by which an item is shown.
    each: str = ""
    # It also runs in check mode.
    checks: bool = True
    # Other hosts read its answer.
    shared: bool = False
    # It brings what a later task needs, which is a change in check mode alone; "never": not even there, "always": there
    # whatever it answers.
    prepares: Literal["", "once", "never", "always"] = ""
    # Its difference is shown.
    shows: bool = True
    # Nothing of it is.
    secret: bool = False
    # A condition on options of the run.
    when: str = ""
    # A comment.
    why: str = ""


def give_up(title: str, arguments: Options | None = None, **more: Any) -> Task:
    """Return the task that follows a failure: it starts the services that were stopped, and reports what failed."""
    given = {"failure": "{{ ansible_failed_result }}", "services": "{{ gpuprov_services }}", **(arguments or {})}
    return Task(title=title, module="gpuprov_step", options={"name": "give_up", "arguments": given}, **more)


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks, and `undo`, what is done after a failure of one."""

    title: str
    tasks: tuple[Task | Part, ...]
    undo: Task = give_up("Restart what was stopped and report the failure")
    # Not needed without this entry of `tasks`.
    key: str = ""
    why: str = ""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks in a file of their own, which is included where `tasks` has this `key`, once for all of them: a later
    judgement does not change that."""

    title: str
    file: str
    tasks: tuple[Task | Part, ...]
    key: str


Stages = Mapping[Stage, tuple[Task | Block | Part, ...]]


def step(title: str, name: str, key: str = "", arguments: Options | None = None, **more: Any) -> Task:
    """Return a task for a step of gpuprov_step. arguments: those that are the same on every host."""
    options = {"name": name, **({"arguments": arguments} if arguments else {})}
    return Task(title=title, module="gpuprov_step", options=options, key=key or name, **more)


def plain_step(title: str, name: str, arguments: Options | None = None, **more: Any) -> Task:
    """Return a task for a step whose arguments are the same on every host."""
    options = {"name": name, **({"arguments": arguments} if arguments else {})}
    return Task(title=title, module="gpuprov_step", options=options, **more)


def unit(title: str, key: str = "unit", **more: Any) -> Task:
    """Return a task that brings a unit of systemd to its state."""
    return Task(title=title, module="gpuprov_unit", key=key, **more)


def daemon(title: str, key: str = "unit", **more: Any) -> Task:
    """Return a task that has a unit run that reads files of the capability: with what they say now."""
    return unit(title, key, takes={"written": "files.written"}, **more)


def packages(
    title: str, action: str = "settle", *, part: str = "", options: Options | None = None, **more: Any
) -> Task:
    """Return a task for the capability's transaction. part: the name of the values that hold it, if they are not the
    capability's. options: those that are the same on every host."""
    given = {"action": action, **_make_part(part), **(options or {})}
    return Task(title=title, module="gpuprov_packages", options=given, **more)


def try_packages(*, part: str = "", **more: Any) -> Task:
    """Return the task of act 1 for the capability's transaction. part: as of `packages`."""
    return packages("Simulate the package transaction and download it", "try", part=part, **more)


def files(title: str, *, part: str = "", **more: Any) -> Task:
    """Return a task for the capability's files, and its units at each boot. part: as of `packages`."""
    return Task(
        title=title, module="gpuprov_files", options=_make_part(part), **{"key": "" if part else "files", **more}
    )


def repository(title: str, *, part: str = "", **more: Any) -> Task:
    """Return a task that adds the capability's package source, or removes it. part: as of `packages`."""
    options = {"lock_timeout": "{{ host_package_lock_timeout | default(omit) }}", **_make_part(part)}
    return Task(title=title, module="gpuprov_repository", options=options, **more)


def judge(title: str, moment: Literal["sources", "now"], why: str = "", **more: Any) -> Task:
    """Return a task that evaluates the host again: what later tasks get follows from it. With a key, only those that
    take its answer get what follows from it."""
    return Task(title=title, module="gpuprov_judge", options={"moment": moment}, why=why, **more)


def judge_after_driver() -> Task:
    """Return the task of act 1 that evaluates the host as it will be when nvidia_driver has been applied."""
    why = "nvidia_driver goes before: it may have added a package source, and knows its version by now."
    return judge("Evaluate again, with the package sources and the driver as they will be", "sources", why)


def report(title: str, key: str, **more: Any) -> Task:
    """Return a task that shows a message: its entry of `tasks` is `msg`."""
    return Task(title=title, module="ansible.builtin.debug", options=taken("msg"), key=key, **more)


def drain(title: str, key: str = "drain", **more: Any) -> Task:
    """Return a task that drains the host, if the run has a drain command."""
    return _make_host_task(title, "drain", key, **more)


def stop_clients(title: str, key: str = "stop", **more: Any) -> Task:
    """Return a task that stops the services that hold GPUs, or refuses if a user's process holds one. It belongs into a
    Block."""
    return _make_host_task(title, "stop_clients", key, **more)


def free_gpus(title: str, key: str = "", **more: Any) -> Task:
    """Return a task that drains the host if users hold a GPU, and refuses if one still does."""
    return _make_host_task(title, "clients", key, **more)


def start_clients(title: str, key: str = "", **more: Any) -> Task:
    """Return a task that starts again what was stopped."""
    arguments = {"state": "started", "services": "{{ gpuprov_services }}"}
    return Task(
        title=title, module="gpuprov_step", options={"name": "clients", "arguments": arguments}, key=key, **more
    )


def _make_host_task(title: str, file: str, key: str, **more: Any) -> Task:
    options = {"name": "host", "tasks_from": file}
    return Task(title=title, module="ansible.builtin.include_role", options=options, key=key, **more)


def _make_part(name: str) -> Options:
    return {"part": name} if name else {}


class Taken(msgspec.Struct, frozen=True):
    """The value of an option of one of Ansible's own modules: from the entry of `tasks`."""

    name: str


def taken(*names: str) -> Options:
    """Return options of one of Ansible's own modules, which take their values from the task's entry."""
    return {name: Taken(name) for name in names}


def each_task(stages: Stages) -> Iterator[Task]:
    """Yield the tasks of a role in order, those in blocks and parts among them."""
    return (item for item in _walk(declared for each in stages.values() for declared in each) if isinstance(item, Task))


def each_key(stages: Stages) -> set[str]:
    """Return the names of all entries of `tasks` that a role reads."""
    return {*list_keys(stages)}


def list_keys(stages: Stages) -> list[str]:
    """Return the keys of a role in order, that of a block or a part before those in it."""
    return [item.key for item in _walk(declared for each in stages.values() for declared in each) if item.key]


def _walk(declared: Iterable[Task | Block | Part]) -> Iterator[Task | Block | Part]:
    for item in declared:
        yield item
        if not isinstance(item, Task):
            yield from _walk(item.tasks)
        if isinstance(item, Block):
            yield item.undo
