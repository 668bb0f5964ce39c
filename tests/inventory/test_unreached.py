"""A spec that was written and reaches no host is named with its place."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gpuprov.fleet.specs import load_fleet
from gpuprov.inventory import load
from gpuprov.spec.problem import SpecError

SPEC = "gpuprov: {persistence: {}}"
HOSTS = "all: {children: {training: {hosts: {gpu1: {gpuprov: {persistence: {}}}}}}}\n"
BY_PLUGIN = "plugin: ansible.builtin.constructed\nstrict: false\ngroups: {tall: \"'gpu' in inventory_hostname\"}\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "inventory.yaml") -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)


def told(*sources: str) -> list[str]:
    return [str(problem) for problem in load(sources or ["inventory.yaml"]).warnings]


def refused(*sources: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(sources or ["inventory.yaml"])
    return [str(problem) for problem in caught.value.problems]


def test_a_group_that_has_nothing_but_a_spec(tmp_path: Path) -> None:
    write("all:\n  children:\n    training: {hosts: {gpu1: {}}}\n    trainning:\n      vars:\n        " + SPEC + "\n")
    assert refused() == [
        'inventory.yaml:6:9: the gpuprov of group "trainning" reaches no host: the group has none; did you mean '
        '"training"?'
    ]


def test_of_two_specs_of_one_group_both_are_named() -> None:
    write(HOSTS, "inventory/a.yaml")
    for name in ("b", "c"):
        write(f"spare: {{vars: {{{SPEC}}}}}\n", f"inventory/{name}.yaml")
    assert [line.partition(": ")[0] for line in refused("inventory")] == [
        "inventory/b.yaml:1:16",
        "inventory/c.yaml:1:16",
    ]


@pytest.mark.parametrize("body", ["hosts: {}", "hosts:", "children: {other: {hosts: {}}}"])
def test_a_group_that_is_empty_on_purpose_is_a_warning(body: str) -> None:
    write(f"all:\n  hosts: {{gpu1: {{}}}}\nspare:\n  {body}\n  vars:\n    {SPEC}\n")
    [line] = told()
    assert line.startswith('inventory.yaml:6:5: warning: the gpuprov of group "spare" reaches no host')


def test_a_group_whose_children_have_hosts_reaches_them() -> None:
    write(f"all: {{children: {{top: {{vars: {{{SPEC}}}, children: {{low: {{hosts: {{gpu1: {{}}}}}}}}}}}}}}\n")
    assert not told()


def test_a_group_of_an_ini_inventory_is_a_warning() -> None:
    write('[training]\ngpu1\n[spare]\n[spare:vars]\ngpuprov={"persistence": {}}\n', "hosts.ini")
    [line] = told("hosts.ini")
    assert line.startswith('hosts.ini:5:1: warning: the gpuprov of group "spare" reaches no host')


@pytest.mark.parametrize("section", ["vars", "hosts", "children"])
@pytest.mark.parametrize("inner", [SPEC, "gpu2: {" + SPEC + "}"])
def test_a_section_of_a_group_below_a_host(section: str, inner: str) -> None:
    write(f"all:\n  hosts:\n    gpu1:\n      {section}:\n        {inner}\n")
    [line] = refused()
    assert line.startswith("inventory.yaml:5:")
    assert f'"{section}" below host "gpu1" is a variable, and the gpuprov in it reaches no host' in line


def test_a_section_of_a_group_among_variables() -> None:
    write(HOSTS)
    write(f"vars:\n  {SPEC}\n", "group_vars/all.yml")
    assert refused() == [
        'group_vars/all.yml:2:3: "vars" in a file of variables is a variable, and the gpuprov in it reaches no host;'
        " write gpuprov in place of vars"
    ]
    write(f"all: {{hosts: {{gpu1: {{}}}}, vars: {{vars: {{{SPEC}}}}}}}\n", "other.yaml")
    assert "among the variables of group" in refused("other.yaml")[-1]


def test_variables_that_are_called_like_a_section_and_hold_no_spec_are_a_hosts_own() -> None:
    write(f"all: {{vars: {{{SPEC}}}, hosts: {{gpu1: {{hosts: [a], vars: {{x: 1}}}}}}}}\n")
    assert not told()


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("group_vars/trainning.yml", 'the inventory has no group "trainning"; did you mean "training"?'),
        ("group_vars/trainning/a.yaml", 'the inventory has no group "trainning"; did you mean "training"?'),
        ("group_vars/other", 'the inventory has no group "other"; add the group, or remove the file'),
        ("group_vars/gpu1.yml", "gpu1 is a host, and no group; move it to host_vars"),
        ("host_vars/training.yml", "training is a group, and no host; move it to group_vars"),
        ("host_vars/gpu7.json", 'the inventory has no host "gpu7"; did you mean "gpu1"?'),
        (
            "host_vars/gpu7.example.com",
            'the inventory has no host "gpu7.example.com"; add the host, or remove the file',
        ),
        ("group_vars/ungrouped.yml", 'the group "ungrouped" has no hosts; put hosts into it'),
    ],
)
def test_a_file_of_variables_that_nobody_reads(file: str, why: str) -> None:
    write(HOSTS)
    write(SPEC, file)
    assert told() == [f"{file}:1:1: warning: the gpuprov in this file reaches no host: {why}"]


@pytest.mark.parametrize(
    ("folder", "right"),
    [("groupvars", "group_vars"), ("group-vars", "group_vars"), ("Group_Vars", "group_vars"),
     ("group_var", "group_vars"),
     ("hosts_vars", "host_vars"), ("hostvars", "host_vars")],
)  # fmt: skip
def test_a_folder_of_variables_with_another_name(folder: str, right: str) -> None:
    write(HOSTS)
    write(SPEC, f"{folder}/training.yml")
    write("x: 1", f"{folder}/other.yml")
    assert told() == [
        f"{folder}/training.yml:1:1: warning: the gpuprov in this file reaches no host: Ansible reads {right}, and "
        f"not {folder}; "
        f"rename the folder to {right}"
    ]


def test_a_file_beside_a_folder_of_its_name_is_not_read() -> None:
    write(HOSTS)
    write("x: 1\n", "group_vars/training/a.yml")
    write(f"---\n{SPEC}\n", "group_vars/training.yml")
    [line] = told()
    assert line.startswith("group_vars/training.yml:2:1: warning: ")
    assert "Ansible reads another file or folder of the same name instead" in line


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("group_vars/training.yml", SPEC),
        ("host_vars/gpu1", SPEC),
        ("group_vars/other.yml", "x: 1"),
        ("group_vars/other.yml~", SPEC),
        ("group_vars/.other.yml", SPEC),
        ("group_vars/other.yml", "$ANSIBLE_VAULT;1.1;AES256\n6162\n"),
        ("group_vars/other.yml", "gpuprov: [\n"),
    ],
)
def test_what_says_nothing_wrong_is_not_named(file: str, text: str) -> None:
    write(HOSTS)
    write(text, file)
    assert not told()


def test_where_a_plugin_may_name_more_tomorrow_it_is_a_warning() -> None:
    write(HOSTS, "inventory/a.yaml")
    write(f"spare: {{vars: {{{SPEC}}}}}\n", "inventory/b.yaml")
    write(BY_PLUGIN, "inventory/z.constructed.yml")
    write(SPEC, "inventory/group_vars/tall.yml")
    write(SPEC, "inventory/group_vars/short.yml")
    lines = told("inventory")
    assert [line.partition(":")[0] for line in lines] == ["inventory/b.yaml", "inventory/group_vars/short.yml"]
    assert all(": warning: " in line for line in lines)


def test_a_warning_is_kept_with_the_inventory() -> None:
    write(HOSTS)
    write(SPEC, "group_vars/other.yml")
    assert len(told()) == len(told()) == 1
    Path("group_vars/other.yml").unlink()
    assert not told()


BESIDE = " stands beside gpuprov, which is where capabilities belong; it is not read; "


@pytest.mark.parametrize(
    ("file", "text", "place"),
    [
        ("other.yaml", 'all: {vars: {nvidia_driver: {version: "580"}}}', "other.yaml:1:14"),
        ("other.yaml", "all: {hosts: {gpu1: {nvidia_driver: {}}}}", "other.yaml:1:22"),
        ("other.yaml", "all:\n  vars:\n    nvidia_driver:\n", "other.yaml:3:5"),
        ("group_vars/training.yml", "x: 1\nnvidia_driver: {}\n", "group_vars/training.yml:2:1"),
        ("host_vars/gpu1.yml", "nvidia_driver:\n", "host_vars/gpu1.yml:1:1"),
    ],
)
def test_a_block_beside_gpuprov(file: str, text: str, place: str) -> None:
    write(HOSTS)
    write(text, file)
    sources = ["inventory.yaml", *([file] if file == "other.yaml" else [])]
    assert told(*sources) == [
        f"{place}: warning: nvidia_driver{BESIDE}write it below gpuprov: {{gpuprov: {{nvidia_driver: ...}}}}"
    ]
    assert told(*sources), "a warning is kept with the inventory"


@pytest.mark.parametrize("variable", ["nvidia_driver_version: '580'", "kernel: '6.1'", "health: [1]", "drivers: {}"])
def test_another_variable_is_a_sites_own(variable: str) -> None:
    write(HOSTS)
    write(variable, "group_vars/training.yml")
    assert not told()


def test_where_no_host_has_a_spec_what_is_not_read_is_named() -> None:
    write("all: {hosts: {gpu1: {}}}\n")
    write("nvidia_driver: {}\n", "group_vars/all.yml")
    with pytest.raises(SpecError) as caught:
        load_fleet(["inventory.yaml"])
    first, second = map(str, caught.value.problems)
    assert first.startswith("no host has a gpuprov spec; ")
    assert second.startswith(f"group_vars/all.yml:1:1: warning: nvidia_driver{BESIDE}")


def test_a_name_with_dots_is_not_read() -> None:
    write(
        '[training]\ngpu1 gpuprov.nvidia_driver.version=580\n[training:vars]\ngpuprov={"persistence": {}}\n',
        "hosts.ini",
    )
    [line] = told("hosts.ini")
    assert (
        'the variable "gpuprov.nvidia_driver.version" is not read; write gpuprov={"nvidia_driver": {"version": "..."}}'
        in line
    )
    write(HOSTS)
    write("gpu_prov: {}\n", "group_vars/all.yml")
    [line] = told()
    assert line == 'group_vars/all.yml:1:1: warning: the variable "gpu_prov" is not read; did you mean "gpuprov"?'


@pytest.mark.parametrize(
    "file",
    [
        "group_vars/training.txt",
        "group_vars/training/deep.conf",
        "group_vars/training.yml.j2",
        "host_vars/gpu1.yml.bak",
    ],
)
def test_a_file_of_variables_that_ansible_skips_by_its_end(file: str) -> None:
    write(HOSTS)
    write(SPEC, file)
    assert told() == [
        f"{file}:1:1: warning: the gpuprov in this file reaches no host: Ansible does not read files that end with "
        f"{Path(file).suffix}; allowed: .yml, .yaml, .json, or no end"
    ]


@pytest.mark.parametrize("end", [".old", ".md", "~", ".disabled"])
def test_a_name_that_says_that_it_is_not_read(end: str) -> None:
    write(HOSTS, "inventory/a.yaml")
    write(HOSTS, f"inventory/a.yaml{end}" if end in (".md", "~") else "inventory/b.yaml")
    write(SPEC, f"inventory/group_vars/training.yml{end}")
    assert not told("inventory")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("20-vars.yaml.bak", HOSTS),
        ("30-more.cfg", '[training:vars]\ngpuprov={"persistence": {}}\n'),
        ("below/a.txt", f"all: {{vars: {{{SPEC}}}}}"),
    ],
)
def test_an_inventory_that_ansible_skips_by_its_end(name: str, text: str) -> None:
    write(HOSTS, "inventory/10-hosts.yaml")
    write(HOSTS, "inventory/below/b.yaml")
    write(text, f"inventory/{name}")
    [line] = told("inventory")
    assert line.startswith(f"inventory/{name}: warning: the gpuprov in this file reaches no host: Ansible skips ")
    assert "inventory_ignore_extensions" in line


def test_what_is_skipped_is_what_ansible_is_told_to_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    write(HOSTS, "inventory/10-hosts.yaml")
    write("# no gpuprov: here\n[training]\ngpu1\n", "inventory/30-more.cfg")
    assert not told("inventory")
    write(HOSTS, "inventory/20-old.inv")
    monkeypatch.setattr("ansible.constants.INVENTORY_IGNORE_EXTS", [".inv"])
    monkeypatch.setattr("ansible.inventory.manager.IGNORED", re.compile(rb"\.inv$|\.cfg$"))
    [line] = told("inventory")
    assert "Ansible skips .inv in a folder" in line


def test_a_host_in_meta_of_a_script_that_is_in_no_group() -> None:
    said = {
        "training": {"hosts": ["gpu1"]},
        "_meta": {"hostvars": {"gpu1": {"gpuprov": {"persistence": {}}}, "h9": {"gpuprov": {}}, "h8": {"x": 1}}},
    }
    write(f"#!/bin/sh\necho '{json.dumps(said)}'\n", "hosts.sh")
    Path("hosts.sh").chmod(0o755)
    [line] = told("hosts.sh")
    assert line == (
        'hosts.sh: warning: the gpuprov of host "h9" in _meta of this script reaches nobody: the host is in no group;'
        " have the script list it under hosts of a group"
    )
