"""Ansible's inventory data, extended to keep more of the sources' contents, and at most a limited number of hosts."""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from json import dumps
from typing import Any

from ansible.errors import AnsibleError
from ansible.inventory.data import InventoryData

from gpuprov.core import safe_parse
from gpuprov.inventory import ranges
from gpuprov.inventory.origin import find_origin
from gpuprov.spec.model import BLOCKS
from gpuprov.spec.problem import Origin, Problem

DOTTED = "gpuprov."
# Groups that every inventory has: https://docs.ansible.com/ansible/latest/inventory_guide/intro_inventory.html
OWN_GROUPS = ("all", "ungrouped")


class Data(InventoryData):  # type: ignore[misc]
    """Inventory data that keeps every `gpuprov` that a source sets, in order: Ansible itself keeps only the last one of
    a group or host."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: dict[tuple[str, str], list[tuple[Origin | None, Any]]] = {}
        self.unread = Unread()

    def add_host(self, host: str, group: str | None = None, port: int | str | None = None) -> Any:
        """Add a host as Ansible does, up to the limit."""
        if len(self.hosts) >= ranges.MOST and host not in self.hosts:
            raise AnsibleError("too many hosts") from safe_parse.Unreadable("too many hosts", f"{ranges.MOST}")
        if host in OWN_GROUPS:
            raise AnsibleError(
                f'a host is called "{host}", which is a group of Ansible\'s own: rename the host', obj=host
            )
        return super().add_host(host, group, port)

    def set_variable(self, entity: str, varname: str, value: Any) -> None:
        """Set a variable as Ansible does; remember `gpuprov`, and names that look like it."""
        if not isinstance(varname, str):
            raise AnsibleError(f"a variable is called {varname}, which is not text")
        super().set_variable(entity, varname, value)
        if varname == "gpuprov":
            kind = "group" if entity in self.groups else "host"
            self.layers.setdefault((kind, str(entity)), []).append((find_origin(varname), value))
        else:
            self.unread.note(varname, value)


class Unread:
    """Variables that look as if they belonged to a spec, but do not. Of many places in a file, one is reported."""

    def __init__(self) -> None:
        self._problems: dict[tuple[str, str], Problem] = {}

    def note(self, name: object, value: object) -> None:
        """Remember the variable if it is one."""
        if not isinstance(name, str) or not (reason := explain_unread(name, value)):
            return
        origin = find_origin(name)
        key = (str.__str__(name), origin.file if origin else "")
        if key not in self._problems:
            self._problems[key] = Problem(message=reason[0], origin=origin, fix=reason[1], severity="warning")

    def problems(self) -> list[Problem]:
        """Yield a warning for each variable."""
        return list(self._problems.values())


def explain_unread(name: str, value: object) -> tuple[str, str] | None:
    if name in BLOCKS:
        beside = value is None or isinstance(value, Mapping)
        fix = f"write it below gpuprov: {{gpuprov: {{{name}: ...}}}}"
        return (
            (f"{name} stands beside gpuprov, which is where capabilities belong; it is not read", fix)
            if beside
            else None
        )
    if name.startswith(DOTTED):
        return f'the variable "{name}" is not read', f"write gpuprov={format_nested(name, '...')}"
    if name.startswith("ansible_") and (meant := correct_connection_name(name)):
        return f'the variable "{name}" is not read', f'did you mean "{meant}"?'
    if name[:1] in "gG" and name != "gpuprov" and is_like_ours(name):
        return f'the variable "{name}" is not read', 'did you mean "gpuprov"?'
    return None


# Ansible's variables of connections, without ansible_:
# https://docs.ansible.com/ansible/latest/reference_appendices/special_variables.html
CONNECTION = (
    "become become_exe become_flags become_method become_pass become_password become_user connection host password "
    "port private_key_file python_interpreter shell_executable shell_type ssh_args ssh_common_args ssh_executable "
    "ssh_extra_args ssh_host ssh_pass ssh_password ssh_pipelining ssh_port ssh_private_key_file ssh_user su_pass "
    "su_user sudo_pass sudo_user user"
).split()
ADDRESS_WORDS = ("address", "addr", "ip", "ipaddress", "ip_address")


@cache
def correct_connection_name(name: str) -> str:
    """Return Ansible's variable that a misspelled one means; empty for its own, and for names like no other."""
    own = name.removeprefix("ansible_")
    if own in CONNECTION:
        return ""
    near = ["host"] if own in ADDRESS_WORDS else get_close_matches(own, CONNECTION, n=1, cutoff=0.85)
    return f"ansible_{near[0]}" if near else ""


def format_nested(name: str, value: object) -> str:
    """Return `gpuprov.a.b` as the nested value of `gpuprov` that it stands for, in JSON."""
    meant = value
    for part in reversed(name.split(".")[1:]):
        meant = {part: meant}
    return dumps(meant, ensure_ascii=False)


def is_like_ours(name: str) -> bool:
    from difflib import SequenceMatcher

    bare = name.lower().replace("_", "").replace("-", "")
    return bare == "gpuprov" or (len(name) <= 8 and SequenceMatcher(None, bare, "gpuprov").ratio() >= 0.85)
