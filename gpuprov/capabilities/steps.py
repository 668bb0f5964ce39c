"""Steps of roles, which are not state (a reset, a build, a MIG plan): whether a host needs one, and what it takes
first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from gpuprov.capabilities.tasks import Stages, each_task, list_keys
from gpuprov.host_code.json_members import Json

Need = Literal["host-drained", "gpus-free"]
# The part of the role of all hosts that brings a need about.
BROUGHT_BY: Mapping[Need, str] = {"host-drained": "drain", "gpus-free": "stop_clients"}


class Step(msgspec.Struct, frozen=True):
    """A step of a role on one host."""

    # Of its task.
    key: str
    # Those of the task; of a list, one each time.
    arguments: Any
    # Empty if the host does not need it.
    needed: Any = True
    # What must be so before it, each with the key of the task that brings it about, which this host needs then, too.
    needs: Mapping[Need, str] = {}


def hand_steps(steps: Iterable[Step], stages: Stages) -> dict[str, Json]:
    """Return the arguments of the tasks that are needed. Raises ValueError for a role in which what a step needs does
    not come before it."""
    given = dict[str, Json]()
    for step in steps:
        if not step.needed:
            continue
        for need, key in step.needs.items():
            if not comes_before(need, key, step.key, stages):
                raise ValueError(f"{step.key} needs {need}, and no task {key} before it brings that about")
            given[key] = {}
        given[step.key] = step.arguments
    return given


def select_values(values: Mapping[str, Json], *names: str) -> dict[str, Json]:
    """Return the values with these names."""
    return {name: values[name] for name in names}


def comes_before(need: Need, key: str, later: str, stages: Stages) -> bool:
    """Return whether a task with this key brings a need about before the last one with the later key."""
    keys = list_keys(stages)
    brings = any(task.key == key and task.options.get("tasks_from") == BROUGHT_BY[need] for task in each_task(stages))
    return brings and later in keys and keys.index(key) < len(keys) - 1 - keys[::-1].index(later)
