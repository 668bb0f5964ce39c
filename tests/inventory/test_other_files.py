"""Files that are not inventories in YAML, addresses that no host can have, and misspelled variables of Ansible's."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.fleet.specs import load_fleet
from gpuprov.inventory.data import correct_connection_name
from gpuprov.spec.connection import correct_address
from gpuprov.spec.problem import SpecError
from tests.rows import run_each


@run_each(
    ("text", "message"),
    [
        ("apiVersion: v1\nkind: Node\n", ":1:1: this is a manifest of Kubernetes (Node), and no inventory; "),
        ("- hosts: all\n  roles: [x]\n", ":1:1: this is a playbook, and no inventory; "),
        ("[gpu]\na01 ansible_host=192.0.2.1\n\n[gpu:vars]\nx=1\n", ":1:1: a section in brackets is INI, "),
        ("# x\nall:\n  hosts: {a: }\n---\nall: {}\n", ":4:1: a second document begins here, and an inventory is one; "),
        ('{"ips": {"sensitive": false, "type": "list", "value": ["192.0.2.1"]}}', ": this is the output of Terraform"),
        ("#cloud-config\nhostname: a\npackages: [b]\n", ":2:1: this is a cloud-init configuration, and no inventory; "),
        ("network: {version: 2, ethernets: {}}\n", ":1:1: this is a netplan configuration, and no inventory; "),
        ("version: v1\nmig-configs: {a: []}\n", ":1:1: this is a configuration of mig-parted, and no inventory; "),
        (
            "driver: {enabled: true}\ntoolkit: {}\n",
            ":1:1: this is a values file of the GPU operator, and no inventory; ",
        ),
        ("nouveau: {}\nmig: {}\n", ":1:1: this is a spec without its hosts, and no inventory; "),
        ("NodeName=gpu[01-08] Gres=gpu:h100:8\n", ":1:1: this is a file of Slurm's, and no inventory; "),
        ('{"_meta": {"hostvars": {}}, "gpu": {"hosts": ["a"]}}', ": this is the output of an inventory script, "),
    ],
)
def test_what_is_no_inventory_is_called_by_its_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as error:
        load_fleet([str(path)], cache=False)
    assert str(error.value).startswith(f"{path}{message}")


def test_groups_may_be_called_as_blocks(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text("mig: {hosts: {a: }}\ntoolkit: {}\nall: {vars: {gpuprov: {nouveau: {}}}}\n", encoding="utf-8")
    assert load_fleet([str(path)], cache=False).pairs


@run_each(
    ("text", "fix"),
    [
        ("https://192.0.2.1", "write 192.0.2.1"),
        ("192.0.2.1:22", "write ansible_host: 192.0.2.1 and ansible_port: 22"),
        ("192.0.2.300", "allowed: four numbers from 0 to 255"),
        ("2001:db8::1", ""),
        ("gpu01.example.org", ""),
    ],
)
def test_an_address_that_no_host_can_have(text: str, fix: str) -> None:
    assert correct_address(text, "ansible_host") == fix


@run_each(
    ("name", "meant"),
    [
        ("ansible_hosts", "ansible_host"),
        ("ansible_sshuser", "ansible_ssh_user"),
        ("ansible_ip", "ansible_host"),
        ("ansible_ssh_port", ""),
        ("ansible_su_pass", ""),
        ("ansible_hostname", ""),
        ("ansible_remote_tmp", ""),
        ("ansible_ssh_transfer_method", ""),
    ],
)
def test_a_misspelled_variable_of_a_connection(name: str, meant: str) -> None:
    assert correct_connection_name(name) == meant


def test_blocks_in_a_list_or_a_text_are_told_how_to_be_a_mapping(tmp_path: Path) -> None:
    for value, fix in (
        ("[{mig: {}}]", "take the dashes out"),
        ("'mig: {}'", "take the quotes out, or the | before it"),
    ):
        path = tmp_path / "inventory.yaml"
        path.write_text(f"all: {{hosts: {{a: }}, vars: {{gpuprov: {value}}}}}", encoding="utf-8")
        with pytest.raises(SpecError) as error:
            load_fleet([str(path)], cache=False)
        assert str(error.value).endswith(f"; {fix}")


def test_an_entry_of_mig_that_later_ones_hide_is_a_warning(tmp_path: Path) -> None:
    first, single = "{gpus: all, instances: {1g.10gb: 1}}", "{gpus: [7], instances: {2g.20gb: 1}}"
    for layout, hidden in (((single, first), True), ((first, single), False)):
        path = tmp_path / "inventory.yaml"
        text = f"all: {{hosts: {{a: }}, vars: {{gpuprov: {{mig: {{layout: [{', '.join(layout)}]}}}}}}}}"
        path.write_text(text, encoding="utf-8")
        warnings = [str(problem) for problem in load_fleet([str(path)], cache=False).warnings]
        assert any("mig.layout[0] has no effect" in warning for warning in warnings) == hidden
