"""--extra-vars as Ansible has it: last in the order, and a template as in the inventory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuprov.fleet.specs import load_fleet
from gpuprov.inventory import load
from gpuprov.spec.problem import Origin, SpecError
from tests.inventory.files import lay

INVENTORY = """all:
  vars:
    ansible_user: root
    gpuprov: {nouveau: {}, mig: {mode: "{{ wanted | default('disabled') }}"}}
  hosts: {gpu01: {ansible_user: ops}, gpu02: {}}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lay({"inventory.yaml": INVENTORY, "more.yml": "ansible_user: file\nansible_become_password: hunter2\n"})


def test_they_win_over_the_inventory_and_reach_templates() -> None:
    hosts = load(["inventory.yaml"], extra_vars=["ansible_user=deploy ansible_port=2222", "wanted=enabled"]).hosts
    assert [host.connection["ansible_user"] for host in hosts] == ["deploy", "deploy"]
    assert [host.connection["ansible_port"] for host in hosts] == ["2222", "2222"]
    assert [host.values["mig"] for host in hosts] == [{"mode": "enabled"}] * 2


@pytest.mark.install  # it starts Ansible
def test_what_they_set_is_what_ansible_sets() -> None:
    given = ["-e", "ansible_user=deploy", "-e", '{"ansible_port": 2222}', "-e", "@more.yml"]
    command = [sys.executable, "-m", "ansible", "adhoc", "-i", "inventory.yaml", "all", "-c", "local", *given]
    command += ["-m", "ansible.builtin.debug", "-a", "msg={{ [ansible_user, ansible_port] | to_json }}", "-o"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = [
        json.loads(json.loads(line.partition("=> ")[2])["msg"]) for line in done.stdout.splitlines() if "=> " in line
    ]
    extra = ["ansible_user=deploy", '{"ansible_port": 2222}', "@more.yml"]
    hosts = load(["inventory.yaml"], extra_vars=extra).hosts
    assert told == [[host.connection["ansible_user"], host.connection["ansible_port"]] for host in hosts]


def test_a_template_in_them_is_one() -> None:
    hosts = load(
        ["inventory.yaml"], extra_vars=["ansible_host={{ inventory_hostname }}.example.com", "wanted=enabled"]
    ).hosts
    assert [host.connection["ansible_host"] for host in hosts] == ["gpu01.example.com", "gpu02.example.com"]


def test_the_spec_is_merged_over_each_hosts() -> None:
    (host, _) = load(["inventory.yaml"], extra_vars=["{gpuprov: {mig: {mode: enabled}, persistence: {}}}"]).hosts
    assert host.values == {"nouveau": {}, "mig": {"mode": "enabled"}, "persistence": {}}
    assert host.origins[("mig", "mode")] == Origin("--extra-vars")


def test_they_are_never_kept(tmp_path: Path) -> None:
    load(["inventory.yaml"], extra_vars=["ansible_user=deploy"])
    assert not list(tmp_path.glob("cache/**/*.msgpack"))
    assert load(["inventory.yaml"]).hosts[0].connection["ansible_user"] == "ops"


def test_a_secret_comes_from_a_file() -> None:
    assert (
        load(["inventory.yaml"], extra_vars=["@more.yml"]).hosts[0].connection["ansible_become_password"] == "hunter2"
    )
    with pytest.raises(SpecError, match="ansible_become_password would be seen by every user of this machine"):
        load(["inventory.yaml"], extra_vars=["ansible_become_password=hunter2"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@missing.yml", "missing.yml: "),
        ("{gpuprov: [}", "--extra-vars"),
        ("[1, 2]", "allowed: NAME=VALUE, a mapping in YAML or JSON ("),
        ("gpuprov=nouveau", 'gpuprov is "nouveau"'),
        ("{gpuprov: {mig: {mode: on}}}", "mig.mode"),
        ("{gpuprov: {nuveau: {}}}", 'did you mean "nouveau"?'),
    ],
)
def test_what_cannot_be_is_told(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_fleet(["inventory.yaml"], extra_vars=[text])
    assert said in str(caught.value)


def test_a_variable_of_a_role_is_not_taken_in_silence() -> None:
    with pytest.raises(SpecError) as caught:
        load_fleet(["inventory.yaml"], extra_vars=["nvidia_driver_version=580"])
    assert "worked out from the spec" in str(caught.value)
    assert '-e \'{"gpuprov": {"nvidia_driver": {"version": ...}}}\'' in str(caught.value)
    assert load_fleet(["inventory.yaml"], extra_vars=["nvidia_driver_manage_repository=false"]).pairs
    assert [str(one) for one in load_fleet(["inventory.yaml"], extra_vars=["gpu_prov=1"]).warnings] == [
        'warning: the variable "gpu_prov" is not read; did you mean "gpuprov"?'
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "gpuprov.nouveau.modules=nova_core",
            '--extra-vars: nothing reads "gpuprov.nouveau.modules"; write it as JSON: '
            """-e '{"gpuprov": {"nouveau": {"modules": "nova_core"}}}'""",
        ),
        ("foo", """--extra-vars is "foo"; allowed: NAME=VALUE, a mapping in YAML or JSON (-e '{"gpuprov": {"""),
        ("wanted=enabled foo", '--extra-vars is "foo"; allowed: NAME=VALUE'),
    ],
)
def test_what_nothing_would_read_is_refused(given: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_fleet(["inventory.yaml"], extra_vars=[given])
    [found] = map(str, caught.value.problems)
    assert found.startswith(said)


def test_a_block_beside_gpuprov_is_told() -> None:
    for given in ('{"nvidia_driver": {"version": "580"}}', "nvidia_driver=580"):
        warnings = load_fleet(["inventory.yaml"], extra_vars=[given]).warnings
        assert "nvidia_driver stands beside gpuprov" in "".join(map(str, warnings))


def test_a_mapping_that_spaces_cut_is_offered_whole() -> None:
    with pytest.raises(SpecError) as caught:
        load_fleet(["inventory.yaml"], extra_vars=['gpuprov={"nvidia_driver": {"version": 580}}'])
    assert str(caught.value).endswith("""write -e '{"gpuprov": {"nvidia_driver": {"version": 580}}}'""")
