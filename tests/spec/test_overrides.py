"""What a site sets beside the spec: what is wrong is told with its file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.fleet.specs import load_fleet
from gpuprov.spec.problem import SpecError

INVENTORY = """all:
  vars:
    gpuprov: {persistence: {}}
    host_reboot_timeout: never
  children:
    racks:
      vars:
        nvidia_driver_manage_repository: perhaps
        host_free_space:
          kernel: {path: /home, mib: 1}
      hosts:
        gpu1: {host_max_clock_skew: soon, host_kubernetes_node: GPU_1}
        gpu2: {}
"""
TOLD = (
    'inventory.yaml:4:26: host_reboot_timeout is "never"; allowed: seconds',
    'inventory.yaml:8:42: nvidia_driver_manage_repository is "perhaps"; allowed: true, false',
    'inventory.yaml:9:9: host_free_space.kernel.path is "/home"; allowed: /boot, /var',
    'inventory.yaml:12:37: host_max_clock_skew is "soon"; allowed: seconds',
    'inventory.yaml:12:65: host_kubernetes_node is "GPU_1"; allowed: a node',
)


def problems(monkeypatch: pytest.MonkeyPatch, folder: Path, **files: str) -> list[str]:
    for name, text in files.items():
        file = folder / name.replace("__", "/").replace("_yaml", ".yaml")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    monkeypatch.chdir(folder)
    with pytest.raises(SpecError) as caught:
        load_fleet(["inventory.yaml"])
    return [str(one).replace("; such as", "; allowed") for one in caught.value.problems]


def test_each_has_its_place_and_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = problems(monkeypatch, tmp_path, inventory_yaml=INVENTORY)
    assert len(told) == len(TOLD), told
    for line, begins in zip(told, TOLD, strict=True):
        assert line.startswith(begins), told


def test_what_counts_is_where_it_was_said_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = "all:\n  vars: {gpuprov: {persistence: {}}, host_reboot_timeout: 5}\n  hosts: {gpu1: {}}\n"
    (line,) = problems(
        monkeypatch, tmp_path, inventory_yaml=inventory, group_vars__all_yaml="---\nhost_reboot_timeout: never\n"
    )
    assert line.startswith('group_vars/all.yaml:2:22: host_reboot_timeout is "never"')


def test_an_inventory_that_was_kept_knows_the_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = problems(monkeypatch, tmp_path, inventory_yaml=INVENTORY)
    assert problems(monkeypatch, tmp_path, inventory_yaml=INVENTORY) == first
