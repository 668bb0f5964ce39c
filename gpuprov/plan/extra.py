"""The extra variables of a run: who runs, what is to be done where. The roles' lock and receipt read them."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from gpuprov import __version__
from gpuprov.limits import ACT_LIMIT
from gpuprov.plan.interrupt import birth


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
        "gpuprov_run": describe(run),
    }
    if reboot:
        extra["gpuprov_reboot"] = "if-needed"
    if drain:
        extra["gpuprov_drain_command"] = drain
    return extra


def describe(run: str) -> dict[str, object]:
    """This process, so that a lock it leaves behind can be known for dead: machine, process id and its start."""
    return {
        "controller": _machine(),
        "pid": os.getpid(),
        "pid_start": birth(os.getpid()),
        "user": _user(),
        "host": platform.node(),
        "since": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "run": run,
        "version": __version__,
    }


def _machine() -> str:
    """Whose process ids they are: machine id, host name and pid namespace, since containers may share the first two."""
    parts = []
    with contextlib.suppress(OSError, UnicodeDecodeError):
        parts.append(Path("/etc/machine-id").read_text(encoding="ascii").strip())
    parts.append(platform.node())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(part for part in parts if part)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())
