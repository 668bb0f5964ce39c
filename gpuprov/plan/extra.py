"""The extra variables of a run: who runs, what is to be done where. The roles' lock and receipt read them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from gpuprov import __version__
from gpuprov.limits import ACT_LIMIT
from gpuprov.onhost import process


def new_run() -> str:
    """A short name for a run, used for its log and on the hosts."""
    return secrets.token_hex(4)


def extra_variables(
    run: str,
    only: Mapping[str, Mapping[str, str]],
    *,
    reboot: bool = False,
    drain: str | None = None,
    timeout: float = ACT_LIMIT,
) -> dict[str, object]:
    """What the playbook is told on top of the inventory. only: the capabilities to run, by host.

    reboot: permission for this run; without it the spec decides. timeout: seconds that an act may take.
    """
    extra: dict[str, object] = {
        "gpuprov_act_limit": int(timeout),
        "gpuprov_only": {host: list(names) for host, names in only.items()},
        "gpuprov_run": process.describe(run, __version__),
    }
    if reboot:
        extra["gpuprov_reboot"] = "if-needed"
    if drain:
        extra["gpuprov_drain_command"] = drain
    return extra
