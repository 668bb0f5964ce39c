"""Inputs that a running ansible-playbook adds to its inventory sources."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gpuprov.core.safe_parse import TreeView


class Play(NamedTuple):
    """The running play. `folder`: of the playbook, whose group_vars and host_vars count. `extra`: the extra variables,
    as Ansible parsed them. `secrets`: the vault passwords that Ansible was given, each with its vault id."""

    folder: str
    extra: TreeView
    secrets: Sequence[tuple[str, Any]]
