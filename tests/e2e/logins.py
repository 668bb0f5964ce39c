"""Users of one simulated host, each with one thing that real logins have and that must not matter, or with one true
fault.

All of them have a host name that does not resolve, of which sudo complains.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Any

PASSWORD = "s3 cr'et"
"""Of every user whose sudo asks for one."""
CHATTER = r"""printf 'Linux 0 /usr/bin/python3\nWillkommen auf \304pfel\n'
echo 'gpuprov-begin 00000000-0000-0000-0000-000000000000 0'
echo 'bash: warning: setlocale: LC_ALL: cannot change locale (xx_XX.UTF-8)' >&2
"""
SHIM = '#!/bin/sh\necho "pyenv: ${0##*/}: command not found" >&2\nexit 127\n'


@dataclass(frozen=True)
class Login:
    """A user: login shell, files in the home folder, lines of sudoers and of sshd's configuration, variables of the
    inventory.

    `said` are the words by which a true fault is named; empty where all must be as if nothing were odd.
    """

    name: str
    shell: str = "/bin/bash"
    files: dict[str, str] = field(default_factory=dict)
    sudo: str = "{name} ALL=(ALL) NOPASSWD: ALL"
    sshd: str = ""
    script: str = ""
    variables: dict[str, Any] = field(default_factory=dict)
    said: tuple[str, ...] = ()

    def made(self) -> str:
        """The shell script that makes the user."""
        home = f"/home/{self.name}"
        lines = [f"useradd --create-home --shell {self.shell} {self.name}"]
        lines += [f"printf %s {shlex.quote(f'{self.name}:{PASSWORD}')} | chpasswd"]
        lines += [f"install -d -m 0700 -o {self.name} {home}/.ssh"]
        lines += [f"install -m 0600 -o {self.name} ~gpuadmin/.ssh/authorized_keys {home}/.ssh/"]
        for path, text in self.files.items():
            lines += [f"mkdir -p {home}/{path.rpartition('/')[0]}", f"printf %s {shlex.quote(text)} > {home}/{path}"]
        if self.sudo:
            text = shlex.quote(self.sudo.format(name=self.name) + "\n")
            lines += [f"printf %s {text} > /etc/sudoers.d/{self.name}", f"chmod 0440 /etc/sudoers.d/{self.name}"]
        if self.sshd:
            text = shlex.quote(f"Match User {self.name}\n{self.sshd}\n")
            lines += [f"printf %s {text} >> /etc/ssh/sshd_config"]
        return "\n".join([*lines, f"chown -R {self.name} {home}", self.script])


NOISES = (
    Login("chatter", files={".bashrc": CHATTER}),
    Login("locale", sshd="SetEnv LC_ALL=de_DE.UTF-8 LANGUAGE=de"),
    Login("banner", sshd="Banner /etc/os-release"),
    Login("traced", files={".bashrc": "set -x\nPS4='$(date) + '\n"}),
    Login("tcsh", "/bin/tcsh", {".tcshrc": "echo Linux\nset prompt = '%# '\n"}),
    Login("csh", "/bin/csh", {".cshrc": "echo Linux\nset noclobber\n"}),
    Login("fish", "/usr/bin/fish", {".config/fish/config.fish": "echo Linux\n"}),
    Login("rbash", "/bin/rbash"),
    Login("slow", files={".bashrc": "sleep 2\n"}),
    Login("umask", files={".bashrc": "umask 0777\n"}),
    Login("path", sudo="{name} ALL=(ALL) NOPASSWD: ALL\nDefaults:{name} secure_path=/usr/bin:/bin"),
    Login(
        "shims",
        files={".bashrc": "PATH=/opt/shims:$PATH\n"},
        sudo="{name} ALL=(ALL) NOPASSWD: ALL\nDefaults:{name} !env_reset, !secure_path\n",
    ),
    Login("lecture", sudo="{name} ALL=(ALL) ALL\nDefaults:{name} lecture=always, insults, passprompt_override",
          variables={"ansible_become_password": PASSWORD}),
    Login("pty", sudo="{name} ALL=(ALL) NOPASSWD: ALL\nDefaults:{name} use_pty, log_output"),
)  # fmt: skip

UNREACHED = (
    Login(
        "missing",
        sudo="{name} ALL=(ALL) ALL",
        said=("sudo: a password is required", "set ansible_become_password, or allow missing"),
    ),
    Login(
        "wrong",
        sudo="{name} ALL=(ALL) ALL",
        variables={"ansible_become_password": "no"},
        said=("sudo does not accept ansible_become_password", "correct ansible_become_password"),
    ),
    Login(
        "sudoless",
        sudo="",
        variables={"ansible_become_password": PASSWORD},
        said=("sudoless is not in the sudoers file", "allow sudoless any command as root"),
    ),
    Login(
        "notty",
        sudo="{name} ALL=(ALL) NOPASSWD: ALL\nDefaults:{name} requiretty",
        said=("you must have a tty", "let notty use sudo without a terminal"),
    ),
    Login(
        "nologin", "/usr/sbin/nologin", said=("This account is currently not available", "give nologin a login shell")
    ),
    Login(
        "silent",
        "/bin/false",
        said=("the login shell of silent ended with status 1 without a word", "give silent a login shell"),
    ),
    Login("expired", script="chage -E 0 expired", said=("Your account has expired", "renew the account on the host")),
    Login("sftp", sshd="ForceCommand internal-sftp", said=("sftp connections only", "is bound to one command")),
    Login("shut", "/bin/rbash", {".bashrc": "PATH=$HOME/bin\n"}, said=("sh: command not found", "finds no sh")),
    Login(
        "keyless",
        variables={"ansible_ssh_private_key_file": "/no/such/key"},
        said=("the key file /no/such/key cannot be read: No such file", "correct ansible_ssh_private_key_file"),
    ),
    Login(
        "port",
        variables={"ansible_port": 1},
        said=("ssh: connect to port 1: Connection refused", "check ansible_host"),
    ),
)
"""Named in the same words whoever asks."""
BLOCKED = (
    Login("ordinary", variables={"ansible_become": False}, said=("host.root", "user id", "set ansible_become: true")),
    Login("shim", variables={"ansible_python_interpreter": "/opt/shims/python3.13"},
          said=("host.python", "does not start: /opt/shims/python3.13: pyenv: python3.13: command not found",
                "ansible_python_interpreter: /usr/bin/python3")),
)  # fmt: skip
"""They are reached, and nothing can be applied."""


def setup() -> str:
    """The script that makes all of them on a host."""
    shims = [
        f"printf %s {shlex.quote(SHIM)} > /opt/shims/{name}"
        for name in ("python3", "python3.13", "python3.12", "python3.11")
    ]
    return "\n".join(
        [
            "export DEBIAN_FRONTEND=noninteractive",
            "apt-get -qq update; apt-get -qq install -y --no-install-recommends tcsh fish locales >/dev/null 2>&1",
            "sed -i 's/^# *de_DE.UTF-8/de_DE.UTF-8/' /etc/locale.gen; locale-gen >/dev/null 2>&1",
            "mkdir -p /opt/shims",
            *shims,
            "chmod 755 /opt/shims/*",
            "echo MaxStartups 200 > /etc/ssh/sshd_config.d/many.conf",
            *(login.made() for login in (*NOISES, *UNREACHED, *BLOCKED)),
            "hostname nameless",
            "systemctl reload ssh",
        ]
    )
