"""Each step of gpuprov_step is offered, documented, and checked like a module's arguments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from gpuprov.play import STEPS, Host, StepFailed, run_step
from tests.contracts.test_imports import PACKAGE
from tests.here import PLUGINS
from tests.host_code.modules import module, on_host, step
from tests.rows import run_each

FILES = sorted(path.stem for path in (PACKAGE / "host_code" / "steps").glob("*.py") if path.stem != "__init__")
OPTION = re.compile(r"^(\w+(?:, \w+)*): ", re.MULTILINE)
"""A line of a docstring that says what an option is for; several may share one."""


def test_those_on_offer_are_the_files_and_those_of_the_controller() -> None:
    offered = yaml.safe_load(module("gpuprov_step").DOCUMENTATION)["options"]["name"]["choices"]
    assert offered == sorted({*FILES, *STEPS})
    assert sorted(set(STEPS) - set(FILES)) == module("gpuprov_step").CONTROLLER


@run_each("name", FILES)
def test_the_docstring_names_each_option(name: str) -> None:
    code = on_host(f"steps.{name}")
    about = str(code.__doc__).partition("\nReturns:")[0]
    documented = {word for line in OPTION.findall(about) for word in line.split(", ")}
    assert documented == set(code.OPTIONS)


@run_each("path", sorted((PLUGINS.parent / "roles").glob("*/tasks/**/*.yml")), ids=lambda path: str(path)[-40:])
def test_a_role_hands_a_step_what_it_takes(path: Path) -> None:
    """As far as the arguments stand in the task. The controller's part of a step takes them first."""
    for task in _tasks(yaml.safe_load(path.read_text(encoding="utf-8"))):
        given = task.get("gpuprov_step") or {}
        arguments = given.get("arguments") or {}
        if given and isinstance(arguments, dict):
            name = given["name"]
            takes = STEPS[name].Arguments.__annotations__ if name in STEPS else on_host(f"steps.{name}").OPTIONS
            assert set(arguments) <= set(takes), task["name"]


def _tasks(node: Any) -> list[dict[str, Any]]:
    found = []
    for task in node or ():
        found.append(task)
        for branch in ("block", "rescue", "always"):
            found += _tasks(task.get(branch))
    return found


@run_each("name", STEPS)
def test_the_controllers_part_documents_what_it_takes_and_refuses_the_rest(name: str) -> None:
    documented = {
        word
        for line in OPTION.findall(str(STEPS[name].__doc__).partition("\nReturns:")[0])
        for word in line.split(", ")
    }
    assert name == "fetch" or documented == set(STEPS[name].Arguments.__annotations__)
    with pytest.raises(StepFailed, match=f"step {name}: gests. Supported parameters include: "):
        run_step(name, cast("Host", None), {"gests": True})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"state": "listed"}, "step clients: missing required arguments: services"),
        (
            {"state": "ended", "services": []},
            "step clients: value of state must be one of: listed, free, stopped, started",
        ),
        ({"state": "listed", "services": [], "gests": True}, "step clients: gests. Supported parameters include:"),
    ],
)
def test_arguments_are_refused_as_those_of_a_module(
    arguments: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = step(capsys, "clients", **arguments)
    assert failed["failed"]
    assert message in failed["msg"]
