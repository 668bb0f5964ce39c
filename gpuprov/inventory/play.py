"""Inputs that a running ansible-playbook adds to its inventory sources."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Play(NamedTuple):
    """The running play. `folder`: of the playbook, whose group_vars and host_vars count. `extra`: the extra variables,
    as Ansible parsed them. `secrets`: the vault passwords that Ansible was given, each with its vault id."""

    folder: str
    extra: Mapping[str, Any]
    secrets: Sequence[tuple[str, Any]]
