"""Capabilities run in apply order on every host, also where two hosts of one run have different ones."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpuprov.capabilities import CAPABILITIES

pytestmark = pytest.mark.install

ROOT = Path(__file__).parents[2]
TASKS = ROOT / "playbooks" / "acts" / "capabilities.yml"
NAMES = [capability.name for capability in CAPABILITIES]


def test_there_is_a_task_for_each_capability_in_apply_order() -> None:
    tasks = yaml.safe_load(TASKS.read_text(encoding="utf-8"))
    assert [task["ansible.builtin.include_role"]["name"] for task in tasks] == NAMES
    assert [task["when"][0] for task in tasks] == [f"'{name}' in host_capabilities" for name in NAMES]


def test_a_neighbour_with_fewer_capabilities_changes_no_order(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / "roles" / name / "tasks").mkdir(parents=True)
        step = [{"name": "Step", "ansible.builtin.debug": {"msg": "{{ inventory_hostname }}={{ role_name }}"}}]
        (tmp_path / "roles" / name / "tasks" / "configure.yml").write_text(yaml.safe_dump(step))
    play = {
        "name": "Order",
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {"name": "Each", "ansible.builtin.include_tasks": str(TASKS), "vars": {"gpuprov_stage": "configure"}},
        ],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    hosts = {
        "few": {"host_capabilities": [NAMES[-1], NAMES[4]]},
        "many": {"host_capabilities": [NAMES[0], NAMES[2], NAMES[-1]]},
    }
    inventory = {"all": {"hosts": hosts, "vars": {"ansible_connection": "local"}}}
    (tmp_path / "hosts.yml").write_text(json.dumps(inventory))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.yml", "play.yml"]
    environment = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default", "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    ran = re.findall(r"(few|many)=(\w+)", done.stdout)
    assert [role for host, role in ran if host == "many"] == [NAMES[0], NAMES[2], NAMES[-1]]
    assert [role for host, role in ran if host == "few"] == [NAMES[4], NAMES[-1]]
