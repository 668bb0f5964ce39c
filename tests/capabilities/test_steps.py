"""Steps of roles: those that a host needs are handed over, with what brings about their needs before them."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.steps import Need, Step, hand_steps
from gpuprov.capabilities.tasks import Block, Stages, drain, step, stop_clients
from tests.rows import run_each

TASKS: Stages = {
    "service": (
        Block(
            title="Set up", tasks=(drain("Drain"), stop_clients("Stop"), step("Reset", "command", "reset")), key="unit"
        ),
        step("Look", "command", "look"),
    )
}


def test_what_a_step_needs_is_needed_with_it_alone() -> None:
    needs: dict[Need, str] = {"host-drained": "drain", "gpus-free": "stop"}
    steps = [Step("reset", {"argv": ["x"]}, needs=needs), Step("look", {}, needed="")]
    assert hand_steps(steps, TASKS) == {"drain": {}, "stop": {}, "reset": {"argv": ["x"]}}
    assert hand_steps([Step("reset", {}, needed=False, needs=needs), Step("look", {})], TASKS) == {"look": {}}


@run_each(
    ("key", "need", "by"),
    [
        ("unit", "gpus-free", "stop"),
        ("reset", "gpus-free", "drain"),
        ("reset", "host-drained", "stop"),
        ("reset", "gpus-free", "look"),
        ("other", "gpus-free", "stop"),
    ],
    ids=["it-comes-after", "another-task", "another-need", "no-such-part", "no-such-step"],
)
def test_a_role_in_another_order_is_a_defect(key: str, need: Need, by: str) -> None:
    with pytest.raises(ValueError, match=f"{key} needs {need}"):
        hand_steps([Step(key, {}, needs={need: by})], TASKS)
