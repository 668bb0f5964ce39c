"""The JSON Schema that editors use agrees with what `check` accepts and refuses."""

from __future__ import annotations

import json
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gpuprov.capabilities import CAPABILITIES, HOUSE
from gpuprov.fleet.specs import judge
from gpuprov.spec.model import RawHost
from gpuprov.spec.problem import SpecError
from gpuprov.spec.schema import build_schema
from tests.rows import run_each

ROOT = Path(__file__).parents[2]

GOOD = """\
nouveau: {}
---
nouveau: false
persistence: {}
---
acceptance: {nccl: {source: false}, nvbandwidth: {source: false}}
kubernetes: {device_plugin: {sharing: {time_slicing: false}}}
---
gpu: {model: H100-SXM5-80GB, count: 8}
reboot: if-needed
nvidia_driver: {version: "580", kernel_modules: open, hold: false, module_parameters: {NVreg_EnableMSI: true}}
---
gpu: false
kernel:
  command_line: {iommu: pt, quiet: ""}
  blacklist: [radeon]
  module_options: {ib_core: {send_queue_size: 128, name: x}}
  modules_load: [ib_core, nvidia-uvm]
  sysctl: {net.core.rmem_max: 268435456, net.ipv4.tcp_rmem: "4096 131072 268435456"}
  limits: {memlock: unlimited, nofile: 65536}
---
nvidia_driver: {version: any}
---
nvidia_driver: {version: "535.261.03"}
"""

BAD = """\
nvidia_drivr: {}
---
nvidia_driver:
---
nvidia_driver: true
---
nvidia_driver: []
---
nvidia_driver: {version: 535}
---
nvidia_driver: {version: latest}
---
nvidia_driver: {kernel_modules: closed}
---
nvidia_driver: {hold: 1}
---
nvidia_driver: {module_parameters: {"NVreg X": 1}}
---
gpu: {count: 8}
---
gpu:
nouveau: {}
---
gpu: {model: H100-SXM5-80GB, count: 0}
---
reboot: yes
nouveau: {}
---
nouveau: {modules: []}
---
nouveau: {modules: [a b]}
---
kernel: {sysctl: {swappiness: 1}}
---
kernel: {limits: {memlok: 1}}
---
kernel: {limits: {memlock: -1}}
---
kernel: {command_line: {quiet: true}}
"""


@cache
def validator() -> jsonschema.Draft202012Validator:
    text: dict[str, Any] = json.loads(
        json.dumps(build_schema(HOUSE.fragment, {c.name: (c.fragment, c.summary) for c in CAPABILITIES}))
    )
    jsonschema.Draft202012Validator.check_schema(text)
    return jsonschema.Draft202012Validator(text)


def specs(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(textwrap.dedent(text)))


@run_each("spec", specs(GOOD))
def test_both_accept(spec: dict[str, Any]) -> None:
    validator().validate(spec)
    judge([RawHost(name="a", values=spec)])


@run_each("spec", specs(BAD))
def test_both_refuse(spec: dict[str, Any]) -> None:
    assert list(validator().iter_errors(spec))
    with pytest.raises(SpecError):
        judge([RawHost(name="a", values=spec)])


def test_the_example_is_valid() -> None:
    found = 0
    pending = [yaml.safe_load((ROOT / "inventories/example/inventory.yaml").read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            if "gpuprov" in node:
                validator().validate(node["gpuprov"])
                found += 1
            pending += list(node.values())
    assert found >= 2


def test_every_block_says_what_it_is_for() -> None:
    described = validator().schema
    assert isinstance(described, dict)
    properties = described["properties"]
    for capability in CAPABILITIES:
        assert properties[capability.name]["description"] == capability.summary
