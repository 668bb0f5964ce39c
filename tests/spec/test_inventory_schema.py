"""The schema of a whole inventory takes every inventory of the project, and refuses what check refuses."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from gpuprov.report.specs import inventory_schema_text
from tests.docs.test_examples import USERS
from tests.rows import run_each

ROOT = Path(__file__).parents[2]
TRACKED = subprocess.run(["git", "ls-files", "*.yaml", "*.yml"], cwd=ROOT, capture_output=True, text=True, check=True)
HOST = "all: {{hosts: {{a: {{gpuprov: {}}}}}}}"


class Loader(yaml.SafeLoader):
    """Ansible's tags are strings."""


Loader.add_multi_constructor("!", lambda loader, _, node: loader.construct_scalar(node))


@cache
def schema() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(inventory_schema_text())
    jsonschema.Draft202012Validator.check_schema(read)
    return read


def inventories() -> list[Path]:
    found = []
    for name in TRACKED.stdout.split():
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        if text.startswith(("all:", "---\nall:")) or "\nall:\n" in text:
            found.append(path)
    return found


def wrong(text: str) -> list[str]:
    document = yaml.load(text, Loader)
    return [error.message for error in jsonschema.Draft202012Validator(schema()).iter_errors(document)]


def test_every_inventory_of_the_project_is_one() -> None:
    paths = inventories()
    assert ROOT / "inventories" / "example" / "inventory.yaml" in paths
    assert {path.parent.name for path in (ROOT / "molecule").glob("*/inventory.yaml")} < {
        path.parent.name for path in paths
    }
    assert {str(path.relative_to(ROOT)): found for path in paths if (found := wrong(path.read_text()))} == {}


def test_the_inventories_of_the_documentation_are_some() -> None:
    blocks = [(page.name, one) for page in USERS for one in re.findall(r"(?ms)^```yaml\n(.*?)^```", page.read_text())]
    whole = [(name, text) for name, text in blocks if re.search("(?m)^all:", text)]
    assert len(whole) > 5
    assert [(name, found) for name, text in whole if (found := wrong(text))] == []


@run_each(
    "text",
    [
        "all: {hosts: {a: }, children: {b: , c: {vars: , hosts: {x: {any: 1}}}}}",
        "gpus: {hosts: {'gpu[001:032]': {ansible_become: true, ansible_port: 2222}}}",
        HOST.format("{gpu: {count: 8}}"),  # the model is the group's
        HOST.format("{gpu: {model: NVIDIA H100 80GB HBM3}}"),
        HOST.format("{gpu: {model: '10de:2330', count: 8}, nvidia_driver: false}"),
        HOST.format("{gpu: {model: '{{ model }}', count: 8}}"),
    ],
)
def test_what_is_taken(text: str) -> None:
    assert wrong(text) == []


@run_each(
    "text",
    [
        "all: {host: {a: {}}}",
        "all: [a, b]",
        "all: {hosts: [a]}",
        "all: {children: {b: {hots: {}}}}",
        "all: {vars: {gpuprov: {nvidia_drivr: {}}}}",
        "all: {vars: {gpuprov: }}",
        HOST.format("{gpu: {model: H1000}}"),
        HOST.format("{gpu: {model: H100-SXM5-80GB, count: 0}}"),
        HOST.format("{nvidia_driver: {kernel_modules: closed}}"),
        HOST.format("{nvidia_driver: {version: 580}}"),
        HOST.format("{reboot: always}"),
        HOST.format("{kubernetes: {device_plugin: {sharing: {time_slicing: {resources: [{name: nvidia.com/gpu}]}}}}}"),
    ],
)
def test_what_is_refused(text: str) -> None:
    assert wrong(text)


def test_each_field_has_its_words_and_models_are_a_choice() -> None:
    blocks = schema()["$defs"]
    assert "H100-SXM5-80GB" in blocks["GpuSpec"]["properties"]["model"]["anyOf"][0]["enum"]
    assert blocks["NvidiaDriver"]["properties"]["kernel_modules"]["enum"] == ["auto", "open", "proprietary"]
    fields = [(name, key, one) for name, block in blocks.items() for key, one in block.get("properties", {}).items()]
    assert len(fields) > 200
    assert [(name, key) for name, key, one in fields if not one.get("description")] == [], "for hovering"
    assert [(name, key) for name, key, one in fields if one.get("default", ...) is None] == [], (
        "editors insert defaults"
    )


def test_an_unknown_model_is_told_in_a_line_and_not_with_every_model_there_is() -> None:
    for one in schema()["$defs"]["GpuSpec"]["properties"]["model"]["anyOf"]:
        assert "gpuprov catalog gpus" in one["errorMessage"]
