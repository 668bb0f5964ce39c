"""The typed fragment and the role's argument_specs say the same: names, types, choices; every option is required."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from msgspec import inspect as shape

from gpuprov import assets
from gpuprov.capabilities import CAPABILITIES
from gpuprov.capabilities.base import Capability
from gpuprov.render import role_variables

NAMES = {capability.name: capability for capability in CAPABILITIES}


def options(name: str) -> dict[str, Any]:
    file = assets.root() / "roles" / name / "meta" / "argument_specs.yml"
    loaded: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"]["main"]["options"]
    return loaded


def ansible_type(kind: shape.Type) -> tuple[str, list[str] | None, str | None]:
    """Ansible's type, choices and elements for a field of the model."""
    while isinstance(kind, shape.Metadata):
        kind = kind.type
    if isinstance(kind, shape.LiteralType):
        return "str", sorted(str(value) for value in kind.values), None
    if isinstance(kind, shape.VarTupleType | shape.ListType):
        return "list", None, ansible_type(kind.item_type)[0]
    simple: dict[type[shape.Type], str] = {
        shape.StrType: "str",
        shape.BoolType: "bool",
        shape.IntType: "int",
        shape.FloatType: "float",
        shape.DictType: "dict",
        shape.StructType: "dict",
    }
    return simple[type(kind)], None, None


def agree(kind: shape.StructType, given: dict[str, Any], prefix: str, place: str) -> None:
    fields = {prefix + field.encode_name: field for field in kind.fields}
    assert list(given) == list(fields), f"{place}: options and fields differ, or their order does"
    for name, field in fields.items():
        option = given[name]
        wanted, choices, elements = ansible_type(field.type)
        assert option["type"] == wanted, f"{place}.{name}: type"
        assert option["required"] is True, f"{place}.{name}: defaults live in the spec, so options are required"
        assert option["description"], f"{place}.{name}: no description"
        assert "default" not in option, f"{place}.{name}: a second home for a default"
        assert sorted(option.get("choices", [])) == (choices or []), f"{place}.{name}: choices"
        assert option.get("elements") == elements, f"{place}.{name}: elements"
        if isinstance(field.type, shape.StructType):
            agree(field.type, option["options"], "", f"{place}.{name}")


@pytest.mark.parametrize("name", list(NAMES))
def test_fragment_and_argument_specs_agree(name: str) -> None:
    kind = shape.type_info(NAMES[name].fragment)
    assert isinstance(kind, shape.StructType)
    agree(kind, options(name), f"{name}_", name)


@pytest.mark.parametrize("name", list(NAMES))
def test_the_roles_own_validator_takes_the_rendered_variables(name: str) -> None:
    capability: Capability = NAMES[name]
    variables = msgspec.to_builtins(role_variables(name, capability.fragment()))
    result = ArgumentSpecValidator(options(name)).validate({k: v for k, v in variables.items() if v is not None})
    assert not result.error_messages


@pytest.mark.parametrize("name", list(NAMES))
def test_the_roles_own_validator_refuses_a_misspelled_variable(name: str) -> None:
    variables = {**role_variables(name, NAMES[name].fragment()), f"{name}_vresion": "1"}
    assert ArgumentSpecValidator(options(name)).validate(variables).error_messages
