"""Inputs that a running ansible-playbook adds to its inventory sources."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

from gpuprov.core.safe_parse import TreeView


class Play(NamedTuple):
    """The running play."""

    # Of the playbook, whose group_vars and host_vars count.
    folder: str
    # The extra variables, as Ansible parsed them.
    extra: TreeView
    # The vault passwords that Ansible was given, each with its vault id.
    secrets: Sequence[tuple[str, Any]]


class ReadOptions(TypedDict, total=False):
    """How sources are read.

    extra_vars: as Ansible's --extra-vars, they override the inventory; a `gpuprov` among them is merged over the
    inventory's. also: variables to include in `connection` beside those that say how a host is reached.

    alone: ignore group_vars and host_vars of the working folder, which Ansible reads beside the sources'; nothing is
    cached. play: the calling ansible-playbook; it has read the passwords and extra variables.
    """

    vault_password_files: Sequence[str]
    ask_vault_pass: bool
    extra_vars: Sequence[str]
    also: Sequence[str] | None
    alone: bool
    play: Play | None
