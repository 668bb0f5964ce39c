"""`gpuprov` is merged along Ansible's precedence, and every value knows its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.inventory import load
from gpuprov.spec.problem import Origin
from tests.inventory.files import lay, read


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


PRECEDENCE = """\
all:
  vars: {gpuprov: {who: all-inventory, only1: 1, deep: {a: 1, list: [1, 2]}}}
  children:
    outer:
      vars: {gpuprov: {who: outer-inventory, only2: 2, deep: {b: 2}}}
      children:
        inner:
          vars: {gpuprov: {who: inner-inventory, only3: 3, deep: {list: [3]}}}
          hosts:
            gpu01: {gpuprov: {who: host-inventory, only4: 4, deep: {a: 4}}}
            gpu02: {}
"""


def test_precedence_is_ansibles() -> None:
    hosts = read(
        PRECEDENCE,
        group_vars__all="gpuprov: {who: all-file, only5: 5}\n",
        group_vars__outer="gpuprov: {who: outer-file}\n",
        group_vars__inner__one="gpuprov: {who: inner-file-1, only6: 6}\n",
        group_vars__inner__two="gpuprov: {who: inner-file-2}\n",
    )
    merged = {"only1": 1, "only2": 2, "only3": 3, "only5": 5, "only6": 6}
    assert hosts["gpu02"].values == {**merged, "who": "inner-file-2", "deep": {"a": 1, "b": 2, "list": [3]}}
    assert hosts["gpu01"].values == {
        **merged,
        "only4": 4,
        "who": "host-inventory",
        "deep": {"a": 4, "b": 2, "list": [3]},
    }
    assert hosts["gpu01"].groups == ("outer", "inner")
    again = read(PRECEDENCE, host_vars__gpu01="gpuprov: {who: host-file}\nansible_port: 2222\n")
    assert again["gpu01"].values["who"] == "host-file"
    assert again["gpu01"].connection == {"ansible_port": 2222}


def test_group_depth_and_priority_decide() -> None:
    hosts = read(
        "a: {vars: {gpuprov: {x: a}, ansible_group_priority: 10}, hosts: {gpu01: {}}}\n"
        "b: {vars: {gpuprov: {x: b}}, hosts: {gpu01: {}}}\n"
    )
    assert hosts["gpu01"].values == {"x": "a"}


def test_variables_beside_the_current_folder_count_as_for_a_playbook(here: Path) -> None:
    lay({"group_vars/all.yml": "gpuprov: {x: cwd}\n", "prod/hosts.yaml": "all: {hosts: {gpu01: {}}}\n"})
    assert load(["prod/hosts.yaml"]).hosts[0].values == {"x": "cwd"}


def test_false_switches_off_and_a_mapping_on_again() -> None:
    hosts = read(
        "all:\n"
        "  vars: {gpuprov: {mig: {layout: [1]}, persistence: {mode: daemon}}}\n"
        "  children:\n"
        "    without:\n"
        "      vars: {gpuprov: {mig: false}}\n"
        "      hosts: {gpu01: {}}\n"
        "      children: {with: {vars: {gpuprov: {mig: {strict: true}}}, hosts: {gpu02: {}}}}\n"
    )
    assert hosts["gpu01"].values == {"mig": False, "persistence": {"mode": "daemon"}}
    assert hosts["gpu01"].origins[("mig",)] == Origin("inventory.yaml", 5, 24)
    assert ("mig", "layout") not in hosts["gpu01"].origins
    assert hosts["gpu02"].values == {"mig": {"strict": True}, "persistence": {"mode": "daemon"}}
    assert set(hosts["gpu02"].origins) == {("mig",), ("mig", "strict"), ("persistence",), ("persistence", "mode")}


def test_same_host_written_twice_merges() -> None:
    hosts = read(
        "a: {hosts: {gpu01: {gpuprov: {x: {one: 1}, y: 1}}}}\nb: {hosts: {gpu01: {gpuprov: {x: {two: 2}, y: 2}}}}\n"
    )
    assert hosts["gpu01"].values == {"x": {"one": 1, "two": 2}, "y": 2}


PLACES = """\
all:
  vars:
    gpuprov:
      nvidia_driver:
        version: "535"
        hold: true
      kernel:
        blacklist: [nouveau, nova_core]
        limits: {memlock: 5}
        sysctl:
      layout:
        - gpus: all
          instances: {1g.10gb: 2}
  hosts:
    gpu01:
      gpuprov: {nvidia_driver: {hold: false}}
"""


def test_places_are_exact() -> None:
    origins = read(PLACES)["gpu01"].origins
    assert {path: (o.line, o.column) for path, o in origins.items()} == {
        ("nvidia_driver",): (16, 17),
        ("nvidia_driver", "version"): (5, 18),
        ("nvidia_driver", "hold"): (16, 33),
        ("kernel",): (7, 7),
        ("kernel", "blacklist"): (8, 9),
        ("kernel", "blacklist", 0): (8, 21),
        ("kernel", "blacklist", 1): (8, 30),
        ("kernel", "limits"): (9, 9),
        ("kernel", "limits", "memlock"): (9, 27),
        ("kernel", "sysctl"): (10, 9),
        ("layout",): (11, 7),
        ("layout", 0): (12, 11),
        ("layout", 0, "gpus"): (12, 17),
        ("layout", 0, "instances"): (13, 11),
        ("layout", 0, "instances", "1g.10gb"): (13, 32),
    }
    assert {origin.file for origin in origins.values()} == {"inventory.yaml"}
