"""Connection variables -> the command line, as Ansible would read them."""

from __future__ import annotations

import shlex
import subprocess
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from gpuprov.core.errors import GpuprovError
from gpuprov.facts.collect.command import build, remote_command, ssh_arguments
from gpuprov.facts.collect.settings import _OPTIONS as OPTIONS
from gpuprov.facts.collect.settings import Settings
from gpuprov.spec.model import RawHost
from tests.here import program
from tests.rows import run_each


def settings(**connection: object) -> Settings:
    return Settings(RawHost(name="gpu01", connection=connection))


def words(**connection: object) -> str:
    return shlex.join(build(settings(**connection), "true").argv)


def test_a_bare_host_leaves_everything_to_the_users_ssh_configuration() -> None:
    assert words() == (
        "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15 -o ServerAliveCountMax=6 "
        """-- gpu01 'sh -c '"'"'eval "$(cat)"'"'"''"""
    )


def test_ssh_variables() -> None:
    line = words(
        ansible_host="192.0.2.7",
        ansible_port=2222,
        ansible_user="ops",
        ansible_ssh_private_key_file="/keys/my key",
        ansible_ssh_common_args="-o ProxyJump=bastion",
        ansible_ssh_extra_args="-o ConnectTimeout=3",
    )
    assert "-o Port=2222 -o User=ops" in line
    assert "'IdentityFile=\"/keys/my key\"'" in line
    assert (
        "-o ProxyJump=bastion -o ConnectTimeout=3 -o ServerAliveInterval=15 -o ServerAliveCountMax=6 -- 192.0.2.7 "
        in line
    )
    assert line.count("ConnectTimeout") == 1


def test_security_settings_are_not_weakened_unless_the_user_did() -> None:
    assert "StrictHostKeyChecking" not in words()
    assert "-o StrictHostKeyChecking=no" in words(ansible_ssh_host_key_checking="False")


def test_control_path_only_where_ansible_would_use_one(tmp_path: Path) -> None:
    assert "ControlPath" not in words()
    shared = words(
        ansible_ssh_args="-o ControlMaster=auto -o ControlPersist=60s", ansible_control_path_dir=str(tmp_path)
    )
    assert f'ControlPath="{tmp_path}/' in shared
    own = words(ansible_ssh_args="-o ControlMaster=auto -o ControlPersist=60s -o ControlPath=/tmp/mine")
    assert own.count("ControlPath") == 1


def test_the_order_is_variable_environment_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "own.cfg"
    config.write_text(
        "[defaults]\nremote_user = ini ; comment\nremote_port = 23\n[privilege_escalation]\nbecome = True\n"
    )
    monkeypatch.setenv("ANSIBLE_CONFIG", str(config))
    assert settings().text("user") == "ini"
    assert settings().text("port") == "23"
    assert settings().sudo
    monkeypatch.setenv("ANSIBLE_REMOTE_USER", "env")
    assert settings().text("user") == "env"
    assert settings(ansible_user="var").text("user") == "var"


def test_a_broken_config_or_quote_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(GpuprovError, match='ansible_ssh_common_args is "-o \'x": No closing quotation'):
        ssh_arguments(settings(ansible_ssh_common_args="-o 'x"))
    config = tmp_path / "own.cfg"
    config.write_text("remote_user = ini\n")
    monkeypatch.setenv("ANSIBLE_CONFIG", str(config))
    with pytest.raises(GpuprovError, match=r"own\.cfg cannot be read"):
        settings().text("user")


def test_become() -> None:
    assert "sudo -H -u root -n -- /bin/sh" in words(ansible_become=True)
    assert "sudo" not in words(ansible_become="yes", ansible_user="root")
    assert "sudo -H -u gpu -n" in words(ansible_become=True, ansible_become_user="gpu")


def test_a_become_password_is_in_no_argument() -> None:
    command = build(settings(ansible_become=True, ansible_become_password="s3'cret"), "echo hi")
    assert "s3" not in shlex.join(command.argv)
    assert b"sudo -H -u root -S -p '' -- /bin/sh -c" in command.stdin


@run_each("size", [10, 400_000])
def test_a_script_of_any_size_goes_through_sudo_with_a_password(size: int, tmp_path: Path) -> None:
    """What a capture asks is longer than one argument may be. A sudo that needs no password must not run it, and one
    line is all that a wrong one has."""
    sudo = (
        'while [ "$1" != -- ]; do shift; done; shift\nread -r word; [ "$word" = "s3\'cret" ] || { cat; exit 1; '
        '}\nexec "$@"\n'
    )
    program(tmp_path, "sudo", sudo)
    long = "\u00fc" * size
    script = f": '{long}'\nprintf '%s %s' \"it's\" $((6 * 7))\nexit 3\n"
    for password, said in (("s3'cret", (b"it's 42", 3)), ("wrong", (b"", 1))):
        words_, fed = remote_command(settings(ansible_become=True, ansible_become_password=password), script)
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(words_, input=fed, env=env, capture_output=True, check=False)
        assert (done.stdout, done.returncode) == said


@run_each(
    ("connection", "kind"),
    [
        ({}, "ssh"),
        ({"ansible_connection": "smart"}, "ssh"),
        ({"ansible_connection": "ansible.builtin.ssh"}, "ssh"),
        ({"ansible_connection": "paramiko"}, "paramiko"),
        ({"ansible_password": "x"}, "paramiko"),
        ({"ansible_connection": "ansible.builtin.local"}, "local"),
        ({"ansible_connection": "containers.podman.podman"}, "podman"),
        ({"ansible_connection": "community.docker.docker"}, "docker"),
        ({"ansible_connection": "community.general.lxd"}, "ansible"),
        ({"ansible_private_key": "-----BEGIN"}, "ansible"),
        ({"ansible_ssh_private_key": "-----BEGIN", "ansible_password": "x"}, "ansible"),
        ({"ansible_ssh_private_key_file": "/key", "ansible_private_key_passphrase": "x"}, "ansible"),
        ({"ansible_password": "x", "ansible_sshpass_prompt": "PIN"}, "ansible"),
        ({"ansible_ssh_pkcs11_provider": "/lib/opensc.so"}, "ansible"),
        ({"ansible_become": True, "ansible_become_method": "community.general.doas"}, "ansible"),
    ],
)
def test_kind(connection: dict[str, object], kind: str) -> None:
    assert settings(**connection).kind == kind


@pytest.mark.install
def test_ansible_imports_nothing_from_the_folder_that_one_is_in(tmp_path: Path) -> None:
    """Which may be /tmp, or a checkout of somebody else's."""
    (tmp_path / "jinja2.py").write_text("raise SystemExit('of this folder')")
    argv = build(settings(ansible_connection="community.general.lxd"), "true").argv
    words_ = [*argv[: argv.index("adhoc") + 1], "--version"]
    done = subprocess.run(words_, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_containers() -> None:
    assert words(ansible_connection="podman").startswith("podman exec -i gpu01 sh -c")
    line = words(
        ansible_connection="docker", ansible_host="box", ansible_user="ops", ansible_docker_extra_args="-H tcp://x"
    )
    assert line.startswith("docker -H tcp://x exec -i -u ops box sh -c")


SSH = {
    "port": "port",
    "user": "remote_user",
    "password": "password",
    "key": "private_key_file",
    "ssh_args": "ssh_args",
    "common_args": "ssh_common_args",
    "extra_args": "ssh_extra_args",
    "ssh": "ssh_executable",
    "control_path": "control_path",
    "control_path_dir": "control_path_dir",
    "host_key_checking": "host_key_checking",
    "private_key": "private_key",
    "private_key_passphrase": "private_key_passphrase",
    "sshpass_prompt": "sshpass_prompt",
    "pkcs11_provider": "pkcs11_provider",
}
SUDO = {"become_user": "become_user", "become_exe": "become_exe", "become_password": "become_pass"}


@run_each(("plugin", "names"), [("connection.ssh", SSH), ("become.sudo", SUDO)])
def test_options_are_set_by_what_the_installed_ansible_reads_for_them_and_the_same_one_wins(
    plugin: str, names: dict[str, str]
) -> None:
    """Reproduced: sudo's own variables were not read, so that a check became root where apply became another user."""
    theirs = yaml.safe_load(import_module(f"ansible.plugins.{plugin}").DOCUMENTATION)["options"]
    for mine, name in names.items():
        option = theirs[name]
        variables = tuple(one["name"] for one in reversed(option.get("vars", ())))
        environment = tuple(one["name"] for one in reversed(option.get("env", ())))
        config = tuple(f"{one['section']}.{one['key']}" for one in reversed(option.get("ini", ())))
        assert OPTIONS[mine] == (variables, environment, config), mine


def test_the_sudo_of_ansible_and_ours_become_the_same_user(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"ansible_become": True, "ansible_become_user": "root", "ansible_sudo_user": "svc", "ansible_sudo_pass": "a"}
    assert (settings(**told).become_user, settings(**told).text("become_password")) == ("svc", "a")
    monkeypatch.setenv("ANSIBLE_BECOME_PASS", "from the environment")
    assert settings(ansible_become=True).text("become_password") == "from the environment"
