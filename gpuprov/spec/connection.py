"""Validates an inventory's connection data, whoever wrote it: values must not act as options, shell or several lines.

Names and addresses of cloud hosts come from sources that need not be trusted. Variables that are shell or options by
nature (ansible_ssh_common_args, ansible_become_exe) are the operator's: a source that sets them decides what runs on
this machine.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address

from gpuprov.core.errors import GpuprovError
from gpuprov.core.sanitize import masked
from gpuprov.spec.build import ONE_LINE, is_one_line
from gpuprov.spec.model import RawHost, is_secret
from gpuprov.spec.problem import Path, Problem, format_path
from gpuprov.spec.shown import show

# Names of hosts, which become names of files in a rendered project, and words of commands.
HOST_NAME = re.compile(r"[\w][\w.:%@+-]*")
# Names of variables, by Ansible's rules.
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
ADDRESSES = ("ansible_host", "ansible_ssh_host")
PORTS = ("ansible_port", "ansible_ssh_port")
USERS = ("ansible_user", "ansible_ssh_user", "ansible_become_user", "ansible_sudo_user")
_WAY = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_executable")
_HOST_OPTION = re.compile(r"-o\s*[\"']?HostName\s*[= ]\s*([^\s\"']+)[\"']?", re.IGNORECASE)
_BY_SSH = ("", "smart", "ssh", "paramiko", "paramiko_ssh")
NODE = "host_kubernetes_node"
# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
# What ssh refuses in names of hosts and users: https://www.openssh.com/txt/release-9.6
_ADDRESS = re.compile(r"[^-\s'\"`$\\;&<>|(){}][^\s'\"`$\\;&<>|(){}]*")
_USER = re.compile(r"[^-'\"`;&<>|(){}][^'\"`;&<>|(){}]*")


def find_unusable(raw: RawHost) -> Iterator[Problem]:
    """Yield why this host cannot be reached with the inventory's settings."""
    if not HOST_NAME.fullmatch(raw.name):
        message = f"host name {show(raw.name)} cannot be a file name"
        fix = "allowed: letters, digits and . _ : % @ + -"
        if re.search(r"[*?]|/[0-9]+\Z", raw.name):  # a pattern of --limit, a network
            fix += "; write each host by its name, or a range: gpu[01:16]"
        yield Problem(message=message, hosts=(raw.name,), fix=fix)
    for name, value in raw.connection.items():
        for message, fix in list_complaints(name, value):
            yield Problem(message=message, hosts=(raw.name,), fix=fix, origin=raw.places.get(name))


def find_shared_machines(hosts: Iterable[RawHost]) -> Iterator[tuple[str, list[str]]]:
    """Yield names by which ssh reaches one machine, as far as the inventory shows, and its address. Apply detects
    others, too: it asks each host for its identity (`host_code.machine`)."""
    machines: dict[tuple[str, ...], list[str]] = {}
    for raw in hosts:
        values = {
            name: str(raw.connection.get(name) or "") for name in (*ADDRESSES, *PORTS, *_WAY, "ansible_connection")
        }
        if values["ansible_connection"].removeprefix("ansible.builtin.") in _BY_SSH:
            way = " ".join(values[name] for name in _WAY)
            named = _HOST_OPTION.search(way)
            host = values["ansible_ssh_host"] or values["ansible_host"] or raw.name
            host = named[1].replace("%h", host) if named else host
            port = values["ansible_ssh_port"] or values["ansible_port"] or "22"
            key = (parse_address(host), port, " ".join(_HOST_OPTION.sub("", way).split()))
            machines.setdefault(key, []).append(raw.name)
    for (host, *_), names in machines.items():
        if len(names) > 1:
            yield host, names


def parse_address(host: str) -> str:
    try:
        return str(ip_address(host.strip("[]")))
    except ValueError:
        return host.lower().rstrip(".")


def list_complaints(name: str, value: object) -> Iterator[tuple[str, str]]:
    if not VARIABLE.fullmatch(name):
        yield f"the variable {show(name)} has no name that Ansible knows", "allowed: letters, digits and _"
    elif is_secret(name):
        # A key has lines; nothing that is passed on to a program has a NUL.
        if any("\0" in text for text in list_texts(value)):
            yield f"{name} has a NUL character", "give it as text"
    elif not all(map(is_one_line, list_texts(value))):
        yield f"{name} is {show(value)}", ONE_LINE
    elif name in ADDRESSES and value not in (None, "") and not _ADDRESS.fullmatch(str(value)):
        yield f"{name} is {show(value)}", "allowed: a name or an address, without spaces and characters of a shell"
    elif name in ADDRESSES and (fix := correct_address(str(value or ""), name)):
        yield f"{name} is {show(value)}", fix
    elif name in USERS and value not in (None, "") and not _USER.fullmatch(str(value)):
        yield f"{name} is {show(value)}", "allowed: a user's name, without characters of a shell"
    elif name in PORTS and value not in (None, "") and not _is_port(value):
        digits = re.sub(r"[^0-9]", "", str(value)) if re.fullmatch(r"\W*[0-9]{1,5}\W*", str(value)) else ""
        fix = f"; write {digits}" if digits and _is_port(digits) else ""
        yield f"{name} is {show(value)}", f"allowed: a number from 1 to 65535{fix}"
    elif name == NODE and value not in (None, "") and not _NODE.fullmatch(str(value)):
        yield f"{name} is {show(value)}", "allowed: a node's name, of lower-case letters, digits, - and ."


def correct_address(text: str, name: str) -> str:
    """Return what to write in place of an address that no host can have; empty for others."""
    if login := re.fullmatch(r"([a-z_][a-z0-9_-]*)@([^@\s]+)", text):
        return f"write {name}: {login[2]} and ansible_user: {login[1]}"
    if url := re.fullmatch(r"[a-z]+://([^/:@]+)/?", text):
        return f"write {url[1]}"
    if with_port := re.fullmatch(r"([^:\[\]@]+):([0-9]{1,5})", text):
        return f"write {name}: {with_port[1]} and ansible_port: {with_port[2]}"
    parts = re.fullmatch(r"([0-9]+)\.([0-9]+)\.([0-9]+)\.([0-9]+)", text)
    if parts and any(len(part) > 3 or int(part) > 255 for part in parts.groups()):
        return "allowed: four numbers from 0 to 255"
    return ""


def _is_port(value: object) -> bool:
    return bool(_PORT.fullmatch(str(value))) and 0 < int(str(value)) <= 65535


def find_secret(value: object, path: Path = ()) -> Path | None:
    """Return the path of a secret in a value: a value from a vault, or an address with user name and password. None:
    there is none."""
    if isinstance(value, Mapping | list | tuple):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        paths = (find_secret(item, (*path, key)) for key, item in items)
        return next((secret_path for secret_path in paths if secret_path is not None), None)
    return path if isinstance(value, str) and masked(value) != value else None


def is_left_out(name: str, value: object) -> bool:
    """True if a connection variable is a secret, by its name or its value, and is omitted from files for others."""
    return is_secret(name) or find_secret(value) is not None


def refuse_secrets(host: str, values: Mapping[str, object]) -> None:
    """Raise GpuprovError if a spec that would be written to a file for others holds a secret."""
    if (place := find_secret(values)) is not None:
        raise GpuprovError(
            f"{host}: {format_path(place)} holds a value from the vault, or an address with a password; such a file "
            "holds no secret",
            "say it outside of the vault if it is not a secret; else have it in a file of the hosts",
        )


def list_texts(value: object) -> Iterator[str]:
    """Yield every text in a value, keys and numbers too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from list_texts(key)
            yield from list_texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from list_texts(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
