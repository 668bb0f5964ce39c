"""The sandbox for workflows: the SDK's own, which also refuses to continue at a time that has passed.

A query that a worker answers without having the workflow in memory is answered from its history. If the history has
continued since the last workflow task (a timer fired while there was no worker), the SDK runs the workflow through
these events at the time of the previous task, and keeps the outcome (seen in temporalio 1.35;
https://github.com/temporalio/sdk-go/issues/755 is similar). A roll-out would wait for a soak that is over, or treat a
closed window as open; and its history could not be replayed.
"""

from typing import Any

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

# Jobs of an activation that do not run the workflow.
ASKED = frozenset({"query_workflow", "remove_from_cache"})


class TimeStoodStill(RuntimeError):
    """Raised to discard the workflow and recreate it from its history, at the right time."""


class Runner(SandboxedWorkflowRunner):
    """The sandbox. gpuprov is loaded once: the parts that a workflow uses are pure."""

    def __init__(self) -> None:
        super().__init__(restrictions=SandboxRestrictions.default.with_passthrough_modules("gpuprov", "msgspec"))

    def create_instance(self, det: Any) -> Any:
        """Return a workflow whose time moves on."""
        made = super().create_instance(det)
        made.activate = watched(made.activate)  # type: ignore[method-assign]
        return made


def watched(activate: Any) -> Any:
    """Wrap `activate`, so that each workflow task has its own time. Raises TimeStoodStill for events that came after a
    task but have the task's time."""
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
