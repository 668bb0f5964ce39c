"""Bugs of reboots, by the house's own tasks: only `ansible.builtin.reboot` itself and the folder of reasons are
exchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.here import PLUGINS, moved

pytestmark = pytest.mark.install

TASKS = Path(__file__).parents[2] / "roles" / "host" / "tasks" / "reboot.yml"
ONCE = TASKS.with_name("reboot_once.yml")
REASONS = "/run/gpuprov/reboot-required.d"
DONE = "the host would be rebooted now"
# `local` under a name that says so, and under one that does not: as an ssh that leads back to this machine.
TIME = {"gpuprov_now": "1"}  # of the playbook, where an act begins
HOSTS: dict[str, dict[str, str]] = {
    "forbidden": {"ansible_connection": "local", "gpuprov_reboot": "never"},
    "local": {"ansible_connection": "local", "gpuprov_reboot": "if-needed"},
    "disguised": {"ansible_connection": "ansible.legacy.local", "gpuprov_reboot": "if-needed"},
    "other": {"ansible_connection": "ansible.legacy.local", "gpuprov_reboot": "if-needed"},
}


def exchanged(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tasks with a message for the reboot, and without the look at GPU clients."""
    kept = []
    for task in tasks:
        if task.get("ansible.builtin.include_tasks") == ONCE.name:
            inner = yaml.safe_load(ONCE.read_text(encoding="utf-8"))
            task = {"name": task["name"], "when": task["when"], "block": exchanged(inner)}
        if "ansible.builtin.reboot" in task:
            task = {"name": task["name"], "ansible.builtin.debug": {"msg": DONE}}
        if "ansible.builtin.include_tasks" not in task:
            kept.append(task)
    return kept


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What was said of each host, all of which wait for a reboot."""
    folder = tmp_path_factory.mktemp("reboot")
    reasons = moved(folder, REASONS) / REASONS.lstrip("/")
    reasons.mkdir(parents=True)
    (reasons / "nvidia_driver").write_text("the loaded driver is old\n")
    (folder / "bin").mkdir()
    stub = folder / "bin" / "readlink"
    stub.write_text("#!/bin/sh\necho 'pid:[1]'\n")  # another process namespace: a container, or another machine
    stub.chmod(0o755)
    tasks = exchanged(yaml.safe_load(TASKS.read_text(encoding="utf-8")))
    path = f"{{{{ '{folder / 'bin'}:' if inventory_hostname == 'other' else '' }}}}{os.environ['PATH']}"
    play = {"hosts": "all", "gather_facts": False, "environment": {"PATH": path}, "tasks": tasks}
    interpreter = {"ansible_python_interpreter": sys.executable}
    hosts = {name: {**variables, **interpreter, **TIME} for name, variables in HOSTS.items()}
    (folder / "ansible.cfg").write_text("[defaults]\n")
    (folder / "play.yml").write_text(json.dumps([play]))
    (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": hosts}}))
    command = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.yml", "play.yml"]
    environment = {
        **os.environ,
        "ANSIBLE_STDOUT_CALLBACK": "oneline",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LIBRARY": str(PLUGINS / "modules"),
        "ANSIBLE_ACTION_PLUGINS": str(PLUGINS / "action"),
    }
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    lines = [line.partition(" | ") for line in ran.stdout.splitlines()]
    answers = {name: " ".join(" ".join(rest for host, _, rest in lines if host == name).split()) for name in HOSTS}
    assert all(answers.values()), ran.stdout + ran.stderr
    return answers


def test_a_reboot_that_is_not_allowed_is_reported(told: dict[str, str]) -> None:
    assert "reboot required: nvidia_driver: the loaded driver is old" in told["forbidden"]
    assert "reboot: if-needed" in told["forbidden"]
    assert DONE not in told["forbidden"]


@pytest.mark.parametrize("host", ["local", "disguised"])
def test_the_machine_that_runs_this_is_not_rebooted(told: dict[str, str], host: str) -> None:
    assert f"{host} is this very machine: gpuprov does not reboot it. Fix: reboot it yourself" in told[host]
    assert DONE not in told[host]


def test_another_host_is_rebooted(told: dict[str, str]) -> None:
    assert DONE in told["other"], "the two tests above cannot fail if nothing is ever rebooted"
