"""Acts of a repair on this host: its lock, a reset of GPUs, a reboot, and the record of them.

Run on a host as a program, by root: a request as JSON on standard input, the answer as one line of JSON. Services that
hold GPUs are stopped for a reset and started again after it, whatever came of it. Nobody's process is ended: while one
holds a GPU, nothing is done.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Callable, Mapping, Sequence, TypedDict

from . import clients, lock, process, repairs
from .fence import Owner, Taken
from .files import read
from .systemd import is_active, systemctl

# Limit of `nvidia-smi --gpu-reset`: eight GPUs with their NVSwitches take most of a minute.
RESET_SECONDS = 300
# Units that start before the GPUs are set up.
FIRST = ("nvidia-fabricmanager.service", "nvidia-imex.service", "nvidia-persistenced.service", clients.OURS)
# Shell that reboots the host after the answer, announced to all who are logged in. shutdown(8).
REBOOT = 'sleep 2; exec shutdown -r 0 "$1"'
# Seconds that a clock may be set back by between two looks at it.
CLOCK_STEP = 2.0


class Listing(TypedDict):
    """A unit that writes down the GPUs and their MIG devices, the file, and the service that reads it at its start
    only; "" for none."""

    unit: str
    file: str
    reader: str


class Request(TypedDict, total=False):
    """A request. `known`: services that may hold GPUs, `services`: those of them that are stopped for a reset."""

    action: str
    owner: Owner
    known: list[str]
    services: list[str]
    boot_units: list[str]
    listings: list[Listing]
    gpus: list[str]
    ids: list[str]
    checks: list[str]
    broken: list[str]
    stale: str
    act: str
    at: float
    message: str


class Answer(TypedDict, total=False):
    """The answer."""

    problem: str
    services: list[str]
    holders: list[str]
    failed: dict[str, str]
    boot: str
    here: bool
    # It became so meanwhile.
    lost: bool
    # The lock is another run's.
    locked: Taken
    unrecorded: str


def look(request: Request) -> Answer:
    """Report what a reset would stop and who is in its way; change nothing."""
    units = clients.list_active(request["services"])
    return {
        "services": [*units, *clients.list_dependents(units)],
        "holders": clients.list_holders(request["known"], guests=True),
        "boot": lock.identify_boot(),
        "here": request["owner"].get("controller") == process.identify_machine(),
    }


def take(request: Request) -> Answer:
    """Take the host's lock, unless a process holds a GPU."""
    taken = lock.take(request["owner"], request.get("broken", ()), request.get("stale"))
    if not taken["taken"]:
        return {"locked": taken}
    holders = clients.list_holders(request["known"], guests=True)
    if holders:
        lock.release_lock(request["owner"])
    return {"holders": holders, "boot": lock.identify_boot()}


def mark(request: Request) -> Answer:
    """Record a reset that somebody else has done; nothing else changes."""
    owner, at = request["owner"], request["at"]
    if at > time.time() + CLOCK_STEP:
        return {"problem": "its time is in the future of this host's clock"}
    taken = lock.take(owner, request.get("broken", ()), request.get("stale"))
    if not taken["taken"]:
        return {"locked": taken}
    try:
        repairs.note(str(owner["run"]), "reset", request["gpus"], request["checks"], at=at)
    finally:
        lock.release_lock(owner)
    return {}


def reset(request: Request) -> Answer:
    """Reset GPUs with the services stopped. `problem`: why it was not done; `failed`: services that do not start."""
    gpus, checks, run = request["gpus"], request["checks"], str(request["owner"]["run"])
    holders: list[str] = []
    try:
        units = clients.list_active(request["services"])
        problem = clients.stop(units, clients.list_dependents(units))
        if not problem and not (holders := clients.list_holders(request["known"], guests=True)):
            problem = _run_reset(request["ids"])
    except OSError as error:
        problem = str(error)
    at, done = time.time(), not problem and not holders
    failed = _start_again(request["services"], request["boot_units"] if done else ())
    failed.update(_list_again(request["listings"]) if done else {})
    why = problem or "a process holds a GPU" * (not done)
    unrecorded = _record(run, "reset", gpus, checks, why, at)
    return {"problem": problem, "holders": holders, "failed": failed, "unrecorded": unrecorded}


def _record(
    run: str, act: str, gpus: Sequence[str], checks: Sequence[str], problem: str = "", at: float | None = None
) -> str:
    """Record an act; return why it could not be recorded, since it was done all the same."""
    try:
        repairs.note(run, act, gpus, checks, problem, at)
    except OSError as error:
        return f"not recorded on the host: {error}"
    return ""


def _start_again(services: Sequence[str], boot_units: Sequence[str]) -> dict[str, str]:
    """Start what was stopped; before those that read the GPUs' MIG devices, have units set the GPUs up as at boot.
    Return why some do not start."""
    stopped = clients.list_stopped(services)
    _, failed = clients.start_services([unit for unit in stopped if unit in FIRST])
    for unit in boot_units:
        if is_active(unit):
            status, _, errors = systemctl("restart", "--", unit)
            failed.update({unit: errors or f"systemctl ended with {status}"} if status else {})
    _, more = clients.start_services([unit for unit in stopped if unit not in FIRST])
    return {**failed, **more}


def _list_again(listings: Sequence[Listing]) -> dict[str, str]:
    """Have units write down the GPUs as they are after a reset: MIG devices made anew have other names. Return why some
    do not start."""
    failed = {}
    for listing in listings:
        unit, before = listing["unit"], read(listing["file"])
        if systemctl("is-enabled", "--quiet", "--", unit)[0]:
            continue
        status, _, errors = systemctl("restart", "--", unit)
        if not status and listing["reader"] and read(listing["file"]) != before:
            unit = listing["reader"]
            status, _, errors = systemctl("try-restart", "--", unit)
        failed.update({unit: errors or f"systemctl ended with {status}"} if status else {})
    return failed


def _run_reset(ids: Sequence[str]) -> str:
    """Run nvidia-smi; return its complaint, or "". ids: of the GPUs; empty for all of them and their NVSwitches."""
    command = ["nvidia-smi", "--gpu-reset", *(["-i", ",".join(ids)] if ids else [])]
    try:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=RESET_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{' '.join(command[:2])}: {error}"
    words = " ".join(ran.stdout.split())[-300:]
    return f"{' '.join(command[:2])}: {words or f'status {ran.returncode}'}" if ran.returncode else ""


def reboot(request: Request) -> Answer:
    """Reboot the host in two seconds. `problem`: why it is not rebooted."""
    owner, problem = request["owner"], ""
    if holders := clients.list_holders(request["known"], guests=True):
        return {"holders": holders}
    if owner.get("controller") == process.identify_machine():
        problem = "it is the machine that gpuprov runs on"
    unrecorded = _record(str(owner["run"]), "reboot", request["gpus"], request["checks"], problem)
    if not problem:
        os.sync()
        null = subprocess.DEVNULL
        command = ["sh", "-c", REBOOT, "sh", request["message"]]
        subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True)
    return {"problem": problem, "unrecorded": unrecorded}


def note(request: Request) -> Answer:
    """Record how the repair ended."""
    run = str(request["owner"]["run"])
    return {"unrecorded": _record(run, request["act"], request["gpus"], request["checks"])}


def seen(_request: Request) -> Answer:
    """Report the boot."""
    return {"boot": lock.identify_boot()}


UNDER_LOCK: Mapping[str, Callable[[Request], Answer]] = {
    "reset": reset,
    "reboot": reboot,
    "note": note,
    "seen": seen,
}


def answer_request(request: Request) -> Answer:
    """Carry out one act. Those under the lock need it, and renew its lease."""
    action = request["action"]
    if os.geteuid():
        return {"problem": "repair needs root on the host: set ansible_become, or log in as root"}
    if action == "look":
        return look(request)
    if action == "mark":
        return mark(request)
    if action == "take":
        return take(request)
    if action == "release":
        return {"problem": "" if lock.release_lock(request["owner"]) else "the lock was another run's by then"}
    if not lock.renew_lease(request["owner"]):
        return {"problem": "another run has the host's lock by now", "lost": True}
    return UNDER_LOCK[action](request)


def main() -> None:
    """The program."""
    os.umask(0o022)
    request = json.load(sys.stdin)
    try:
        answer = answer_request(request)
    except (OSError, ValueError, KeyError, TypeError) as error:
        answer = {"problem": str(error) or type(error).__name__}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
