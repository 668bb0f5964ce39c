"""The JSON Schema of the `gpuprov` variable, for editors; generated from the typed model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gpuprov.spec.model import Fragment

IDENTIFIER = "https://json-schema.org/draft/2020-12/schema"


def schema(house: type[Fragment], fragments: Mapping[str, tuple[type[Fragment], str]]) -> dict[str, Any]:
    """A closed schema: the house's keys, and a block or `false` for each capability (with its one-line description)."""
    kinds = [house, *(fragment for fragment, _ in fragments.values())]
    (top, *blocks), components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    properties = dict(components.pop(top["$ref"].rsplit("/", 1)[-1])["properties"])
    properties["gpu"] = {"anyOf": [*(k for k in properties["gpu"]["anyOf"] if k != {"type": "null"}), {"const": False}]}
    for (name, (_, summary)), block in zip(fragments.items(), blocks, strict=True):
        properties[name] = {"description": summary, "anyOf": [block, {"const": False}]}
    return {
        "$schema": IDENTIFIER,
        "title": "gpuprov host spec",
        "description": "The variable `gpuprov` of an Ansible inventory: what a GPU host shall be",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "$defs": components,
    }
