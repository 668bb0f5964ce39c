"""The JSON Schema of a whole inventory file in YAML, for editors: groups, hosts, and the variable `gpuprov` on any of
them."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuprov.host_code.json_members import Json
from gpuprov.spec.model import RACK
from gpuprov.spec.schema import IDENTIFIER, Schema

# Variables of Ansible that most inventories have: type and description.
# https://docs.ansible.com/ansible/latest/inventory_guide/connection_details.html
CONNECTION: dict[str, tuple[Any, str]] = {
    "ansible_host": ("string", "where the host is reached, if not by its name"),
    "ansible_user": ("string", "who logs in there"),
    "ansible_port": (["integer", "string"], "the port of its sshd"),
    "ansible_become": (["boolean", "string"], "true: becomes root there, by sudo"),
    "ansible_connection": ("string", "how it is reached: ssh, local, podman"),
    "ansible_ssh_private_key_file": ("string", "the key that ssh takes"),
    "ansible_ssh_common_args": ("string", "options of ssh, such as -J BASTION"),
    "ansible_python_interpreter": ("string", "the Python that modules run with"),
}
PCI_ID = r"^(10[dD][eE]:|0x)?[0-9A-Fa-f]{4}(10[dD][eE])?$|\{\{.*\}\}"
# Message of editors in place of a list of every model (errorMessage is a keyword of VS Code, and of the YAML language
# server).
NO_MODEL = "No GPU model of the catalogue, and no PCI id: gpuprov catalog gpus lists them"

# Schema of a group, which has the definitions of the whole file.
GROUP: dict[str, Json] = {
    "description": "A group of hosts: variables, hosts, groups inside of it",
    "type": ["object", "null"],
    "additionalProperties": False,
    "properties": {
        "vars": {"$ref": "#/$defs/variables", "description": "variables of all hosts of the group"},
        "hosts": {
            "description": "hosts by name, or as ranges: gpu[001:032]",
            "type": ["object", "null"],
            "additionalProperties": {"$ref": "#/$defs/variables"},
        },
        "children": {
            "description": "groups inside of this one; what they say wins",
            "type": ["object", "null"],
            "additionalProperties": {"$ref": "#/$defs/group"},
        },
    },
}


def build_inventory_schema(spec: Schema, models: Iterable[str]) -> Schema:
    """Return the schema. `spec`: that of the variable. Blocks of groups and hosts are merged, so none has to be
    complete; list items must be."""
    spec = copy.deepcopy(spec)
    blocks: Schema = spec.pop("$defs")
    whole = set(list_item_blocks(spec)) | set(list_item_blocks(blocks))
    for name, block in blocks.items():
        if name not in whole:
            block.pop("required", None)
    described = blocks["GpuSpec"]["properties"]["model"]
    described.pop("type", None)
    described["anyOf"] = [
        {"title": "GPU model", "enum": list(models), "errorMessage": NO_MODEL},
        {"title": "PCI id, or a template", "type": "string", "pattern": PCI_ID, "errorMessage": NO_MODEL},
    ]
    _tell_fields(spec, blocks)
    for block in blocks.values():
        _tell_fields(block, blocks)
    variables = {
        "type": ["object", "null"],
        "properties": {
            RACK: {"type": ["string", "integer"], "description": "the rack of the host: pages show hosts by it"},
            "gpuprov": {"$ref": "#/$defs/gpuprov", "description": "what the host should be"},
            **{name: {"type": kind, "description": does} for name, (kind, does) in CONNECTION.items()},
        },
    }
    return {
        "$schema": IDENTIFIER,
        "title": "inventory for gpuprov",
        "description": "An Ansible inventory in YAML, whose hosts have the variable gpuprov",
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/group"},
        "$defs": {
            "group": GROUP,
            "variables": variables,
            "gpuprov": {key: value for key, value in spec.items() if key != "$schema"},
            **blocks,
        },
    }


def _tell_fields(block: Schema, blocks: Mapping[str, Json]) -> None:
    """Give a field without a description that of its block or its only type; completion never writes `null`."""
    for field in block.get("properties", {}).values():
        if field.get("default", ...) is None:
            del field["default"]
        kinds = [field, *field.get("anyOf", ())]
        kinds += [blocks[kind["$ref"].rsplit("/", 1)[-1]] for kind in kinds if "$ref" in kind]
        description = next((kind["description"] for kind in kinds if "description" in kind), "")
        if description:
            field["description"] = description.partition("\n\n")[0]


def list_item_blocks(schema: Any) -> Iterator[str]:
    """Yield the names of blocks in lists and in mappings with any key: these are not merged."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("items", "prefixItems", "additionalProperties"):
                yield from list_block_names(value)
            yield from list_item_blocks(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from list_item_blocks(value)


def list_block_names(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(name := schema.get("$ref"), str):
            yield name.rsplit("/", 1)[-1]
        for value in schema.values():
            yield from list_block_names(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from list_block_names(value)
