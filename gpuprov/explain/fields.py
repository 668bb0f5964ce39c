"""The fields of a capability's block, and of the blocks inside it: what each does, what may be written, what it is by default."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import yaml
from msgspec import inspect as shape

from gpuprov import assets
from gpuprov.capabilities import BY_NAME, HOUSE
from gpuprov.capabilities.base import Capability
from gpuprov.spec import build

HOUSE_PROSE = {"gpu": "Which GPUs the host has: model and count.", "reboot": "Whether apply may reboot."}

REQUIRED = "none: it must be said"


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field. `name` is its whole name (`rdma.devices[].pci`), `path` the same in words; `default` is JSON, or says that there is
    none; `proofs` are checks of the capability, or `unproved` says why there are none. `about`: of a field that
    has fields of its own, what such a block is.
    """

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
    """The fields of a capability in the model's order, each block followed by its own."""
    capability = BY_NAME[name]
    info = shape.type_info(capability.fragment)
    assert isinstance(info, shape.StructType)
    found = []
    prose = field_prose(capability)
    for item in info.fields:
        top = item.encode_name
        proofs = tuple(check.id for check in capability.checks if top in check.fields)
        common = {"proofs": proofs, "unproved": capability.unproved.get(top, "")}
        found.append(_field(item, name, (name,), prose[top], common))
        found += _inside(item, found[-1], common)
    return tuple(found)


def named(words: str) -> list[Field]:
    """The field of that name (`rdma.roce.pfc`, `rdma.devices[0].pci`), or all whose name ends so (`pfc`), the least deep first."""
    wanted = tuple(word.partition("[")[0] for word in words.split("."))
    every = [field for name in BY_NAME for field in fields(name)]
    exact = [field for field in every if field.path == wanted]
    ending = (field for field in every if field.path[1:][-len(wanted) :] == wanted)
    return exact or sorted(ending, key=lambda field: len(field.path))


def field_prose(capability: Capability) -> dict[str, str]:
    """What each field of the block does, from the role's argument_specs; of fields deeper down the model says it."""
    if capability is HOUSE:
        return HOUSE_PROSE
    file = assets.root() / "roles" / capability.name / "meta" / "argument_specs.yml"
    options = yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"]["main"]["options"]
    prose = {}
    for name, option in options.items():
        text = option["description"]
        prose[name.removeprefix(f"{capability.name}_")] = " ".join(text) if isinstance(text, list) else text
    return prose


def _field(item: shape.Field, place: str, above: tuple[str, ...], does: str, common: dict[str, Any]) -> Field:
    block = _block(item.type)
    listed = any(isinstance(_bare(member), shape.VarTupleType) for member in _members(item.type))
    return Field(
        name=f"{place}.{item.encode_name}{'[]' * (listed and block is not None)}",
        path=(*above, item.encode_name),
        does=does,
        allowed=_allowed(item.type),
        default=_default(item),
        about=_prose(block) if block else "",
        **common,
    )


def _inside(item: shape.Field, above: Field, common: dict[str, Any]) -> Iterator[Field]:
    block = _block(item.type)
    for part in block.fields if block else ():
        yield (field := _field(part, above.name, above.path, _described(part.type), common))
        yield from _inside(part, field, common)


def _bare(kind: shape.Type) -> shape.Type:
    while isinstance(kind, shape.Metadata):
        kind = kind.type
    return kind


def _members(kind: shape.Type) -> list[shape.Type]:
    bare = _bare(kind)
    return (
        [one for one in bare.types if not isinstance(one, shape.NoneType)]
        if isinstance(bare, shape.UnionType)
        else [kind]
    )


def _block(kind: shape.Type) -> shape.StructType | None:
    """The block that a field is, or is a list of."""
    for member in map(_bare, _members(kind)):
        inner = _bare(member.item_type) if isinstance(member, shape.VarTupleType) else member
        if isinstance(inner, shape.StructType):
            return inner
    return None


def _described(kind: shape.Type) -> str:
    """What the JSON Schema says of a field: its own description, else that of its only type, else the block's."""
    members = _members(kind)
    for one in (kind, *(members if len(members) == 1 else ())):
        if isinstance(one, shape.Metadata) and (told := (one.extra_json_schema or {}).get("description")):
            return " ".join(str(told).split())
    block = _block(kind)
    return _prose(block) if block else ""


def _prose(block: shape.StructType) -> str:
    return " ".join((block.cls.__doc__ or "").split())


def _allowed(kind: shape.Type) -> str:
    """What may be written, in words; of a text the field's own prose says it."""
    return " or ".join(_words(_bare(member)) for member in _members(kind))


def _words(kind: shape.Type) -> str:
    if isinstance(kind, shape.StrType):
        return "text"
    if isinstance(kind, shape.VarTupleType):
        inner = _bare(kind.item_type)
        if isinstance(inner, shape.StructType):
            return "a list of blocks"
        known = _inner(kind.item_type)
        return f"a list: {known}" if known else "a list"
    if isinstance(kind, shape.DictType):
        values = _inner(kind.value_type)
        return f"a mapping; keys: {_inner(kind.key_type)}; values: {values}" if values else "a mapping"
    return build.allowed(kind)


def _inner(kind: shape.Type) -> str:
    """What an item, a key or a value may be; empty where the model leaves it to the capability's rules."""
    bare = _bare(kind)
    if isinstance(bare, shape.StrType):
        return _described(kind) or "text"
    return "" if isinstance(bare, shape.AnyType) else build.allowed(kind)


def _default(item: shape.Field) -> str:
    if item.required:
        return REQUIRED
    value = item.default if item.default is not msgspec.NODEFAULT else item.default_factory()
    if isinstance(value, msgspec.Struct) and value == type(value)():
        return "{}"
    return msgspec.json.encode(value).decode()
