"""The fields of a capability's block, and of the blocks inside it: purpose, allowed values, and default of each."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect as shape

from gpuprov.capabilities import BY_NAME
from gpuprov.spec import build, described
from gpuprov.spec.kinds import unwrap

REQUIRED = "none: required"


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field. `name` is its full name (`rdma.devices[].pci`), `path` the same in words; `default` is JSON, or says
    that there is none; `proofs` are checks of the capability, or `unproved` says why there are none. `about`: for a
    field with fields of its own, the description of its block."""

    name: str
    path: tuple[str, ...]
    does: str
    allowed: str
    default: str
    proofs: tuple[str, ...]
    unproved: str
    about: str

    @property
    def proved_by(self) -> str:
        return ", ".join(self.proofs) or self.unproved


@cache
def fields(name: str) -> tuple[Field, ...]:
    """Return the fields of a capability in the model's order, each block followed by its own."""
    capability = BY_NAME[name]
    info = shape.type_info(capability.fragment)
    assert isinstance(info, shape.StructType)
    listed = []
    for item in info.fields:
        top = item.encode_name
        proofs = tuple(check.id for check in capability.checks if top in check.fields)
        common = {"proofs": proofs, "unproved": capability.unproved.get(top, "")}
        listed.append(_make_field(item, name, (name,), common))
        listed += _list_inside(item, listed[-1], common)
    return tuple(listed)


def named(words: str) -> list[Field]:
    """Return the field of that name (`rdma.roce.pfc`, `rdma.devices[0].pci`), or all whose name ends so (`pfc`), the
    least nested first."""
    if any(map(str.isspace, words)):
        return []
    target = _split(words.casefold())
    every = [field for field, last in _list_last_words() if "NAME" in last or target[-1] in last]
    exact = [field for field in every if target in (field.path, _split(field.name.casefold()))]
    exact = exact or [field for field in every if _is_named(field, target)]
    ending = (field for field in every if field.path[1:][-len(target) :] == target)
    return exact or sorted(ending, key=lambda field: len(field.path))


@cache
def _list_last_words() -> tuple[tuple[Field, frozenset[str]], ...]:
    """Return each field, and the last word of each of its names: a name that ends otherwise is not the field's."""
    every = (field for name in BY_NAME for field in fields(name))
    return tuple(
        (field, frozenset({field.path[-1], *(_split(name)[-1] for name in (field.name, field.name.casefold()))}))
        for field in every
    )


def _split(name: str) -> tuple[str, ...]:
    return tuple(word.partition("[")[0] for word in name.split("."))


def _is_named(field: Field, words: tuple[str, ...]) -> bool:
    """Return whether the words are its full name, with any word for a name in a mapping."""
    own = _split(field.name)
    return len(own) == len(words) and all(word in ("NAME", given) for word, given in zip(own, words, strict=True))


def _make_field(item: shape.Field, place: str, above: tuple[str, ...], common: dict[str, Any]) -> Field:
    block = find_block(item.type)
    kinds = [type(unwrap(member)) for member in described.list_members(item.type)] if block else []
    below = "[]" if shape.VarTupleType in kinds else ".NAME" if shape.DictType in kinds else ""
    return Field(
        name=f"{place}.{item.encode_name}{below}",
        path=(*above, item.encode_name),
        does=described.format_sentence(described.find_description(item.type)),
        allowed=_describe_allowed(item.type),
        default=_format_default(item),
        about=described.format_prose(block) if block else "",
        **common,
    )


def find_block(kind: shape.Type) -> shape.StructType | None:
    """Return the block that a field is, is a list of, or maps names to."""
    mapped = (member for member in map(unwrap, described.list_members(kind)) if isinstance(member, shape.DictType))
    return described.find_block(kind) or next(
        filter(None, (described.find_block(member.value_type) for member in mapped)), None
    )


def _list_inside(item: shape.Field, above: Field, common: dict[str, Any]) -> Iterator[Field]:
    block = find_block(item.type)
    for part in block.fields if block else ():
        yield (field := _make_field(part, above.name, above.path, common))
        yield from _list_inside(part, field, common)


def _describe_allowed(kind: shape.Type) -> str:
    """Describe the allowed values; for a text, the field's own description does."""
    return " or ".join(_format_words(unwrap(member)) for member in described.list_members(kind))


def _format_words(kind: shape.Type) -> str:
    if isinstance(kind, shape.StrType):
        return "text"
    if isinstance(kind, shape.VarTupleType):
        inner = unwrap(kind.item_type)
        if isinstance(inner, shape.StructType):
            return "a list of blocks"
        known = _describe_inner(kind.item_type)
        return f"a list: {known}" if known else "a list"
    if isinstance(kind, shape.DictType):
        values = _describe_inner(kind.value_type)
        return f"a mapping; keys: {_describe_inner(kind.key_type)}; values: {values}" if values else "a mapping"
    return build.describe_allowed(kind)


def _describe_inner(kind: shape.Type) -> str:
    """Describe what an item, a key or a value may be; empty if the model leaves it to the capability's rules."""
    bare = unwrap(kind)
    if isinstance(bare, shape.StrType):
        return described.find_description(kind) or "text"
    return "" if isinstance(bare, shape.AnyType) else build.describe_allowed(kind)


def _format_default(item: shape.Field) -> str:
    if item.required:
        return REQUIRED
    value = item.default if item.default is not msgspec.NODEFAULT else item.default_factory()
    if isinstance(value, msgspec.Struct) and value == type(value)():
        return "{}"
    return msgspec.json.encode(value).decode()
