"""Commands for child processes that run a script on a host, from its connection settings.

The script goes to `sh` over standard input, never in an argument: no length limit, no quoting by a login shell that may
be csh or fish, and nothing visible in `ps`. testinfra's backends cannot do that (`testinfra/backend/base.py`:
`run_local` quotes the command into a local shell line, without time-out, and a byte that is not ASCII costs one more
exec to ask for the encoding), so the ssh command line is built here, from the same variables.
"""

import hashlib
import os
import shlex
import sys
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from gpuprov.core import chroot, temporary
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.collect.environment import changes
from gpuprov.facts.collect.reasons import LOGGED_IN
from gpuprov.facts.collect.settings import Settings
from gpuprov.inventory import home
from gpuprov.spec.model import RawHost

# Seconds between keep-alives, and how many may stay unanswered: a host is given up after at most 15 + 15 x 6 = 105
# seconds.
INTERVAL, COUNT = 15, 6
SILENCE = INTERVAL * (COUNT + 1)
_VARIABLES = {
    "common_args": "ansible_ssh_common_args",
    "extra_args": "ansible_ssh_extra_args",
    "ssh_args": "ansible_ssh_args",
}
# Ansible's default for `ssh_args`.
_ANSIBLES_SSH_ARGS = "-C -o ControlMaster=auto -o ControlPersist=60s"


def keep_alive(given: Sequence[str]) -> list[str]:
    """Return ssh's keep-alive options; none if one of the arguments `given` sets them already."""
    if "serveralive" in " ".join(given).lower():
        return []
    return ["-o", f"ServerAliveInterval={INTERVAL}", "-o", f"ServerAliveCountMax={COUNT}"]


def with_keep_alive(raw: RawHost) -> RawHost:
    """Return the host with variables that enable keep-alives in Ansible's ssh; the site's ssh arguments stay. The
    options go into an unset variable: a variable's text may be data that must not become a template, so it is extended
    only if nothing in it looks like one."""
    settings = Settings(raw)
    values = {name: settings.text(name) for name in _VARIABLES}
    options = " ".join(keep_alive(list(values.values())))
    if not options:
        return raw
    place = next((name for name in _VARIABLES if _VARIABLES[name] not in raw.connection), "common_args")
    before = values[place] or (_ANSIBLES_SSH_ARGS if place == "ssh_args" else "")
    if any(mark in before for mark in ("{{", "{%", "{#")):
        return raw
    variables = raw.connection | {_VARIABLES[place]: f"{before} {options}".strip()}
    return msgspec.structs.replace(raw, connection=variables)


# Shell that reads the whole script before its first line runs: after a broken connection nothing runs. Without a
# folder and without `exec`, so that a login shell may be a restricted one (rbash takes neither).
SHELL = ("sh", "-c", 'eval "$(cat)"')
ROOTS_SHELL = ("/bin/sh", "-c", SHELL[2])
# Shell before sudo: sudo's messages are in English, and can be distinguished from the login's output.
BEFORE_SUDO = f"LC_ALL=C; export LC_ALL; echo {LOGGED_IN} >&2"
# Maximum characters of a script in one argument: MAX_ARG_STRLEN of Linux is 128 KiB, and a character has four bytes at
# most.
PART = 30_000
# Maximum number of arguments with a script: all arguments of a program have at least 2 MiB on Linux (a quarter of its
# stack's 8).
PARTS = 30


class Command(msgspec.Struct, frozen=True):
    """A child process: its arguments, standard input, and additional environment; None removes a variable."""

    argv: list[str]
    stdin: bytes
    environment: dict[str, str | None] = {}


def build(settings: Settings, script: str) -> Command:
    """Build the child process that runs `script` on the host as the required user. Not for kind `paramiko`."""
    if settings.kind == "ansible":
        return _build_ansible_command(settings, script)
    remote, stdin = remote_command(settings, script)
    if settings.kind == "local":
        return Command(remote, stdin)
    if settings.kind == "chroot":
        return Command(chroot.command(settings.host, *remote), stdin)
    if settings.kind in ("podman", "docker"):
        user = settings.text("user")
        extra = [*settings.words("container_args"), "exec", "-i", *(["-u", user] if user else [])]
        return Command([settings.kind, *extra, settings.host, *remote], stdin)
    return Command([*ssh_arguments(settings), "--", settings.host, shlex.join(remote)], stdin)


def hides_script(settings: Settings) -> bool:
    """Return whether the script is in no argument list, which other users of the host could read."""
    return settings.kind != "ansible" and not (settings.sudo and settings.text("become_password"))


@lru_cache(maxsize=64)
def _encode_script(script: str) -> bytes:
    """Encode a script. The hosts of a fleet have few scripts, so each is kept in memory once."""
    return script.encode()


def remote_command(settings: Settings, script: str) -> tuple[list[str], bytes]:
    """Return the command on the host, and its standard input."""
    if not settings.sudo:
        return list(SHELL), _encode_script(script)
    sudo = [settings.text("become_exe", "sudo"), "-H", "-u", settings.become_user]
    password = settings.text("become_password")
    if not password:
        return ["sh", "-c", f"{BEFORE_SUDO}; exec {shlex.join([*sudo, '-n', '--', *ROOTS_SHELL])}"], _encode_script(
            script
        )
    parts = [script[start : start + PART] for start in range(0, len(script), PART)]
    if len(parts) > PARTS:
        raise GpuprovError(
            f"{settings.name}: the script is too long for sudo with a password", "allow sudo without a password"
        )
    # One line and then the end: a wrong password is one attempt, not three that lock the account. So the script is in
    # arguments.
    joined = "".join(f"${{{number}}}" for number in range(1, len(parts) + 1))
    line = shlex.join([*sudo, "-S", "-p", "", "--", *ROOTS_SHELL[:2], f'eval "{joined}"', "sh"])
    assignments = "\n".join(f"s{number}={shlex.quote(part)}" for number, part in enumerate(parts))
    words = " ".join(f'"$s{number}"' for number in range(len(parts)))
    return list(
        SHELL
    ), f"{BEFORE_SUDO}\n{assignments}\nprintf '%s\\n' {shlex.quote(password)} | {line} {words}\n".encode()


def ssh_arguments(settings: Settings) -> list[str]:
    """Return `ssh` and its options as Ansible sets them; unset options are left to the user's own ssh configuration."""
    ssh_args = settings.words("ssh_args")
    arguments = [settings.text("ssh", "ssh"), "-T", "-o", "BatchMode=yes", *ssh_args]
    if not settings.flag("host_key_checking", True):
        arguments += ["-o", "StrictHostKeyChecking=no"]
    for option, name in (("port", "Port"), ("user", "User")):
        if settings.text(option):
            arguments += ["-o", f"{name}={settings.text(option)}"]
    if settings.text("key"):
        arguments += ["-o", f'IdentityFile="{os.path.expanduser(settings.text("key"))}"']
    more = [*settings.words("common_args"), *settings.words("extra_args")]
    arguments += more
    if "connecttimeout" not in " ".join([*ssh_args, *more]).lower():
        arguments += ["-o", f"ConnectTimeout={settings.text('timeout', '10')}"]
    arguments += keep_alive([*ssh_args, *more])
    return arguments + _build_control_path(settings, " ".join([*ssh_args, *more]).lower())


def _build_control_path(settings: Settings, given: str) -> list[str]:
    """Return options for the socket that Ansible would use, if the user's Ansible configuration requests shared
    connections."""
    if "controlpath" in given or not ("controlpersist" in given or settings.text("control_path")):
        return []
    directory = os.path.expanduser(settings.text("control_path_dir", "~/.ansible/cp"))
    template = settings.text("control_path")
    if not template:
        parts = (settings.host, settings.text("port") or None, settings.text("user") or None)
        digest = hashlib.sha1("-".join(map(str, parts)).encode(), usedforsecurity=False).hexdigest()
        template = f"%(directory)s/{digest[:10]}"
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path = template.replace("%(directory)s", directory).replace("%%", "%")
    if len(os.fsencode(os.path.dirname(path))) > temporary.LONGEST:  # ssh would not connect at all
        return ["-o", "ControlPath=none"]
    return ["-o", f'ControlPath="{path}"']


def _build_ansible_command(settings: Settings, script: str) -> Command:
    """Run through Ansible itself, for connection plugins and become methods that are not built in here. Slow. Variables
    are passed in the environment, which only this user and root can read; a file would have to be removed."""
    import base64
    import gzip

    # One argument here and on the host, with what a become method puts around it: as it is, a long one is over
    # MAX_ARG_STRLEN.
    packed = base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode()
    given = {name: value for name, value in settings.variables.items() if value is not None}
    # What the environment says is data to Ansible; the template that asks for it has nothing of the inventory in it.
    places = {name: f"GPUPROV_VARIABLE_{number}" for number, name in enumerate(given)}
    environment: dict[str, str | None] = {places[name]: str(value) for name, value in given.items()}
    lookups = {name: f"{{{{ lookup('ansible.builtin.env', '{place}') }}}}" for name, place in places.items()}
    argv = [sys.executable, "-P", "-m", "ansible", "adhoc", "-i", f"{settings.name},", settings.name]
    argv += ["-e", msgspec.json.encode(lookups).decode(), "-m", "ansible.builtin.raw"]
    argv += ["-a", f"echo {packed} | base64 -d | gzip -dc | sh"]
    environment |= home.build_environment()
    environment |= changes(os.environ)
    environment |= {"ANSIBLE_STDOUT_CALLBACK": "minimal", "ANSIBLE_SSH_USETTY": "False"}
    return Command(argv, b"", environment)
