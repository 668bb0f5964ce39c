"""The values of --user and --ask-become-pass, for hosts whose inventory sets none: it overrides both, as in Ansible.

https://docs.ansible.com/ansible/latest/reference_appendices/general_precedence.html
"""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuprov.core.errors import GpuprovError
from gpuprov.facts.collect.settings import Settings
from gpuprov.spec.model import RawHost

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
