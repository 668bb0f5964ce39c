"""What an inventory may say of how a host is reached, whoever wrote it: words that cannot be options, shell or lines.

Names and addresses of cloud hosts come from sources that nobody has to trust. Variables that are shell or options by nature
(ansible_ssh_common_args, ansible_become_exe) are the operator's: a source that sets them decides what runs on this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address

from gpuprov.spec.build import ONE_LINE, is_one_line, show
from gpuprov.spec.model import RawHost, is_secret
from gpuprov.spec.problem import Problem

HOST_NAME = re.compile(r"[\w][\w.:%@+-]*")
"""Names of hosts become names of files in a rendered project, and words of commands."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
"""Names of variables, as Ansible has them."""
ADDRESSES = ("ansible_host", "ansible_ssh_host")
PORTS = ("ansible_port", "ansible_ssh_port")
USERS = ("ansible_user", "ansible_ssh_user", "ansible_become_user", "ansible_sudo_user")
_WAY = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_executable")
_HOST_OPTION = re.compile(r"-o\s*[\"']?HostName\s*[= ]\s*([^\s\"']+)[\"']?", re.IGNORECASE)
_BY_SSH = ("", "smart", "ssh", "paramiko", "paramiko_ssh")
NODE = "host_kubernetes_node"
_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
"""https://kubernetes.io/docs/concepts/overview/working-with-objects/names/"""
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
# What ssh refuses in names of hosts and users: https://www.openssh.com/txt/release-9.6
_ADDRESS = re.compile(r"[^-\s'\"`$\\;&<>|(){}][^\s'\"`$\\;&<>|(){}]*")
_USER = re.compile(r"[^-'\"`;&<>|(){}][^'\"`;&<>|(){}]*")


def unusable(raw: RawHost) -> Iterator[Problem]:
    """Why this host cannot be reached as the inventory says."""
    if not HOST_NAME.fullmatch(raw.name):
        message = f"host name {show(raw.name)} cannot be a file name"
        yield Problem(message=message, hosts=(raw.name,), hint="allowed: letters, digits and . _ : % @ + -")
    for name, value in raw.connection.items():
        for message, hint in _complaints(name, value):
            yield Problem(message=message, hosts=(raw.name,), hint=hint, origin=raw.places.get(name))


def one_machine(hosts: Iterable[RawHost]) -> Iterator[tuple[str, list[str]]]:
    """Names by which ssh reaches one machine, as far as the inventory's own words tell, and its address. Apply finds others, too: it
    asks each host which machine it is (`onhost.machine`)."""
    found: dict[tuple[str, ...], list[str]] = {}
    for raw in hosts:
        said = {name: str(raw.connection.get(name) or "") for name in (*ADDRESSES, *PORTS, *_WAY, "ansible_connection")}
        if said["ansible_connection"].removeprefix("ansible.builtin.") in _BY_SSH:
            way = " ".join(said[name] for name in _WAY)
            named = _HOST_OPTION.search(way)
            host = said["ansible_ssh_host"] or said["ansible_host"] or raw.name
            host = named[1].replace("%h", host) if named else host
            port = said["ansible_ssh_port"] or said["ansible_port"] or "22"
            key = (_as_address(host), port, " ".join(_HOST_OPTION.sub("", way).split()))
            found.setdefault(key, []).append(raw.name)
    for (host, *_), names in found.items():
        if len(names) > 1:
            yield host, names


def _as_address(host: str) -> str:
    try:
        return str(ip_address(host.strip("[]")))
    except ValueError:
        return host.lower().rstrip(".")


def _complaints(name: str, value: object) -> Iterator[tuple[str, str]]:
    if not VARIABLE.fullmatch(name):
        yield f"the variable {show(name)} has no name that Ansible knows", "allowed: letters, digits and _"
    elif is_secret(name):
        # A key has lines; nothing that is passed on to a program has a NUL.
        if any("\0" in text for text in texts(value)):
            yield f"{name} has a NUL character", "give it as text"
    elif not all(map(is_one_line, texts(value))):
        yield f"{name} is {show(value)}", ONE_LINE
    elif name in ADDRESSES and value not in (None, "") and not _ADDRESS.fullmatch(str(value)):
        yield f"{name} is {show(value)}", "allowed: a name or an address, without spaces and characters of a shell"
    elif name in USERS and value not in (None, "") and not _USER.fullmatch(str(value)):
        yield f"{name} is {show(value)}", "allowed: a user's name, without characters of a shell"
    elif name in PORTS and value not in (None, "") and not _is_port(value):
        yield f"{name} is {show(value)}", "allowed: a number from 1 to 65535"
    elif name == NODE and value not in (None, "") and not _NODE.fullmatch(str(value)):
        yield f"{name} is {show(value)}", "allowed: a node's name, of lower-case letters, digits, - and ."


def _is_port(value: object) -> bool:
    return bool(_PORT.fullmatch(str(value))) and 0 < int(str(value)) <= 65535


def texts(value: object) -> Iterator[str]:
    """Every text in a value, keys and numbers too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts(key)
            yield from texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
