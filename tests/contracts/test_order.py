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
from gpuprov.render.checkout import acts_of, stages

pytestmark = pytest.mark.install

ROOT = Path(__file__).parents[2]
ACTS = ROOT / "playbooks" / "acts"
NAMES = [capability.name for capability in CAPABILITIES]


def test_what_every_host_of_a_run_gets_is_imported_and_what_none_gets_is_left_out() -> None:
    tasks = yaml.safe_load(acts_of([["kernel", "nouveau"], ["kernel"]])["acts/configure.yml"])
    assert tasks == [
        {"name": "Capability kernel", "ansible.builtin.import_role": {"name": "kernel", "tasks_from": "configure"}},
        {
            "name": "Capability nouveau",
            "ansible.builtin.include_role": {"name": "nouveau", "tasks_from": "configure"},
            "when": "'nouveau' in host_capabilities",
        },
    ]
    assert [task["ansible.builtin.meta"] for task in yaml.safe_load(acts_of([["nouveau"]])["acts/boot.yml"])] == [
        "noop"
    ]


def test_a_neighbour_with_fewer_capabilities_changes_no_order(tmp_path: Path) -> None:
    named = [name for name in NAMES if "configure" in stages(name)]
    for name in named:
        (tmp_path / "roles" / name / "tasks").mkdir(parents=True)
        step = [{"name": "Step", "ansible.builtin.debug": {"msg": "{{ inventory_hostname }}={{ role_name }}"}}]
        (tmp_path / "roles" / name / "tasks" / "configure.yml").write_text(yaml.safe_dump(step))
    play = {
        "name": "Order",
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {"name": "Each", "ansible.builtin.import_tasks": str(ACTS / "configure.yml")},
        ],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    hosts = {
        "few": {"host_capabilities": [named[-1], named[4]]},
        "many": {"host_capabilities": [named[0], named[2], named[-1]]},
    }
    inventory = {"all": {"hosts": hosts, "vars": {"ansible_connection": "local"}}}
    (tmp_path / "hosts.yml").write_text(json.dumps(inventory))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.yml", "play.yml"]
    environment = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default", "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    ran = re.findall(r"(few|many)=(\w+)", done.stdout)
    assert [role for host, role in ran if host == "many"] == [named[0], named[2], named[-1]]
    assert [role for host, role in ran if host == "few"] == [named[4], named[-1]]
