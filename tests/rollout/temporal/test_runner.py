"""The watch over a workflow's time, by activations as temporalio 1.35 has made them."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation

from gpuprov.rollout.temporal.runner import TimeStoodStill, watched


def activation(at: int, length: int, *jobs: str) -> WorkflowActivation:
    made = WorkflowActivation(history_length=length)
    made.timestamp.seconds = at
    for job in jobs:
        getattr(made.jobs.add(), job).SetInParent()
    return made


TOLD = [
    activation(1, 3, "initialize_workflow"),
    activation(2, 7, "do_update"),
    activation(2, 7, "resolve_activity"),
    activation(3, 19, "resolve_activity", "resolve_activity"),
    activation(3, 23, "query_workflow"),
    activation(4, 24, "fire_timer"),
    activation(0, 24, "remove_from_cache"),
]


def test_a_workflow_goes_on_from_task_to_task() -> None:
    seen: list[Any] = []
    go_on = watched(seen.append)
    for one in TOLD:
        go_on(one)
    assert seen == TOLD


def test_it_does_not_go_on_at_a_time_that_has_passed() -> None:
    """A timer that has fired since the last task, for a query."""
    seen: list[Any] = []
    go_on = watched(seen.append)
    for one in TOLD[:4]:
        go_on(one)
    with pytest.raises(TimeStoodStill):
        go_on(activation(3, 24, "fire_timer"))
    assert seen == TOLD[:4]
