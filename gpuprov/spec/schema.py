"""The JSON Schema of the `gpuprov` variable, for editors; generated from the typed model."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect as shape

from gpuprov.core.safe_parse import format_document
from gpuprov.host_code.json_members import Json
from gpuprov.spec.build import can_be_switched_off
from gpuprov.spec.kinds import unwrap
from gpuprov.spec.model import Fragment

# A JSON Schema, or a part of one.
Schema: TypeAlias = dict[str, Any]
IDENTIFIER = "https://json-schema.org/draft/2020-12/schema"


def build_document_schema(kind: type, title: str) -> dict[str, Json]:
    """Return the JSON Schema of a document that gpuprov writes, made from its type. Docstrings become descriptions."""
    schema = msgspec.json.schema(kind)
    for definition in schema["$defs"].values():
        _join_paragraphs(definition)
    return {"$schema": IDENTIFIER, "title": title, **schema}


def _join_paragraphs(definition: Schema) -> None:
    """Put each paragraph of a docstring on one line: where it is wrapped in the source says nothing to its reader."""
    if "description" in definition:
        paragraphs = inspect.cleandoc(definition["description"]).split("\n\n")
        definition["description"] = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def format_document_schema(kind: type, title: str) -> str:
    """Return the same as text."""
    return format_document(build_document_schema(kind, title))


def build_schema(house: type[Fragment], fragments: Mapping[str, tuple[type[Fragment], str]]) -> dict[str, Json]:
    """Return a closed schema: the house's keys, and a block or `false` for each capability (with its one-line
    description)."""
    kinds = [house, *(fragment for fragment, _ in fragments.values())]
    (top, *blocks), components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    for info in _find_blocks(shape.multi_type_info(kinds)):
        # msgspec names classes of the same name by their modules, too.
        described = components.get(info.cls.__name__) or components[f"{info.cls.__module__}.{info.cls.__qualname__}"]
        _close_keys(info, described)
        _allow_switching_off(info, described)
    for described in components.values():
        _join_paragraphs(described)
    properties = dict(components.pop(top["$ref"].rsplit("/", 1)[-1])["properties"])
    properties["gpu"] = {"anyOf": [*(k for k in properties["gpu"]["anyOf"] if k != {"type": "null"}), {"const": False}]}
    for (name, (_, summary)), block in zip(fragments.items(), blocks, strict=True):
        properties[name] = {"description": summary, "anyOf": [block, {"const": False}]}
    return {
        "$schema": IDENTIFIER,
        "title": "gpuprov host spec",
        "description": "The variable `gpuprov` of an Ansible inventory: what a GPU host should be",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "$defs": components,
    }


def _find_blocks(kinds: Iterable[shape.Type]) -> list[shape.StructType]:
    """Find the blocks, and those inside them, once each."""
    blocks: dict[type, shape.StructType] = {}
    waiting = [*kinds]
    while waiting:
        kind = unwrap(waiting.pop())
        if isinstance(kind, shape.StructType) and kind.cls not in blocks:
            blocks[kind.cls] = kind
            waiting += [field.type for field in kind.fields]
        waiting += getattr(kind, "types", ())
        waiting += [getattr(kind, name) for name in ("item_type", "value_type") if hasattr(kind, name)]
    return list(blocks.values())


def _close_keys(info: shape.StructType, described: Schema) -> None:
    """Close mappings with a fixed choice of keys: msgspec checks the keys, but leaves them out of the schema."""
    for field in info.fields:
        plain = unwrap(field.type)
        if isinstance(plain, shape.DictType) and isinstance(plain.key_type, shape.LiteralType):
            described["properties"][field.encode_name]["propertyNames"] = {"enum": list(plain.key_type.values)}


def _allow_switching_off(info: shape.StructType, described: Schema) -> None:
    """Allow `false` for a block inside a block."""
    for field in info.fields:
        if field.encode_name in described["properties"] and can_be_switched_off(field):
            property_ = described["properties"][field.encode_name]
            kinds = property_.pop("anyOf", None) or [{"$ref": property_.pop("$ref")}]
            property_["anyOf"] = [*(kind for kind in kinds if kind != {"type": "null"}), {"const": False}]
