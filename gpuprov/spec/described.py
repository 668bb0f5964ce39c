"""Description of a field, from its type: the only source for argument_specs, JSON Schema, the reference and
`explain`."""

import re
from typing import Any

import msgspec
from msgspec import inspect as shape

from gpuprov.spec.kinds import unwrap


def describe(text: str, **limits: Any) -> msgspec.Meta:
    """Return the annotation of a field with this description, and with limits of its values."""
    return msgspec.Meta(description=text, **limits)


def list_members(kind: shape.Type) -> list[shape.Type]:
    """Return the possible types, without null."""
    plain = unwrap(kind)
    if not isinstance(plain, shape.UnionType):
        return [kind]
    return [type_ for type_ in plain.types if not isinstance(type_, shape.NoneType)]


def find_block(kind: shape.Type) -> shape.StructType | None:
    """Return the block that a field is, or is a list of."""
    for member in map(unwrap, list_members(kind)):
        inner = unwrap(member.item_type) if isinstance(member, shape.VarTupleType) else member
        if isinstance(inner, shape.StructType):
            return inner
    return None


def find_description(kind: shape.Type) -> str:
    """Return its own description, else that of its only type, else the block's."""
    inside = list_members(kind)
    for part in (kind, *(inside if len(inside) == 1 else ())):
        if isinstance(part, shape.Metadata) and (description := (part.extra_json_schema or {}).get("description")):
            return " ".join(str(description).split())
    block = find_block(kind)
    return format_prose(block) if block else ""


def format_prose(of: shape.StructType) -> str:
    """Return a block's description, in one line."""
    return " ".join((of.cls.__doc__ or "").split())


def format_sentence(text: str) -> str:
    """Turn a description, which is a phrase for messages, into a sentence for pages; a value at its start ("any, ...",
    "auto: ...") stays."""
    begins = text[:1].upper() + text[1:] if re.match(r"[a-z-]+ ", text) else text
    return begins if begins.endswith((".", "!", "?")) or not begins else f"{begins}."
