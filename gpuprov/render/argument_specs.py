"""Conversion of a fragment's type to the role options declared to Ansible in `meta/argument_specs.yml`."""

from typing import Any

from msgspec import inspect as shape

from gpuprov.capabilities.base import Capability
from gpuprov.host_code.json_members import Json
from gpuprov.spec import described
from gpuprov.spec.kinds import unwrap

PLAIN: dict[type[shape.Type], str] = {
    shape.StrType: "str",
    shape.BoolType: "bool",
    shape.IntType: "int",
    shape.FloatType: "float",
    shape.DictType: "dict",
}


def options(capability: Capability) -> dict[str, Json]:
    """Return the options by the variable of each field, in the model's order. None is required: unset values are filled
    in from the host's spec, and defaults are in the model alone."""
    info = shape.type_info(capability.fragment)
    assert isinstance(info, shape.StructType)
    return {f"{capability.name}_{name}": {**of, "required": False} for name, of in _make_options(info).items()}


def _make_options(block: shape.StructType) -> dict[str, Any]:
    return {
        field.encode_name: {
            "description": described.format_sentence(described.find_description(field.type)),
            "required": field.required,
            **_describe_kind(field.type),
        }
        for field in block.fields
    }


def _describe_kind(kind: shape.Type) -> dict[str, Json]:
    """Return type, choices, elements and options. `raw` is for values that may be null or of several types, which
    Ansible's types cannot express."""
    plain = unwrap(kind)
    if isinstance(plain, shape.LiteralType):
        names = {type(value).__name__ for value in plain.values}
        return {"type": names.pop(), "choices": list(plain.values)} if len(names) == 1 else {"type": "raw"}
    if isinstance(plain, shape.VarTupleType):
        inner = _describe_kind(plain.item_type)
        more: dict[str, Json] = {key: inner[key] for key in ("choices", "options") if key in inner}
        return {"type": "list", "elements": inner["type"], **more}
    if isinstance(plain, shape.StructType):
        return {"type": "dict", "options": _make_options(plain)}
    return {"type": PLAIN.get(type(plain), "raw")}
