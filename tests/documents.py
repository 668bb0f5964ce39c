"""Documents of the checkout, and those printed by commands with --json, checked against the schemas in
docs/reference."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from gpuprov.core.errors import CODES, find_worst
from gpuprov.report.document import Document, as_json

READER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
REFERENCE = Path(__file__).parents[1] / "docs" / "reference"


def read_document(document: Document | str) -> Any:
    """Return the one document of a command. Fails if it breaks the schema, or if it contradicts itself."""
    text = document if isinstance(document, str) else as_json(document)
    found = judged("document", text)
    outcomes = [host["outcome"] for host in found["hosts"]]
    assert found["exit_code"] == CODES[found["outcome"]]
    assert list(CODES).index(found["outcome"]) <= list(CODES).index(find_worst(outcomes)), "better than a host"
    assert found["summary"]["hosts"] == len(outcomes) == sum(found["summary"]["outcomes"].values())
    assert found["summary"]["outcomes"] == dict(Counter(outcomes))
    return found


def read_yaml(path: Path) -> Any:
    """Return a YAML file's document. libyaml, where it is, reads ten times faster than yaml.safe_load."""
    return yaml.load(path.read_bytes(), Loader=READER)


def judged(command: str, text: str) -> Any:
    """Return the document. Fails if it breaks the schema, or has a key that the schema lacks."""
    found = json.loads(text)
    _judge(command).validate(found)
    return found


@cache
def _judge(command: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((REFERENCE / f"{command}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(_closed(schema))


def _closed(value: Any) -> Any:
    if isinstance(value, list):
        return [_closed(one) for one in value]
    if not isinstance(value, dict):
        return value
    closed = {key: _closed(one) for key, one in value.items()}
    return {"additionalProperties": False, **closed} if "properties" in value else closed
