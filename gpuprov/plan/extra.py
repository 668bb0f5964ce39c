"""The extra variables of a run: its owner, and what to do on each host. The roles' lock and receipt read them."""

import secrets
from collections.abc import Mapping
from typing import TypedDict

from gpuprov import __version__
from gpuprov.core.errors import GpuprovError
from gpuprov.core.time_limits import ACT_LIMIT, LEASE
from gpuprov.host_code import lock, process
from gpuprov.host_code.fence import Owner


def new_run() -> str:
    """Return a short name for a run, used for its log and on the hosts."""
    return secrets.token_hex(4)


def checked_run(run: str) -> str:
    """Validate the name that a user gave a run. Raises GpuprovError for one that is invalid on a host or in a file
    name."""
    if lock.RUN.fullmatch(run):
        return run
    allowed = "a letter or digit, then up to 63 letters, digits, dots, hyphens and underscores"
    raise GpuprovError(f'--run is "{run}"', f"allowed: {allowed}")


def of_rollback(run: str) -> str:
    """Return the name of the run that rolls back this one: a different name, since processes started by this one may
    still be running."""
    return f"{run[:58]}-back"


def owner(run: str, lease: float = LEASE) -> Owner:
    """Return this process as the owner of hosts' locks."""
    return {**process.describe(run, __version__), "lease": lease}


class Extra(TypedDict, total=False):
    """Variables of a playbook on top of the inventory."""

    gpuprov_act_limit: int
    gpuprov_only: dict[str, list[str]]
    gpuprov_run: Owner
    gpuprov_seen: Mapping[str, str]
    gpuprov_pruned: Mapping[str, object]
    gpuprov_reboot: str
    gpuprov_act_last: str
    gpuprov_drain_command: str
    gpuprov_verified_later: bool
    gpuprov_break_lock: list[str]


def extra_variables(
    leader: Owner,
    only: Mapping[str, Mapping[str, str]],
    *,
    reboot: bool = False,
    drain: str | None = None,
    timeout: float = ACT_LIMIT,
    prepare: bool = False,
    seen: Mapping[str, str] | None = None,
    pruned: Mapping[str, object] | None = None,
) -> Extra:
    """Return the playbook's variables on top of the inventory. leader: the owner of locks. only: the capabilities to
    run, by host.

    reboot: permission for this run; without it the spec decides. timeout: seconds that an act may take. prepare: end
    after act 1, which changes nothing in service, so that users of the GPUs do not stop it. seen: by host, the token of
    its lock as it was read: if another run has held it since, nothing is done based on that reading. pruned: by host,
    what its role removes.
    """
    extra: Extra = {
        "gpuprov_act_limit": int(timeout),
        "gpuprov_only": {host: list(names) for host, names in only.items()},
        "gpuprov_run": leader,
    }
    if seen:
        extra["gpuprov_seen"] = seen
    if pruned:
        extra["gpuprov_pruned"] = pruned
    if reboot:
        extra["gpuprov_reboot"] = "if-needed"
    if prepare:
        extra["gpuprov_act_last"] = "prepare"
        drain = "true"  # never run: nothing before act 2 drains
    if drain:
        extra["gpuprov_drain_command"] = drain
        extra["gpuprov_verified_later"] = True  # a node goes back into service after that
    return extra
