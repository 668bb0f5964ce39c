"""What says how a host is reached is a word: no option, no shell, no line, whatever cloud it came from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuprov.cli.options import InventoryOptions, raw_hosts
from gpuprov.fleet.specs import judge, load_fleet
from gpuprov.spec.connection import find_unusable
from gpuprov.spec.model import RawHost
from gpuprov.spec.problem import SpecError
from tests.taint.canary import Nest

REFUSED: dict[str, list[object]] = {
    "ansible_host": ["-oProxyCommand=id", "a b", "$(id)", "`id`", "a;id", "a|id", "a\\b", "a\nb", "{{ x }}", "a'b"],
    "ansible_ssh_host": ["-v"],
    "ansible_user": ["-oProxyCommand=id", "root;id", "`id`", "{{ x }}", "root\n"],
    "ansible_become_user": ["--help"],
    "ansible_ssh_common_args": ["-o A=b\nProxyCommand id", "\x1b[2J"],
    "ansible_become_password": ["a\0b"],
    "container_toolkit_repository": ["https://example.org\ndeb [trusted=yes]"],
    "ansible_x') }}{{ lookup('ansible.builtin.pipe', 'id') }}": ["x"],
    "ansible_port": ["22x", 99999, 0, True, 2222.0, -1, "٢٢", "ssh"],
    "ansible_ssh_port": ["0"],
    "host_kubernetes_node": ["--kubeconfig=/tmp/x", "a b", "A"],
    "simulated_host": [{"gpus": ["a\x1bb"]}, {"a\nb": 1}],
}
TAKEN: dict[str, list[object]] = {
    "ansible_host": [
        "gpu01",
        "192.0.2.1",
        "2001:db8::1",
        "fe80::1%eth0",
        "i-0abc.eu-west-1",
        "/srv/chroot",
        None,
        "größe",
    ],
    "ansible_user": ["root", "first.last", "DOMAIN\\admin", "a@example.org", "svc$"],
    "ansible_ssh_common_args": ["-o ProxyCommand='ssh -W %h:%p bastion' -J a,b", "{{ x }}"],
    "ansible_become_password": ["{{ $(x) `y`\n", "-"],
    "ansible_private_key": ["-----BEGIN\nx\n-----END\n"],
    "host_kubernetes_node": ["", "gpu-01.example.org"],
    "ansible_port": [22, "22", 65535, None, ""],
    "ansible_become": [True],
}


def complaints(name: str, value: object) -> list[str]:
    return [str(problem) for problem in find_unusable(RawHost(name="gpu01", connection={name: value}))]


def test_what_is_refused() -> None:
    for name, values in REFUSED.items():
        for value in values:
            (told,) = complaints(name, value)
            assert told.startswith("gpu01: ")
            assert told.isprintable()
    assert complaints("ansible_host", "-oProxyCommand=id") == [
        'gpu01: ansible_host is "-oProxyCommand=id"; allowed: a name or an address, without spaces and characters '
        "of a shell"
    ]
    assert complaints("ansible_become_password", "hunter2\0") == [
        "gpu01: ansible_become_password has a NUL character; give it as text"
    ]


def test_what_is_taken() -> None:
    for name, values in TAKEN.items():
        for value in values:
            assert complaints(name, value) == [], (name, value)


def test_each_is_placed_in_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("group_vars").mkdir()
    Path("group_vars/all.yml").write_text("ansible_user: -x\ngpuprov: {nouveau: {}}\n")
    Path("hosts.ini").write_text("[a]\ngpu01 ansible_host=me@192.0.2.1 ansible_port=22x\n")
    with pytest.raises(SpecError) as caught:
        load_fleet(["hosts.ini"], cache=False)
    assert str(caught.value).splitlines() == [
        'group_vars/all.yml:1:15: ansible_user is "-x"; allowed: a user\'s name, without characters of a shell',
        'hosts.ini:2:1: ansible_host is "me@192.0.2.1"; write ansible_host: 192.0.2.1 and ansible_user: me',
        'hosts.ini:2:1: ansible_port is "22x"; allowed: a number from 1 to 65535',
    ]


def test_two_names_of_one_machine_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hosts = {
        "gpu1": {"ansible_host": "192.0.2.1"},
        "gpu1.example.org": {"ansible_host": "192.0.2.1", "ansible_user": "ops"},
        "gpu2": None,
        "rack2": {"ansible_ssh_host": "GPU2", "ansible_connection": "ansible.builtin.ssh"},
        "port": {"ansible_host": "192.0.2.1", "ansible_port": 2222},
        "behind": {"ansible_host": "192.0.2.1", "ansible_ssh_common_args": "-J jump"},
        "gpu3": {"ansible_host": "gpu3.example.org."},
        "gpu3-ib": {"ansible_port": 22, "ansible_ssh_common_args": "-o HostName=gpu3.example.org"},
        "gpu4": {"ansible_host": "2001:db8::4"},
        "gpu4-v6": {"ansible_host": "[2001:DB8:0::4]"},
        **{f"leaf{number}": {"ansible_ssh_common_args": "-o HostName=%h.cluster"} for number in (1, 2)},
        **{f"here{number}": {"ansible_connection": "local"} for number in (1, 2)},
    }
    groups = {
        "gpus": {"vars": {"gpuprov": {"nouveau": {}}}, "hosts": hosts},
        "others": {"hosts": {"no_spec": {"ansible_host": "192.0.2.1"}}},
    }
    (tmp_path / "inventory.yaml").write_text(json.dumps({"all": {"children": groups}}))
    warnings = load_fleet(["inventory.yaml"]).warnings
    pairs = [("gpu1", "gpu1.example.org"), ("gpu2", "rack2"), ("gpu3", "gpu3-ib"), ("gpu4", "gpu4-v6")]
    assert [one.hosts for one in warnings] == pairs
    assert warnings[0].message.startswith(
        "gpu1, gpu1.example.org are one machine, which apply works on by the name gpu1"
    )


def test_every_canary_is_refused_as_an_address(tmp_path: Path) -> None:
    nest = Nest(tmp_path / "nest")
    passed = {name: [c for c in nest.all() if not complaints(name, c)] for name in ("ansible_host", "ansible_user")}
    # A path is only a name to ssh; and to no program is "!" a character of a shell.
    assert [one[:4] for one in passed["ansible_host"]] == ["/../"]
    assert [one[:4] for one in passed["ansible_user"]] == ["!tou", "/../"]


def test_every_command_refuses_them(tmp_path: Path) -> None:
    """Those that need a spec, and those that take any host."""
    raw = RawHost(name="gpu01", values={"nouveau": {}}, connection={"ansible_host": "-v"})
    with pytest.raises(SpecError, match='gpu01: ansible_host is "-v"'):
        judge([raw])
    file = tmp_path / "inventory.yaml"
    file.write_text('all:\n  hosts:\n    gpu01: {ansible_host: "-v"}\n    gpu02: {ansible_user: "a;b"}\n')
    with pytest.raises(SpecError) as caught:
        raw_hosts(InventoryOptions((str(file),), no_cache=True))
    assert [problem.hosts for problem in caught.value.problems] == [("gpu01",), ("gpu02",)]
    with pytest.raises(SpecError, match="no host has a gpuprov spec"):
        load_fleet([str(file)], cache=False)  # a host that is not managed may be reached by other tools in other ways
