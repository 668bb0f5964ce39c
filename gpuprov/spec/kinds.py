"""Types of fields, as msgspec describes them."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import inspect as shape

from gpuprov.spec.problem import Path


def unwrap(kind: shape.Type) -> shape.Type:
    """Return a type without its annotations."""
    while isinstance(kind, shape.Metadata):
        kind = kind.type
    return kind


def list_members(kind: shape.Type) -> list[shape.Type]:
    """Return the types of a union, else the type alone; each bare."""
    whole = unwrap(kind)
    return [unwrap(member) for member in whole.types] if isinstance(whole, shape.UnionType) else [whole]


def is_fitting(value: object, kind: shape.Type) -> bool:
    """True if a field of this type accepts the value; for a list or block, only that the value is one."""
    if isinstance(kind, shape.AnyType):
        return True
    try:
        msgspec.convert(value, get_annotation(kind))
    except (msgspec.ValidationError, UnicodeEncodeError):  # half of a character
        return False
    return True


def is_accepted(value: object, kind: shape.Type) -> bool:
    """True if a field of this type accepts the value; no block and no mapping."""
    return any(
        is_fitting(value, member)
        for member in list_members(kind)
        if not isinstance(member, shape.StructType | shape.DictType)
    )


def get_annotation(kind: shape.Type) -> Any:
    if isinstance(kind, shape.LiteralType):
        return Literal[tuple(kind.values)]
    if isinstance(kind, shape.IntType):
        bounds: dict[str, Any] = {"ge": kind.ge, "le": kind.le}
        return Annotated[int, msgspec.Meta(**bounds)]
    if isinstance(kind, shape.StrType):
        meta = msgspec.Meta(pattern=kind.pattern, min_length=kind.min_length, max_length=kind.max_length)
        return Annotated[str, meta]
    return {shape.BoolType: bool, shape.NoneType: None, shape.DictType: dict, shape.FloatType: float}.get(
        type(kind), list if isinstance(kind, shape.VarTupleType | shape.ListType) else object
    )


def find_kind(kind: shape.Type, path: Path) -> shape.Type | None:
    """Return the type at a path inside a value of this type; None if nothing is allowed there."""
    if not path:
        return kind
    first, rest = path[0], path[1:]
    for member in list_members(kind):
        inner: shape.Type | None = None
        if isinstance(member, shape.StructType):
            inner = next((field.type for field in member.fields if field.encode_name == first), None)
        elif isinstance(member, shape.DictType):
            inner = member.value_type
        elif isinstance(member, shape.VarTupleType | shape.ListType) and isinstance(first, int):
            inner = member.item_type
        if inner is not None:
            return find_kind(inner, rest)
    return None


def find_value(value: object, path: Path) -> object:
    """Return the value at a path; None if there is none."""
    for part in path:
        if isinstance(value, Mapping):
            value = next((item for key, item in value.items() if str(key) == str(part)), None)
        elif isinstance(value, list | tuple) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


class Removed:
    """Placeholder for values removed by `set_value`."""


def set_value(value: object, path: Path, new: object) -> object:
    """Return a copy with another value at a path, or without it if that is `Removed`. List items keep their numbers
    until the end."""
    if not path:
        return new
    first, rest = path[0], path[1:]
    if isinstance(value, Mapping):
        made = {key: set_value(item, rest, new) if str(key) == str(first) else item for key, item in value.items()}
        return {key: item for key, item in made.items() if item is not Removed}
    if isinstance(value, list | tuple) and isinstance(first, int):
        return [set_value(item, rest, new) if number == first else item for number, item in enumerate(value)]
    return value


def drop_removed(value: object) -> object:
    """Return a copy without the list items that were removed."""
    if isinstance(value, Mapping):
        return {key: drop_removed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [drop_removed(item) for item in value if item is not Removed]
    return value
