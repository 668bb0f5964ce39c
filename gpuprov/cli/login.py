"""--user and --ask-become-pass: their values apply where the inventory sets none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuprov.spec.model import RawHost


def refuse_unusable(hosts: Sequence[RawHost]) -> None:
    """Raise SpecError for hosts that cannot be reached with the inventory's settings."""
    from gpuprov.spec.connection import find_unusable
    from gpuprov.spec.problem import SpecError

    if problems := [problem for raw in hosts for problem in find_unusable(raw)]:
        raise SpecError(problems)


def logged_in(hosts: Sequence[RawHost], user: str | None, *, ask: bool) -> Sequence[RawHost]:
    """Return the hosts, with the values of --user and --ask-become-pass where the inventory sets none."""
    if not user and not ask:
        return hosts
    from gpuprov.core import terminal
    from gpuprov.core.errors import GpuprovError
    from gpuprov.facts.collect import settings
    from gpuprov.inventory.vault import ask_for_password

    if user:
        hosts, own = settings.as_user(hosts, user)
        if own:
            terminal.progress(f"--user {user}: {len(own)} of {len(hosts)} hosts name their own user, which wins")
        refuse_unusable(hosts)
    if ask and not settings.who_ask(hosts):
        message = (
            "--ask-become-pass: no host needs it: none becomes another user, or each has its password in the inventory"
        )
        raise GpuprovError(message, "to become root there: -e ansible_become=true")
    if ask:
        fix = "write ansible_become_password with ansible-vault, or give -e @FILE, instead of --ask-become-pass"
        password = ask_for_password("BECOME password: ", "the password of sudo", fix)
        if not password:
            raise GpuprovError("--ask-become-pass: the password is empty", "type it, or leave the option out")
        hosts = settings.with_password(hosts, password)
    return hosts
