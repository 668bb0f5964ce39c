"""A template is evaluated once for all hosts that give it the same values, and what comes out is what Ansible itself
makes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuprov.inventory import load
from gpuprov.inventory.reads import list_names
from gpuprov.inventory.templates import Templates
from gpuprov.spec.problem import Origin, SpecError
from tests.inventory.files import lay

INVENTORY = """\
all:
  vars:
    domain: "{{ site }}.example.org"
    site: a
    gpuprov:
      x: "{{ domain }}"
      y: "{{ rail | default('none') }}/{{ nested.deep }}"
    nested: {deep: "{{ color }}-{{ site }}"}
    color: red
    ansible_host: "{{ inventory_hostname }}.{{ domain }}"
  children:
    one:
      hosts: {"gpu[01:10]": {rail: 1}, gpu11: {rail: 2}, gpu12: {color: blue}, gpu13: {color: "{{ site }}{{ rail }}", rail: 7}}
    two:
      vars: {site: b}
      hosts:
        gpu[21:30]: {}
        gpu31: {nested: {deep: own}}
        gpu32: {site: "{{ color }}", color: green}
        gpu33: {gpuprov: {x: "{{ site }}"}}
"""


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The templates that were evaluated, each as often as it was."""
    monkeypatch.chdir(tmp_path)
    seen: list[str] = []
    real = Templates.evaluate

    def counted(self: Templates, value: Any, *rest: Any) -> Any:
        seen.append(str(value))
        return real(self, value, *rest)

    monkeypatch.setattr(Templates, "evaluate", counted)
    return seen


@pytest.mark.install
def test_results_are_ansibles_own(evaluated: list[str]) -> None:
    lay({"inventory.yaml": INVENTORY, "host_vars/gpu03.yml": "color: black\n", "group_vars/two.yml": "rail: 5\n"})
    wanted = _from_ansible("inventory.yaml")
    hosts = load(["inventory.yaml"]).hosts
    assert len(hosts) == 26
    for host in hosts:
        if host.name == "gpu33":  # Ansible replaces the mapping, gpuprov merges it
            assert host.values == {"x": "b", "y": "5/red-b"}
            continue
        assert host.values == wanted[host.name]["gpuprov"], host.name
        assert host.connection["ansible_host"] == wanted[host.name]["ansible_host"]


def test_once_for_hosts_with_the_same_values(evaluated: list[str]) -> None:
    lay({"inventory.yaml": INVENTORY})
    hosts = {host.name: host for host in load(["inventory.yaml"]).hosts}
    assert evaluated.count("{{ domain }}") == 4 - 1  # groups one and two, gpu32; gpu33 has its own instead
    assert hosts["gpu01"].values is hosts["gpu09"].values
    assert hosts["gpu01"].values is not hosts["gpu21"].values
    assert hosts["gpu11"].values["y"] == "2/red-a"


@pytest.mark.install
@pytest.mark.parametrize(
    "template",
    [
        "{{ 1000000 | random }}",
        "{{ lookup('pipe', 'cat /proc/sys/kernel/random/uuid') }}",
        "{{ query('pipe', 'cat /proc/sys/kernel/random/uuid') }}",
        "{{ [1000000] | map('random') | list }}",
        "{{ hostvars[inventory_hostname].own }}",
        "#jinja2:variable_start_string:'[[', variable_end_string:']]'\n[[ own ]]",
        "{{ hidden }}",
    ],
)
def test_what_may_differ_is_asked_for_each_host(evaluated: list[str], template: str) -> None:
    lay(
        {
            "inventory.json": json.dumps(
                {
                    "all": {
                        "vars": {"gpuprov": {"x": template}, "hidden": "{{ hostvars[inventory_hostname].own }}"},
                        "hosts": {f"gpu{number:02}": {"own": number} for number in range(10)},
                    }
                }
            )
        }
    )
    hosts = load(["inventory.json"]).hosts
    assert len(evaluated) == 10
    assert len({str(host.values["x"]) for host in hosts}) > 1


def test_a_value_of_a_host_keeps_its_own_place(evaluated: list[str]) -> None:
    text = 'all:\n  vars: {gpuprov: {x: "{{ rail }}"}}\n  hosts:\n    gpu01: {rail: a}\n    gpu02: {rail: a}\n'
    lay({"inventory.yaml": text})
    first, second = load(["inventory.yaml"]).hosts
    assert first.origins[("x",)] == Origin("inventory.yaml", 4, 19)
    assert second.origins[("x",)] == Origin("inventory.yaml", 5, 19)


def test_a_template_without_a_value_is_told_of_every_host(evaluated: list[str]) -> None:
    lay(
        {
            "inventory.yaml": 'all:\n  vars: {gpuprov: {x: "{{ rail }}"}}\n  hosts: {gpu01: {}, gpu02: {rail: 1}, '
            "gpu03: {}}\n"
        }
    )
    with pytest.raises(SpecError) as caught:
        load(["inventory.yaml"])
    (problem,) = caught.value.problems
    assert problem.hosts == ("gpu01", "gpu03")


def test_a_secret_in_a_template_is_shared_by_nobody_else(evaluated: list[str]) -> None:
    from tests.inventory.files import indented, locked

    secrets = "".join(f"    gpu0{n}:\n      word: !vault |\n{indented(locked(text), 8)}" for n, text in enumerate("ab"))
    lay(
        {
            "inventory.yaml": f'all:\n  vars: {{gpuprov: {{x: "{{{{ word }}}}-x"}}}}\n  hosts:\n{secrets}',
            "key": "hunter2\n",
        }
    )
    assert [host.values["x"] for host in load(["inventory.yaml"], vault_password_files=["key"]).hosts] == ["a-x", "b-x"]


FACTS = """
from ansible.plugins.loader import cache_loader, init_plugin_loader
init_plugin_loader()
facts = cache_loader.get("jsonfile")
for name in ("gpu00", "gpu01"):
    facts.set(name, {"ansible_machine": name + "'s"})
from gpuprov.inventory import load
print([host.values["x"] for host in load(["inventory.yaml"]).hosts])
"""


@pytest.mark.install
def test_facts_that_a_cache_holds_are_each_hosts_own(evaluated: list[str]) -> None:
    lay(
        {
            "inventory.yaml": 'all:\n  vars: {gpuprov: {x: "{{ ansible_facts.machine }}"}}\n  hosts: {gpu00: {}, '
            "gpu01: {}}\n"
        }
    )
    settings = {"ANSIBLE_CACHE_PLUGIN": "jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": "facts"}
    command = [sys.executable, "-c", FACTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | settings)
    assert done.stdout.strip() == """["gpu00's", "gpu01's"]""", done.stderr


def test_what_a_template_names() -> None:
    assert list_names("{{ a.b | default(c) }}{% for d in range(2) %}{{ d }}{% endfor %}") == frozenset({"a", "c", "d"})
    assert list_names("{{ a") is None
    assert list_names("{{ now() }}") is None
    assert list_names("{{ a | shuffle }}") is None
    assert list_names("plain") == frozenset()


def _from_ansible(source: str) -> dict[str, Any]:
    """Every host's variables, resolved by Ansible."""
    tool = Path(sys.executable).parent / "ansible"
    given = "msg={{ {'gpuprov': gpuprov, 'ansible_host': ansible_host} }}"
    words = ["-i", source, "-c", "local", "-m", "ansible.builtin.debug", "-a", given, "-o"]
    done = subprocess.run([tool, "all", *words], capture_output=True, text=True, check=True)
    rows = (line.partition(" | SUCCESS => ") for line in done.stdout.splitlines())
    return {name: json.loads(answer)["msg"] for name, _, answer in rows}
