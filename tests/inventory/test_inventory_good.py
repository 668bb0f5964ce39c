"""What Ansible reads, gpuprov reads: formats, precedence, templates, vaults, places."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.inventory import find_default_sources, load
from gpuprov.spec.problem import Origin
from tests.inventory.files import GOOD, indented, lay, locked, read

DRIVER = {"version": "535", "kernel_modules": "proprietary"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def exact(value: Any) -> Any:
    """The value with the type of each part."""
    if isinstance(value, dict):
        return {exact(key): exact(item) for key, item in value.items()} if type(value) is dict else type(value)
    if isinstance(value, list):
        return [exact(item) for item in value] if type(value) is list else type(value)
    return (type(value).__name__, value)


FORMATS: dict[str, dict[str, str | bytes]] = {
    "inventory.yaml": {"inventory.yaml": GOOD},
    "without_ending": {"without_ending": GOOD},
    "hosts.ini": {
        "hosts.ini": "[training]\ngpu01 ansible_host=192.0.2.1\ngpu02 ansible_host=192.0.2.2\n"
        f"[all:vars]\ngpuprov={{'nvidia_driver': {DRIVER}}}\n"
    },
    "hosts.json": {
        "hosts.json": json.dumps(
            {
                "all": {
                    "vars": {"gpuprov": {"nvidia_driver": DRIVER}},
                    "children": {
                        "training": {
                            "hosts": {"gpu01": {"ansible_host": "192.0.2.1"}, "gpu02": {"ansible_host": "192.0.2.2"}}
                        }
                    },
                }
            }
        )
    },
    "hosts.toml": {
        "hosts.toml": '[all.vars.gpuprov.nvidia_driver]\nversion = "535"\nkernel_modules = "proprietary"\n'
        '[training.hosts.gpu01]\nansible_host = "192.0.2.1"\n[training.hosts.gpu02]\nansible_host = "192.0.2.2"\n'
    },
    "script.sh": {
        "script.sh": "#!/bin/sh\ncat <<'END'\n"
        + json.dumps(
            {
                "all": {"children": ["training"], "vars": {"gpuprov": {"nvidia_driver": DRIVER}}},
                "training": {"hosts": ["gpu01", "gpu02"]},
                "_meta": {"hostvars": {f"gpu0{n}": {"ansible_host": f"192.0.2.{n}"} for n in (1, 2)}},
            }
        )
        + "\nEND\n"
    },
    "folder": {
        "folder/hosts.ini": "[training]\ngpu0[1:2]\n",
        "folder/group_vars/all.yml": "gpuprov: {nvidia_driver: {version: '535', kernel_modules: proprietary}}\n",
        "folder/host_vars/gpu01.yml": "ansible_host: 192.0.2.1\n",
        "folder/host_vars/gpu02/address.yaml": "ansible_host: 192.0.2.2\n",
    },
    "plugins": {
        "plugins/1.yaml": GOOD.replace("training", "rack"),
        "plugins/2.yaml": "plugin: ansible.builtin.constructed\nstrict: true\n"
        "groups: {training: ansible_host is defined}\n",
    },
}


@pytest.mark.install
@pytest.mark.parametrize("source", FORMATS)
def test_every_format(source: str) -> None:
    lay(FORMATS[source])
    inventory = load([source])
    assert [host.name for host in inventory.hosts] == ["gpu01", "gpu02"]
    for number, host in enumerate(inventory.hosts, start=1):
        assert exact(host.values) == exact({"nvidia_driver": DRIVER})
        assert exact(host.connection) == exact({"ansible_host": f"192.0.2.{number}"})
        assert "training" in host.groups
        assert ("nvidia_driver", "version") in host.origins
    assert inventory.sources == (source,)


def test_host_list() -> None:
    lay({"group_vars/all.yml": "gpuprov: {gpu: {model: T4}}\n"})
    inventory = load(["gpu01,192.0.2.7"])
    assert [host.name for host in inventory.hosts] == ["gpu01", "192.0.2.7"]
    assert inventory.hosts[0].values == {"gpu": {"model": "T4"}}


def test_several_sources_add_up() -> None:
    lay(
        {
            "a/hosts.yaml": "training:\n  vars: {gpuprov: {a: 1, b: {x: 1}}}\n  hosts: {gpu01: {}}\n",
            "a/group_vars/training.yml": "gpuprov: {c: 1}\n",
            "b/hosts.yaml": "training:\n  vars: {gpuprov: {b: {y: 2}}}\n  hosts: {gpu02: {}, gpu01: {}}\n",
            "b/group_vars/training.yml": "gpuprov: {c: 2}\n",
        }
    )
    for host in load(["a/hosts.yaml", "b"]).hosts:
        assert host.values == {"a": 1, "b": {"x": 1, "y": 2}, "c": 2}


def test_places_in_other_sources(here: Path) -> None:
    lay({"sub/hosts": "[a]\ngpu01\n[a:vars]\ngpuprov={'x': 1}\n", "sub/host_vars/gpu01": "gpuprov:\n  y: 1\n"})
    lay(FORMATS["script.sh"])
    (host,) = load([str(here / "sub/hosts")]).hosts
    assert host.origins == {("x",): Origin("sub/hosts", 4, 1), ("y",): Origin("sub/host_vars/gpu01", 2, 6)}
    assert load(["script.sh"]).hosts[0].origins[("nvidia_driver", "version")] == Origin("script.sh")


TEMPLATES = """\
all:
  vars:
    site_driver: {version: "535", hold: true}
    domain: example.org
    gpuprov:
      nvidia_driver: "{{ site_driver }}"
      flag: "{{ true }}"
      count: "{{ 4 * 2 }}"
      list: ["{{ domain }}", plain]
      name: "{{ inventory_hostname }}-{{ groups.all | length }}"
      raw: !unsafe "{{ domain }}"
    ansible_host: "{{ inventory_hostname }}.{{ domain }}"
  children:
    a:
      vars: {gpuprov: {nvidia_driver: {hold: false}}}
      hosts: {gpu01: {}, gpu02: {domain: example.net, ansible_port: "{{ 22 }}"}}
"""


def test_templates_are_resolved_per_host() -> None:
    hosts = read(TEMPLATES)
    assert exact(hosts["gpu01"].values) == exact(
        {
            "nvidia_driver": {"version": "535", "hold": False},
            "flag": True,
            "count": 8,
            "list": ["example.org", "plain"],
            "name": "gpu01-2",
            "raw": "{{ domain }}",
        }
    )
    assert hosts["gpu02"].values["list"] == ["example.net", "plain"]
    assert exact(hosts["gpu02"].connection) == exact({"ansible_host": "gpu02.example.net", "ansible_port": 22})
    origins = hosts["gpu01"].origins
    assert origins[("nvidia_driver", "version")] == Origin("inventory.yaml", 3, 28)
    assert origins[("nvidia_driver", "hold")] == Origin("inventory.yaml", 15, 40)
    assert origins[("flag",)] == Origin("inventory.yaml", 7, 13)


def test_template_of_everything_and_of_another_host() -> None:
    hosts = read(
        'all:\n  vars: {site: {a: {x: 1}}, gpuprov: "{{ site }}"}\n'
        "  hosts:\n    gpu01: {rack: 7}\n    gpu02: {gpuprov: {a: {y: \"{{ hostvars['gpu01'].rack }}\"}}}\n"
    )
    assert hosts["gpu01"].values == {"a": {"x": 1}}
    assert hosts["gpu02"].values == {"a": {"x": 1, "y": 7}}


def test_a_template_that_is_replaced_need_not_resolve() -> None:
    hosts = read('all:\n  vars: {gpuprov: {x: "{{ nope }}"}}\n  hosts:\n    gpu01: {gpuprov: {x: 1}}\n')
    assert hosts["gpu01"].values == {"x": 1}


def test_vaults() -> None:
    lay(
        {
            "inventory.yaml": "all:\n  vars:\n    secret: !vault |\n"
            + indented(locked("hunter3"), 6)
            + '    ansible_become_password: "{{ secret }}"\n  hosts:\n    gpu01:\n      gpuprov:\n        a: !vault |\n'
            + indented(locked("b"), 10),
            "group_vars/all.yml": locked("ansible_user: root\ngpuprov: {c: 1}\n"),
            "password": "hunter2\n",
        }
    )
    (host,) = load(["inventory.yaml"], vault_password_files=["password"]).hosts
    assert exact(host.values) == exact({"c": 1, "a": "b"})
    assert exact(host.connection) == exact({"ansible_become_password": "hunter3", "ansible_user": "root"})
    assert host.origins[("a",)] == Origin("inventory.yaml", 14, 12)


def test_vault_password_script_and_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    lay({"inventory.yaml": GOOD, "group_vars/all.yml": locked("ansible_user: root\n")})
    lay({"password.sh": "#!/bin/sh\necho hunter2\n"})
    assert (
        load(["inventory.yaml"], vault_password_files=["prod@password.sh"]).hosts[0].connection["ansible_user"]
        == "root"
    )
    monkeypatch.setattr("getpass.getpass", lambda _prompt: "hunter2")
    assert load(["inventory.yaml"], ask_vault_pass=True).hosts[0].connection["ansible_user"] == "root"


def test_connection_variables() -> None:
    text = (
        "all:\n  vars: {ansible_user: root, ansible_ssh_common_args: '-J jump', other: 1}\n"
        "  children:\n    a:\n      vars: {ansible_user: admin, ansible_become: true}\n"
        "      hosts:\n        'gpu01:2222': {ansible_connection: podman, ansible_podman_extra_args: '--remote'}\n"
    )
    assert exact(read(text)["gpu01"].connection) == exact(
        {
            "ansible_user": "admin",
            "ansible_ssh_common_args": "-J jump",
            "ansible_become": True,
            "ansible_port": 2222,
            "ansible_connection": "podman",
            "ansible_podman_extra_args": "--remote",
        }
    )


def test_ranges_share_one_object() -> None:
    hosts = list(
        read('all:\n  vars: {gpuprov: {a: 1}}\n  hosts: {"gpu[001:100]": {gpuprov: {b: 1}}, x: {}}\n').values()
    )
    assert [host.name for host in hosts][:2] == ["gpu001", "gpu002"]
    assert len({id(host.values) for host in hosts}) == len({id(host.origins) for host in hosts}) == 2
    assert hosts[7].values == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    "anchor",
    [
        'x: &d {nvidia_driver: {version: "580"}}',
        'x: &d\n  nvidia_driver: {version: "580"}',
        '"x": &d {nvidia_driver: {version: "580"}}',
    ],
)
def test_a_key_of_the_top_that_holds_an_anchor_is_a_warning(anchor: str) -> None:
    """As Ansible has it, which skips what is in it."""
    lay({"inventory.yaml": f"{anchor}\nall:\n  hosts:\n    a: {{gpuprov: {{<<: *d, persistence: {{}}}}}}\n"})
    found = load(["inventory.yaml"])
    assert [str(warning) for warning in found.warnings] == [
        'inventory.yaml:1:1: warning: "x" holds an anchor, and Ansible takes it for a group without hosts; under '
        'vars of a group it is a variable: "all: {vars: {x: ...}}"'
    ]
    (host,) = found.hosts
    assert exact(host.values) == exact({"nvidia_driver": {"version": "580"}, "persistence": {}})


def test_warnings(capfd: pytest.CaptureFixture[str]) -> None:
    lay({"inventory.yaml": "gpu-nodes:\n  vars: {gpu_prov: {}}\n  hosts: {gpu01: {}, gpu-nodes: {}}\n"})
    assert [str(warning) for warning in load(["inventory.yaml"]).warnings] == [
        'warning: "gpu-nodes" is a group and a host',
        'inventory.yaml:2:10: warning: the variable "gpu_prov" is not read; did you mean "gpuprov"?',
    ]
    assert capfd.readouterr() == ("", "")


def test_default_sources(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    monkeypatch.setenv("HOME", str(here / "home"))
    for name in ("GPUPROV_INVENTORY", "ANSIBLE_INVENTORY", "ANSIBLE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(GpuprovError) as caught:
        find_default_sources()
    assert str(caught.value) == (
        "no inventory was named\nfix: write its file at the end of the command, set GPUPROV_INVENTORY,"
        " write ./inventory.yaml, or set `inventory` under [defaults] in ansible.cfg (or ANSIBLE_INVENTORY)"
    )
    lay({"ansible.cfg": "[defaults]\ninventory = prod/hosts, more ; both\n"})
    assert find_default_sources() == ("prod/hosts", "more")
    monkeypatch.setenv("ANSIBLE_INVENTORY", "elsewhere")
    assert find_default_sources() == ("elsewhere",)
    lay({"inventory.yaml": GOOD})
    assert find_default_sources() == ("inventory.yaml",)
    monkeypatch.setenv("GPUPROV_INVENTORY", "one:two")
    assert find_default_sources() == ("one", "two")
    monkeypatch.setenv("GPUPROV_INVENTORY", "gpu01,")
    assert find_default_sources() == ("gpu01,",)
