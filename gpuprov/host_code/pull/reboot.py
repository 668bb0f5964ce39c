"""The reboot of a host that applied itself: only while no other run holds the host, and no user's process holds a GPU.

Run from the unpacked gpuprov, as a program; stdin: run, services that may hold GPUs, and reasons, as JSON. Exit code 1:
the reason for a refusal is on standard output.
"""

from __future__ import annotations

import json
import sys
from typing import Callable, TypedDict

from .. import clients, lock, process
from ..fence import Owner
from ..systemd import systemctl

LEASE = 300


class Request(TypedDict):
    """The run, services that may hold GPUs, and reasons."""

    run: str
    services: list[str]
    reasons: list[str]


def request_reboot(request: Request, reboot: Callable[[], tuple[int, str, str]]) -> str:
    """Request a reboot; return the reason why the host is not rebooted, "" if the reboot was requested."""
    owner: Owner = {**process.describe(f"{request['run']}-reboot", ""), "lease": LEASE}
    taken = lock.take(owner)
    if not taken["taken"]:
        return f"another run holds the host: {taken.get('id', 'unknown')}"
    try:
        try:
            held = clients.list_holders(request["services"], guests=True)
        except OSError as error:
            return f"the processes that hold a GPU cannot be listed: {error}"
        if held:
            return f"{len(held)} process(es) hold a GPU: {', '.join(held[:10])}"
        status, _, errors = reboot()
        return "" if status == 0 else f"systemctl reboot ended with {status}: {errors}"
    finally:
        lock.release_lock(owner)


def main() -> None:
    why = request_reboot(json.load(sys.stdin), lambda: systemctl("reboot", "--no-wall"))
    if why:
        print(" ".join(why.split()))
        sys.exit(1)


if __name__ == "__main__":
    main()
