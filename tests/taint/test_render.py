"""A rendered project has no template but its own: what an inventory says, trusted or not, is data in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuprov.fleet.specs import load_fleet
from gpuprov.host_code.driver import prebuilt
from gpuprov.plan import playbook
from gpuprov.plan.extra import extra_variables, owner
from gpuprov.plan.workspace import workspace
from gpuprov.render import render, write
from gpuprov.spec.model import HostSpec, RawHost
from tests.taint.canary import Nest

BIN = Path(sys.executable).parent
SHOW = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.copy:
        content: "{{ {'kernel': kernel_sysctl, 'said': ansible_ssh_common_args} | to_json }}"
        dest: "{{ playbook_dir }}/said.json"
        mode: "0644"
    - ansible.builtin.debug: {msg: "{{ hostvars[inventory_hostname] | to_json | length }}"}
    - ansible.builtin.debug: {msg: "{{ item.key }} {{ item.value }}"}
      with_dict: "{{ kernel_sysctl }}"
"""


@pytest.fixture
def nest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nest:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Nest(tmp_path / "nest")


def untrusted(value: Any) -> Any:
    """As an inventory script says what is not a template."""
    if isinstance(value, dict):
        return {key: untrusted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [untrusted(item) for item in value]
    return {"__ansible_unsafe": value} if isinstance(value, str) else value


def script(folder: Path, variables: dict[str, Any]) -> Path:
    """An inventory script with one host, whose strings are not templates to Ansible."""
    answer = {"_meta": {"hostvars": {"gpu01": untrusted(variables)}}, "gpus": {"hosts": ["gpu01"]}}
    file = folder / "cloud.sh"
    (folder / "cloud.json").write_text(json.dumps(answer))
    file.write_text(f"#!/bin/sh\ncat '{folder}/cloud.json'\n")
    file.chmod(0o755)
    return file


def hostile(nest: Nest) -> dict[str, Any]:
    """A spec and connection variables of strings that are valid, and canaries."""
    canaries = [one for one in nest.all() if one.isprintable()]
    return {
        "gpuprov": {
            "kernel": {"sysctl": {f"vm.key{n}": canary for n, canary in enumerate(canaries)}},
            "nvidia_driver": {"module_parameters": {"NVreg_RmMsg": canaries[0].replace(" ", "").replace("'", "")}},
        },
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_ssh_common_args": f"-o Tag={canaries[0]}",
        "ansible_ssh_extra_args": nest.templates()[1],
        "container_toolkit_repository": nest.templates()[2],
    }


def pairs(folder: Path, nest: Nest) -> tuple[tuple[RawHost, HostSpec], ...]:
    return load_fleet([str(script(folder, hostile(nest)))]).pairs


def strings(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from strings(key)
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str):
        yield value


@pytest.mark.install
def test_ansible_trusts_no_string_of_the_variables(nest: Nest, tmp_path: Path) -> None:
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import is_trusted_as_template

    write(render(pairs(tmp_path, nest)), tmp_path / "project")
    read = [
        tmp_path / "project" / name for name in ("inventory.yml", "host_vars/gpu01.yml", "group_vars/all/gpuprov.yml")
    ]
    found = [s for file in read for s in strings(DataLoader().load_from_file(str(file), trusted_as_template=True))]
    assert len(found) > 100
    assert [one for one in found if is_trusted_as_template(one)] == []
    assert nest.flown() == []


@pytest.mark.install
def test_ansible_runs_nothing_that_an_untrusted_inventory_says(nest: Nest, tmp_path: Path) -> None:
    """Plain ansible-playbook over the rendered project reads the same text that the inventory says."""
    given = pairs(tmp_path, nest)
    write(render(given), tmp_path / "project")
    (tmp_path / "project" / "show.yml").write_text(SHOW)
    ran = subprocess.run(
        [BIN / "ansible-playbook", "-i", tmp_path / "project" / "inventory.yml", tmp_path / "project" / "show.yml"],
        env={**os.environ, "ANSIBLE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = json.loads((tmp_path / "project" / "said.json").read_text())
    assert said["kernel"] == given[0][0].values["kernel"]["sysctl"]  # type: ignore[index]
    assert said["said"] == given[0][0].connection["ansible_ssh_common_args"]
    assert nest.flown() == []


@pytest.mark.install
def test_what_a_run_is_told_is_data_too(nest: Nest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra variables of plan and apply: names of this machine and of the operator, and the drain command."""
    monkeypatch.setattr("gpuprov.host_code.process.platform.node", lambda: nest.templates()[0])
    told = tmp_path / "told.json"
    play = (
        "- hosts: all\n  gather_facts: false\n  tasks:\n    - ansible.builtin.copy:\n        mode: '0600'\n"
        f"        dest: {told}\n"
        "        content: \"{{ {'run': gpuprov_run, 'drain': gpuprov_drain_command} | to_json }}\"\n"
    )
    drain = "docker ps --format '{{.Names}}' # " + nest.templates()[0]
    with workspace(pairs(tmp_path, nest)) as folder:
        (folder / "project" / "site.yml").write_text(play)
        extra = extra_variables(owner("run"), {"gpu01": {"kernel": "why"}}, drain=drain)
        ended = playbook.run(folder, ["gpu01"], extra, on_event=lambda _event: None)
    assert ended.status == 0
    said = json.loads(told.read_text())
    assert said["drain"] == drain
    assert said["run"] == extra["gpuprov_run"]
    assert nest.flown() == []


def test_what_a_host_says_names_no_file_outside_of_the_cache() -> None:
    """A package that one host built is fetched to this machine, under a name that is made of what the host says of
    itself."""
    said = "../../../../../../etc/cron.d/x"
    words = ("debian12", said, "gpu01", "nvidia-kernel-dkms", f"1:535.1-1{said}")
    folder, _, name = prebuilt.make_cache_path({"HOME": "/home/ops"}, *words).partition("/gpuprov/modules/")
    assert folder
    assert "/" not in name
    assert name.startswith("debian12-..")
    assert "gpu01" in name
