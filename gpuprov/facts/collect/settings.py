"""Connection settings of a host, resolved as by Ansible: host variables, then --user and --ask-become-pass, the
environment, ansible.cfg."""

import os
import shlex
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path

from msgspec.structs import replace

from gpuprov.core import chroot
from gpuprov.core.errors import GpuprovError
from gpuprov.spec.model import RawHost

# Of several names for one option the first wins that is set: in Ansible's own lists the last.
_OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "connection": (("ansible_connection",), ("ANSIBLE_TRANSPORT",), ("defaults.transport",)),
    "host": (("ansible_ssh_host", "ansible_host"), (), ()),
    "port": (("ansible_ssh_port", "ansible_port"), ("ANSIBLE_REMOTE_PORT",), ("defaults.remote_port",)),
    "user": (("ansible_ssh_user", "ansible_user"), ("ANSIBLE_REMOTE_USER",), ("defaults.remote_user",)),
    "password": (("ansible_ssh_password", "ansible_ssh_pass", "ansible_password"), (), ()),
    "key": (
        ("ansible_ssh_private_key_file", "ansible_private_key_file"),
        ("ANSIBLE_PRIVATE_KEY_FILE",),
        ("defaults.private_key_file",),
    ),
    "timeout": (
        ("ansible_ssh_timeout", "ansible_timeout"),
        ("ANSIBLE_SSH_TIMEOUT", "ANSIBLE_TIMEOUT"),
        ("ssh_connection.timeout", "defaults.timeout"),
    ),
    "ssh_args": (("ansible_ssh_args",), ("ANSIBLE_SSH_ARGS",), ("ssh_connection.ssh_args",)),
    "common_args": (("ansible_ssh_common_args",), ("ANSIBLE_SSH_COMMON_ARGS",), ("ssh_connection.ssh_common_args",)),
    "extra_args": (("ansible_ssh_extra_args",), ("ANSIBLE_SSH_EXTRA_ARGS",), ("ssh_connection.ssh_extra_args",)),
    "ssh": (("ansible_ssh_executable",), ("ANSIBLE_SSH_EXECUTABLE",), ("ssh_connection.ssh_executable",)),
    "control_path": (("ansible_control_path",), ("ANSIBLE_SSH_CONTROL_PATH",), ("ssh_connection.control_path",)),
    "control_path_dir": (
        ("ansible_control_path_dir",),
        ("ANSIBLE_SSH_CONTROL_PATH_DIR",),
        ("ssh_connection.control_path_dir",),
    ),
    "host_key_checking": (
        ("ansible_ssh_host_key_checking", "ansible_host_key_checking"),
        ("ANSIBLE_SSH_HOST_KEY_CHECKING", "ANSIBLE_HOST_KEY_CHECKING"),
        ("ssh_connection.host_key_checking", "defaults.host_key_checking"),
    ),
    "become": (("ansible_become",), ("ANSIBLE_BECOME",), ("privilege_escalation.become",)),
    "become_user": (
        ("ansible_sudo_user", "ansible_become_user"),
        ("ANSIBLE_SUDO_USER", "ANSIBLE_BECOME_USER"),
        ("sudo_become_plugin.user", "privilege_escalation.become_user"),
    ),
    "become_method": (("ansible_become_method",), ("ANSIBLE_BECOME_METHOD",), ("privilege_escalation.become_method",)),
    "become_exe": (
        ("ansible_sudo_exe", "ansible_become_exe"),
        ("ANSIBLE_SUDO_EXE", "ANSIBLE_BECOME_EXE"),
        ("sudo_become_plugin.executable", "privilege_escalation.become_exe"),
    ),
    "become_password": (
        ("ansible_sudo_pass", "ansible_become_pass", "ansible_become_password"),
        ("ANSIBLE_SUDO_PASS", "ANSIBLE_BECOME_PASS"),
        ("sudo_become_plugin.password",),
    ),
    "private_key": (("ansible_ssh_private_key", "ansible_private_key"), ("ANSIBLE_PRIVATE_KEY",), ()),
    "private_key_passphrase": (
        ("ansible_ssh_private_key_passphrase", "ansible_private_key_passphrase"),
        ("ANSIBLE_PRIVATE_KEY_PASSPHRASE",),
        (),
    ),
    "sshpass_prompt": (("ansible_sshpass_prompt",), ("ANSIBLE_SSHPASS_PROMPT",), ("ssh_connection.sshpass_prompt",)),
    "pkcs11_provider": (
        ("ansible_ssh_pkcs11_provider",),
        ("ANSIBLE_PKCS11_PROVIDER",),
        ("ssh_connection.pkcs11_provider",),
    ),
    "python": (("ansible_python_interpreter",), ("ANSIBLE_PYTHON_INTERPRETER",), ("defaults.interpreter_python",)),
    "shell": (("ansible_shell_executable",), ("ANSIBLE_EXECUTABLE",), ("defaults.executable",)),
    "container_args": (("ansible_podman_extra_args", "ansible_docker_extra_args"), (), ()),
}
_KINDS = {
    "smart": "ssh",
    "ssh": "ssh",
    "paramiko": "paramiko",
    "paramiko_ssh": "paramiko",
    "local": "local",
    chroot.CONNECTION: "chroot",
    "docker": "docker",
    "podman": "podman",
    "community.docker.docker": "docker",
    "containers.podman.podman": "podman",
}
# Options of Ansible's ssh plugin that need more than a call of ssh: agents, prompts, PINs.
_BEYOND_SSH = ("private_key", "private_key_passphrase", "sshpass_prompt", "pkcs11_provider")
_FALSE = ("", "0", "false", "no", "off", "n", "f")


class Settings:
    """One host's connection options."""

    def __init__(self, raw: RawHost) -> None:
        self.name = raw.name
        self.variables = raw.connection

    def text(self, option: str, default: str = "") -> str:
        """Return the option's value as text, `default` if unset."""
        variables, environment, config = _OPTIONS[option]
        for name in variables:
            if self.variables.get(name) not in (None, ""):
                return str(self.variables[name])
        for name in environment:
            if os.environ.get(name):
                return os.environ[name]
        return next((self._config[key] for key in config if self._config.get(key)), default)

    @cached_property
    def _config(self) -> dict[str, str]:
        return ansible_config()

    def flag(self, option: str, default: bool = False) -> bool:
        """Return the option as a boolean, by Ansible's rules."""
        value = self.text(option)
        return value.strip().lower() not in _FALSE if value else default

    def words(self, option: str) -> list[str]:
        """Split the option as a shell would; an unclosed quote is the user's error."""
        value = self.text(option)
        try:
            return shlex.split(value)
        except ValueError as error:
            variable = _OPTIONS[option][0][0]
            raise GpuprovError(f'{self.name}: {variable} is "{value}": {error}', "close the quote") from error

    @property
    def kind(self) -> str:
        """Return ssh, paramiko, local, chroot, podman or docker; `ansible` for everything that only Ansible can do."""
        name = self.text("connection", "ssh").removeprefix("ansible.builtin.")
        kind = _KINDS.get(name, "ansible")
        if kind == "ssh" and any(self.text(option) for option in _BEYOND_SSH):
            kind = "ansible"
        if kind == "ssh" and self.text("password"):
            kind = "paramiko"
        if self.sudo and self.text("become_method", "sudo").removeprefix("ansible.builtin.") != "sudo":
            kind = "ansible"
        return kind

    @property
    def sudo(self) -> bool:
        """True if another user is needed; as in Ansible, not if the login is that user already."""
        if not self.flag("become"):
            return False
        login_user = self.text("user")
        if self.text("connection").removeprefix("ansible.builtin.") == "local":
            import pwd

            login_user = pwd.getpwuid(os.geteuid()).pw_name
        return login_user != self.become_user

    @property
    def become_user(self) -> str:
        return self.text("become_user", "root")

    @property
    def python(self) -> str:
        """The interpreter that the inventory names; empty if it leaves the choice (Ansible's `auto` and similar
        values)."""
        named = self.text("python").strip()
        return "" if named.startswith("auto") else named

    @property
    def host(self) -> str:
        return self.text("host", self.name)

    @property
    def address(self) -> str:
        """The address in messages: `192.0.2.17:22`, `local`, `podman NAME`."""
        if self.kind in ("podman", "docker"):
            return f"{self.kind} {self.host}"
        if self.kind == "local":
            return "local"
        if self.kind == "chroot":
            return f"chroot {self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = self.text("port")
        return f"{host}:{port}" if port else host


def ansible_config() -> dict[str, str]:
    """Read the ansible.cfg that Ansible would use here, as `section.key` -> value."""
    places = [os.environ.get("ANSIBLE_CONFIG", ""), "ansible.cfg", "~/.ansible.cfg", "/etc/ansible/ansible.cfg"]
    for place in places:
        path = Path(place).expanduser() if place else None
        if path and path.is_dir():
            path = path / "ansible.cfg"
        if path and path.is_file() and not (place == "ansible.cfg" and Path.cwd().stat().st_mode & 0o002):
            return _read_config(path.resolve(), path.stat().st_mtime_ns)
    return {}


@lru_cache(maxsize=8)
def _read_config(path: Path, _changed: int) -> dict[str, str]:
    from configparser import ConfigParser, Error

    parser = ConfigParser(interpolation=None, strict=False, inline_comment_prefixes=(";",))
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (Error, OSError, UnicodeDecodeError) as error:
        raise GpuprovError(f"{path} cannot be read: {' '.join(str(error).split())}", "fix or remove it") from error
    return {f"{section}.{key}": parser[section][key] for section in parser.sections() for key in parser[section]}


USER = ("ansible_ssh_user", "ansible_user")
BECOME_PASSWORD = "ansible_become_password"


def as_user(hosts: Sequence[RawHost], user: str) -> tuple[list[RawHost], list[str]]:
    """Return the hosts with this user, and the names of those that set another. Raises GpuprovError if all of them
    do."""
    overriding = [raw.name for raw in hosts if any(raw.connection.get(name) not in (None, "", user) for name in USER)]
    if hosts and len(overriding) == len(hosts):
        raise GpuprovError(
            f"--user {user}: every host names its own user (ansible_user), which wins, as with Ansible",
            f"to override them: -e ansible_user={user}",
        )
    kept = set(overriding)
    return [raw if raw.name in kept else _set_variable(raw, "ansible_user", user) for raw in hosts], overriding


def who_ask(hosts: Sequence[RawHost]) -> list[str]:
    """List the hosts to which --ask-become-pass applies: they become another user, and set no password of their own."""
    return [raw.name for raw in hosts if Settings(raw).sudo and not Settings(raw).text("become_password")]


def with_password(hosts: Sequence[RawHost], password: str) -> list[RawHost]:
    """Return the hosts with a password to become another user."""
    asking = set(who_ask(hosts))
    return [_set_variable(raw, BECOME_PASSWORD, password) if raw.name in asking else raw for raw in hosts]


def _set_variable(raw: RawHost, name: str, value: str) -> RawHost:
    return replace(raw, connection={**raw.connection, name: value})
