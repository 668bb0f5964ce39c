"""Nothing that reaches real hosts is used: neither the inventory's variables, nor the user's environment and
configuration."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuprov.facts.collect.command import build
from gpuprov.facts.collect.settings import Settings
from gpuprov.plan.playbook import environment
from gpuprov.rehearse.connection import ignore_user_settings, pair_of
from gpuprov.rehearse.model import Options
from gpuprov.rehearse.shape import plan_shapes
from gpuprov.simulate.host import SimulatedHost
from gpuprov.spec.model import RawHost
from tests.rehearse.stage import pair

REAL = {
    "ansible_host": "192.0.2.17",
    "ansible_ssh_host": "192.0.2.17",
    "ansible_port": 2222,
    "ansible_user": "admin",
    "ansible_password": "secret",
    "ansible_connection": "paramiko",
    "ansible_ssh_executable": "/opt/evil/ssh",
    "ansible_ssh_args": "-o ProxyCommand='touch /proxy'",
    "ansible_ssh_common_args": "-o ProxyJump=bastion",
    "ansible_ssh_extra_args": "-o ProxyJump=bastion",
    "ansible_ssh_private_key_file": "/home/admin/.ssh/id_ed25519",
    "ansible_become_method": "su",
    "ansible_become_exe": "/opt/evil/sudo",
    "ansible_become_password": "secret",
    "ansible_control_path": "/evil",
    "ansible_some_plugin_option": "evil",
    "host_free_space": {"kernel": {"path": "/boot", "mib": 200}},
}
SIMULATED = SimulatedHost("re-1f3a-gpu01", "10.88.0.5", 22, "gpuadmin", "/cache/id_ed25519")
EVIL = ("192.0.2.17", "2222", "admin@", "secret", "evil", "bastion", "proxycommand", "/proxy", "/home/admin")


def rehearsed() -> RawHost:
    (shape,) = plan_shapes([pair("gpu01", dict(REAL))], Options(), "1f3a")
    raw, spec = pair_of(shape, SIMULATED)
    assert spec.name == raw.name == SIMULATED.name
    return raw


def test_no_connection_variable_of_the_real_host_is_left() -> None:
    connection = rehearsed().connection
    told = str(connection).lower()
    assert not [word for word in EVIL if word in told]
    assert connection["ansible_host"] == "10.88.0.5"
    assert connection["host_free_space"] == REAL["host_free_space"]  # no connection variable: the roles read it


def test_neither_environment_nor_configuration_of_the_user_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ansible.cfg").write_text(
        "[defaults]\nremote_user = evil\ntransport = paramiko\nprivate_key_file = /evil\n"
        "[ssh_connection]\nssh_args = -o ProxyCommand=evil\nssh_executable = evil\ncontrol_path = /evil\n"
        "[privilege_escalation]\nbecome_exe = evil\nbecome_method = evil\n"
    )
    for name in ("SSH_ARGS", "SSH_EXTRA_ARGS", "SSH_EXECUTABLE", "BECOME_EXE", "BECOME_USER", "PRIVATE_KEY"):
        monkeypatch.setenv(f"ANSIBLE_{name}", "evil")
    monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path / "ansible.cfg"))
    raw = rehearsed()
    with ignore_user_settings():
        command = build(Settings(raw), "true")
        given = environment(tmp_path, {**os.environ, "ANSIBLE_HOST_KEY_CHECKING": "False"})
    words = " ".join(command.argv)
    assert command.argv[0] == "ssh"
    assert "-F none" in words
    assert not [word for word in EVIL if word in words.lower()], words
    assert "evil" not in str(given)
    assert os.environ["ANSIBLE_SSH_ARGS"] == "evil"
    assert os.environ["ANSIBLE_CONFIG"] == str(tmp_path / "ansible.cfg")
