"""Where workflows run: the SDK's sandbox, which refuses to go on at a time that has passed.

A query that a worker answers without having the workflow in memory is answered from its history. Where that has gone on since the
last workflow task (a timer fired while no worker was there), the SDK runs the workflow on from these events, at the time of the task
before, and keeps what came of it (seen in temporalio 1.35; https://github.com/temporalio/sdk-go/issues/755 is of its kind). A roll-out
would wait for a soak that is over, or take a window for open that has closed; and its history could not be replayed.
"""

from __future__ import annotations

from typing import Any

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

ASKED = frozenset({"query_workflow", "remove_from_cache"})
"""Of an activation: what does not run the workflow on."""


class TimeStoodStill(RuntimeError):
    """The workflow is thrown away and made again from its history, at the right time."""


class Runner(SandboxedWorkflowRunner):
    """gpuprov is loaded once: what a workflow uses of it is pure."""

    def __init__(self) -> None:
        super().__init__(
            restrictions=SandboxRestrictions.default.with_passthrough_modules("gpuprov", "msgspec"),
        )

    def create_instance(self, det: Any) -> Any:
        """A workflow whose time moves on."""
        made = super().create_instance(det)
        made.activate = watched(made.activate)  # type: ignore[method-assign]
        return made


def watched(activate: Any) -> Any:
    """Each workflow task has a time of its own. Raises TimeStoodStill for events that came after a task, and have the task's time."""
    known: tuple[object, int] = ("", 0)

    def going_on(activation: Any) -> Any:
        nonlocal known
        if {job.WhichOneof("variant") for job in activation.jobs} <= ASKED:
            return activate(activation)
        moment = (activation.timestamp.seconds, activation.timestamp.nanos)
        if moment == known[0] and activation.history_length > known[1]:
            raise TimeStoodStill("history has gone on since the last workflow task: asked too early, ask again")
        known = (moment, activation.history_length)
        return activate(activation)

    return going_on
