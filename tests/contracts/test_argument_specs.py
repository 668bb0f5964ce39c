"""A role's options as declared to Ansible match the fragment: its own validator accepts rendered variables, and refuses
others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from gpuprov.capabilities import BY_NAME, CAPABILITIES
from gpuprov.capabilities.base import Capability
from gpuprov.capabilities.mps.fragment import Group, Mps
from gpuprov.core import assets
from gpuprov.explain import fields
from gpuprov.fleet.specs import load_fleet
from gpuprov.render import role_variables
from tests.rows import run_each

ROOT = Path(__file__).parents[2]
NAMES = {capability.name: capability for capability in CAPABILITIES}


def options(name: str) -> dict[str, Any]:
    file = assets.root() / "roles" / name / "meta" / "argument_specs.yml"
    loaded: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return dict(loaded["argument_specs"]["main"]["options"])


@run_each("name", list(BY_NAME))
def test_every_field_says_what_it_does(name: str) -> None:
    for field in fields.fields(name):
        assert field.does, (
            f"{field.name} has no description: Annotated[TYPE, describe(...)] in the fragment of {name}; "
            "role, JSON Schema, reference and explain have it from there"
        )


@run_each("name", list(NAMES))
def test_an_option_has_the_fields_name_and_neither_default_nor_need(name: str) -> None:
    assert list(options(name)) == [
        f"{name}_{item.encode_name}" for item in msgspec.structs.fields(NAMES[name].fragment)
    ]
    for option in options(name).values():
        assert option["required"] is False, "what a play does not set is filled in from the spec"
        assert "default" not in option, "a second home for a default"


@run_each("name", list(NAMES))
def test_the_roles_own_validator_takes_the_rendered_variables(name: str) -> None:
    capability: Capability = NAMES[name]
    variables = msgspec.to_builtins(role_variables(name, capability.fragment()))
    result = ArgumentSpecValidator(options(name)).validate(variables)
    assert not result.error_messages


INVENTORIES = sorted([*ROOT.glob("molecule/*/inventory.yaml"), *ROOT.glob("inventories/*/inventory.yaml")])


@run_each("inventory", INVENTORIES, ids=lambda path: str(path.parent.name))
def test_the_roles_own_validators_take_what_inventories_ask_for(inventory: Path) -> None:
    for _, spec in load_fleet([str(inventory)], None, cache=False).pairs:
        for name, fragment in spec.capabilities.items():
            result = ArgumentSpecValidator(options(name)).validate(role_variables(name, fragment))
            assert not result.error_messages


def test_what_is_left_out_of_an_item_is_not_missed() -> None:
    mps = Mps(scope="groups", groups=(Group(gpus=(0, 1)),))
    assert not ArgumentSpecValidator(options("mps")).validate(role_variables("mps", mps)).error_messages


@run_each("name", list(NAMES))
def test_the_roles_own_validator_refuses_a_misspelled_variable(name: str) -> None:
    variables = {**role_variables(name, NAMES[name].fragment()), f"{name}_vresion": "1"}
    assert ArgumentSpecValidator(options(name)).validate(variables).error_messages


@run_each(
    ("name", "variable", "value", "told"),
    [
        ("persistence", "persistence_mode", "demon", "auto, daemon, legacy"),
        ("rdma", "rdma_count", "many", "int"),
        ("mps", "mps_clients", "all", "int"),
        ("rdma", "rdma_nccl", {"gidd": "auto"}, "Supported parameters"),
    ],
)
def test_the_roles_own_validator_knows_types_and_choices(name: str, variable: str, value: object, told: str) -> None:
    variables = {**role_variables(name, NAMES[name].fragment()), variable: value}
    [message] = ArgumentSpecValidator(options(name)).validate(variables).error_messages
    assert variable in message
    assert told in message
