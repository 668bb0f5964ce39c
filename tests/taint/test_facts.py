"""A host that answers any module with facts named like variables of its roles: they are none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from gpuprov.plan.playbook import environment
from gpuprov.render import render, write
from gpuprov.spec.model import HostSpec, RawHost
from tests.here import play

pytestmark = pytest.mark.install
PLAY = """- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.ping: {}
    - ansible.builtin.debug: {msg: "it is {{ rdma_nccl.topo_source }}"}
"""
LIAR = """#!/bin/sh
cat >/dev/null
echo '{"ping": "pong", "ansible_facts": {"rdma_nccl": {"topo_source": "/etc/shadow"}}}'
"""


def said(folder: Path, env: Mapping[str, str]) -> str:
    """What a play of this environment takes the variable for, once the host has answered."""
    (folder / "python3").write_text(LIAR, encoding="utf-8")
    (folder / "python3").chmod(0o755)
    host = {"ansible_connection": "local", "ansible_python_interpreter": str(folder / "python3")}
    inventory = {"all": {"hosts": {"gpu1": host | {"rdma_nccl": {"topo_source": "the inventory's"}}}}}
    (folder / "inventory.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    (folder / "play.yml").write_text(PLAY, encoding="utf-8")
    command = [sys.executable, "-P", "-m", "ansible", "playbook", "-i", "inventory.yml", "play.yml"]
    done = subprocess.run(command, cwd=folder, env={**env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return done.stdout.partition("it is ")[2].partition('"')[0]


@pytest.fixture
def told(tmp_path: Path) -> dict[str, str]:
    """The environment of a user whose ansible.cfg takes facts for variables, as Ansible's default does."""
    (tmp_path / "own.cfg").write_text("[defaults]\ninject_facts_as_vars = true\n[connection]\npipelining = true\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    return {**kept, "ANSIBLE_CONFIG": str(tmp_path / "own.cfg"), "ANSIBLE_PIPELINING": "true"}


def test_a_hosts_facts_are_no_variables_of_an_apply(tmp_path: Path, told: dict[str, str]) -> None:
    assert said(tmp_path, told) == "/etc/shadow", "without it, they are"
    ours = environment(tmp_path, {**told, "ANSIBLE_HOST_KEY_CHECKING": "False"}, {})
    ours["ANSIBLE_INVENTORY_ENABLED"] = "yaml"
    assert said(tmp_path, ours) == "the inventory's"


def test_nor_of_a_rendered_project_by_its_own_settings(tmp_path: Path, told: dict[str, str]) -> None:
    write(render([(RawHost(name="gpu1"), HostSpec(name="gpu1"))]), tmp_path / "project")
    config = str(tmp_path / "project/ansible.cfg")
    assert said(tmp_path, {**told, "ANSIBLE_CONFIG": config}) == "the inventory's"


@pytest.mark.parametrize("injected", ["true", "false"])
def test_a_play_that_was_started_otherwise_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, injected: str
) -> None:
    monkeypatch.setenv("ANSIBLE_INJECT_FACT_VARS", injected)
    done = play(tmp_path, {"tasks": [{"gpuprov_reach": {}, "ignore_errors": True}]})
    assert ("inject_facts_as_vars = false" in " ".join((done.stdout + done.stderr).split())) is (injected == "true"), (
        done
    )
