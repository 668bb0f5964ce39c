"""Plays of a project that nobody rendered: specs are read as the commands read them, and nothing is green that did
nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.specs import load_fleet
from gpuprov.inventory import Play
from gpuprov.render import plain
from gpuprov.render.variables import fleet_variables, host_variables

ROOT = Path(__file__).parents[2]
NOWHERE = "{ansible_host: 127.0.0.1, ansible_port: 1}"
INVENTORY = f"""
all:
  hosts:
    web1:
  children:
    gpus:
      vars:
        gpuprov: {{gpu: {{model: L40S, count: 2}}, nouveau: {{}}, persistence: {{mode: daemon}}}}
      children:
        old:
          vars:
            gpuprov: {{persistence: {{mode: legacy}}, nouveau: false}}
          hosts:
            gpu2: {NOWHERE}
      hosts:
        gpu1: {NOWHERE}
"""


def play(folder: Path, **more: Any) -> Play:
    return Play(str(folder), more.get("extra", {}), more.get("secrets", ()))


def inventory(folder: Path, text: str = INVENTORY) -> list[str]:
    (folder / "inventory.yaml").write_text(text)
    return [str(folder / "inventory.yaml")]


def test_a_host_gets_what_a_rendered_project_would_say_of_it(tmp_path: Path) -> None:
    sources = inventory(tmp_path)
    fleet = plain.read_fleet(sources, play(tmp_path), {"gpu1": {}, "gpu2": {}, "web1": {}})
    assert fleet.unmanaged == ("web1",)
    rendered = {spec.name: host_variables(spec) for _, spec in load_fleet(sources).pairs}
    for raw, spec in fleet.pairs:
        variables = plain.variables_of(raw, spec)
        assert variables.pop(plain.READ)
        assert variables == {**rendered[spec.name], **fleet_variables()}
    assert rendered["gpu2"]["gpuprov_capabilities"] == ["persistence"]


def test_only_the_hosts_of_the_play_are_judged(tmp_path: Path) -> None:
    sources = inventory(tmp_path, INVENTORY.replace("mode: legacy", "mode: sometimes"))
    assert [spec.name for _, spec in plain.read_fleet(sources, play(tmp_path), {"gpu1": {}}).pairs] == ["gpu1"]
    with pytest.raises(GpuprovError, match=r"inventory.yaml:\d+:\d+: persistence.mode is \"sometimes\"; allowed: auto"):
        plain.read_fleet(sources, play(tmp_path), {"gpu1": {}, "gpu2": {}})


def test_group_vars_beside_the_playbook_count(tmp_path: Path) -> None:
    (tmp_path / "site" / "group_vars").mkdir(parents=True)
    (tmp_path / "site" / "group_vars" / "all.yml").write_text("gpuprov: {persistence: {}}\n")
    sources = inventory(tmp_path, "all: {hosts: {gpu1: {}}}")
    [(_, spec)] = plain.read_fleet(sources, play(tmp_path / "site"), {"gpu1": {}}).pairs
    assert list(spec.capabilities) == ["persistence"]


def test_what_the_play_says_is_merged_over_the_inventory(tmp_path: Path) -> None:
    """Variables of the play and of --extra-vars, and a role's own, as Ansible would have the role take them."""
    known = {
        "gpuprov": {"persistence": {"mode": "daemon"}, "dcgm": {}},
        "persistence_mode": "auto",
        "mig_mode": "enabled",
    }
    [(_, spec)] = plain.read_fleet(inventory(tmp_path), play(tmp_path), {"gpu2": known}).pairs
    assert list(spec.capabilities) == ["persistence", "dcgm"]
    assert host_variables(spec)["persistence_mode"] == "auto"
    with pytest.raises(GpuprovError, match=r'a variable of the play, for gpu2: persistence.mode is "on"; allowed'):
        plain.read_fleet(inventory(tmp_path), play(tmp_path), {"gpu2": {"persistence_mode": "on"}})


def test_a_host_that_a_play_added_is_read_from_its_variables(tmp_path: Path) -> None:
    [(_, spec)] = plain.read_fleet(inventory(tmp_path), play(tmp_path), {"new": {"gpuprov": {"dcgm": {}}}}).pairs
    assert (spec.name, list(spec.capabilities)) == ("new", ["dcgm"])


def test_a_role_by_itself_takes_the_hosts_spec(tmp_path: Path) -> None:
    found = plain.read_host(inventory(tmp_path), play(tmp_path), "gpu2", {}, "persistence")
    assert (found["persistence_mode"], found["gpuprov_gpu"]) == ("legacy", {"model": "L40S", "count": 2})
    for _ in range(3):  # its own variable wins, for the roles after it too
        found["persistence_mode"] = "auto"
        found |= plain.read_host(inventory(tmp_path), play(tmp_path), "gpu2", found, "persistence")
        assert found["persistence_mode"] == "auto"


def test_a_role_by_itself_takes_its_own_variables(tmp_path: Path) -> None:
    """As in `roles: [nouveau, {role: nvidia_driver, vars: {nvidia_driver_version: "580"}}]`, one after the other."""
    sources = inventory(tmp_path)
    first = plain.read_host(sources, play(tmp_path), "web1", {}, "nouveau")
    assert first["gpuprov_capabilities"] == ["kernel", "nouveau"]
    known = {**first, "nvidia_driver_version": "580"}
    for _ in range(3):  # a role reads once for the kernel, and once for itself
        known |= plain.read_host(sources, play(tmp_path), "web1", known, "nvidia_driver")
        assert {"nouveau", "nvidia_driver"} <= set(known["gpuprov_capabilities"])
        assert (known["nvidia_driver_version"], known["nvidia_driver_hold"]) == ("580", True)
    with pytest.raises(GpuprovError, match=r'for web1: nvidia_driver.version is "5eighty"'):
        plain.read_host(sources, play(tmp_path), "web1", {"nvidia_driver_version": "5eighty"}, "nvidia_driver")


def test_a_role_by_itself_is_refused_where_the_spec_leaves_it_out(tmp_path: Path) -> None:
    with pytest.raises(
        GpuprovError, match=r"gpu2: the role mig is applied, .* has no mig \(it has: persistence\)"
    ) as caught:
        plain.read_host(inventory(tmp_path), play(tmp_path), "gpu2", {}, "mig")
    assert "write mig: {} into its gpuprov" in caught.value.fix


def ran(folder: Path, *arguments: str | Path, python: tuple[str, ...] = (sys.executable,)) -> tuple[int, str]:
    """ansible-playbook in this folder, by the configuration of the checkout."""
    done = subprocess.run(
        [*python, "-m", "ansible", "playbook", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "COLUMNS": "1000"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.install
@pytest.mark.parametrize(
    ("playbook", "text", "limit", "code", "told"),
    [
        ("site", INVENTORY, "gpu1", 4, "Failed to connect to the host via ssh"),
        ("site", INVENTORY, "all", 4, "no gpuprov spec, and nothing is done there: web1"),
        ("site", INVENTORY, "web1", 2, "no host has a gpuprov spec"),
        ("site", INVENTORY, "gpu7", 1, "leaves us with no hosts to target"),
        ("site", INVENTORY.replace("legacy", "sometimes"), "all", 2, 'persistence.mode is "sometimes"; allowed: auto'),
        ("persistence", INVENTORY, "gpu2", 4, "Failed to connect to the host via ssh"),
        (
            "nouveau",
            INVENTORY,
            "gpu2",
            2,
            "gpu2: nothing would be done, since its spec has no nouveau (it has: persistence)",
        ),
        ("site", "all: {}", "", 2, "the inventory has no hosts"),
    ],
)
def test_no_playbook_is_green_where_it_did_nothing(
    tmp_path: Path, playbook: str, text: str, limit: str, code: int, told: str
) -> None:
    sources = inventory(tmp_path, text)
    status, said = ran(
        tmp_path, "-i", sources[0], ROOT / "playbooks" / f"{playbook}.yml", *(("--limit", limit) if limit else ())
    )
    assert (status, told in said) == (code, True), said


@pytest.mark.install
def test_no_playbook_is_green_where_tags_left_its_tasks_out(tmp_path: Path) -> None:
    sources = inventory(tmp_path, INVENTORY)
    status, said = ran(tmp_path, "-i", sources[0], ROOT / "playbooks" / "site.yml", "--tags", "persistence")
    assert (status, "leave --tags out" in " ".join(said.split())) == (2, True), said


@pytest.mark.install
def test_a_play_of_a_sites_own_with_roles_reads_the_spec(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text("gpuprov: {nvidia_driver: {version: '5eighty'}}\n")
    (tmp_path / "play.yml").write_text(
        json.dumps([{"hosts": "all", "gather_facts": False, "roles": ["nvidia_driver"]}])
    )
    status, said = ran(tmp_path, "-i", "gpu1,", "play.yml")
    assert status == 2
    assert 'group_vars/all.yml:1:36: nvidia_driver.version is "5eighty"' in said, said
    (tmp_path / "group_vars" / "all.yml").write_text("gpuprov: {nvidia_driver: {version: '580'}}\n")
    status, said = ran(tmp_path, "-i", "gpu1,", "-e", "ansible_port=1 ansible_host=127.0.0.1", "play.yml")
    assert (status, "Failed to connect to the host via ssh" in said) == (4, True), said
