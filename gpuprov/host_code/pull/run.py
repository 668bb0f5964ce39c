"""`gpuprov fleet work` on this host: its job, with gpuprov as it was unpacked from the bundle's wheels."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from typing import Sequence, TypedDict

from . import kept
from .wheels import Python

RESULTS, LOGS, HOME = "results", "logs", "home"
KEPT_LOGS = 20
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TRY = 120.0
RESULT = 4 << 20


def build_environment(place: str, state: str) -> dict[str, str]:
    """Return an environment without variables from the puller's own."""
    home = os.path.join(state, HOME)
    return {"PATH": PATH, "HOME": home, "LANG": "C.UTF-8", "PYTHONPATH": place, "XDG_CACHE_HOME": f"{home}/.cache"}


def build_command(python: Python, *words: str) -> list[str]:
    return [python.program, "-P", "-m", *words]


def try_start(python: Python, place: str, state: str) -> str:
    """Return the reason why gpuprov in this folder does not start; "" if it does."""
    try:
        ran = subprocess.run(
            build_command(python, "gpuprov", "fleet", "work", "--help"),
            env=build_environment(place, state),
            cwd=state,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=TRY,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)[:200]
    lines = ran.stderr.decode(errors="replace").strip().splitlines()
    return (lines[-1][:200] if lines else f"it ended with {ran.returncode}") if ran.returncode else ""


def do_job(python: Python, place: str, state: str, run: str, act: str, job: bytes) -> int:
    """Do the job, and return the exit code; the result is in RESULTS."""
    path = os.path.join(state, "job.json")
    kept.write_whole(path, job)
    words = [
        "gpuprov",
        "fleet",
        "work",
        path,
        "--results",
        os.path.join(state, RESULTS),
        "--act",
        act,
        "--run",
        run,
        "--without-secrets",
    ]
    if act == "apply":
        words += ["--log-dir", name_logs(state)]
    return subprocess.call(
        build_command(python, *words), env=build_environment(place, state), cwd=state, stdin=subprocess.DEVNULL
    )


def name_logs(state: str) -> str:
    folder = os.path.join(state, LOGS)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name in sorted(os.listdir(folder))[: -KEPT_LOGS or None]:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))
    return folder


class Summary(TypedDict, total=False):
    """The result of a host, as gpuprov writes it, as far as the puller reads or writes it."""

    gpuprov_result: int
    gpuprov_version: str
    run: str
    job: str
    fleet: str
    host: str
    act: str
    state: str
    verdict: str
    counts: dict[str, int]
    failures: list[dict[str, str]]
    message: str
    fix: str
    started: str
    ended: str
    reboot: list[str]


def read_result(state: str, name: str, run: str) -> Summary:
    """Return the result that gpuprov wrote in this run; empty if it wrote none."""
    with contextlib.suppress(OSError, ValueError):
        content: Summary = json.loads(kept.read_contents(os.path.join(state, RESULTS, name), RESULT))
        if isinstance(content, dict) and content.get("run") == run:
            return content
    return {}


def reboot(python: Python, place: str, state: str, run: str, services: Sequence[str], reasons: Sequence[str]) -> str:
    """Request the reboot of this host. Return the reason why it is refused; "" if it begins."""
    request = json.dumps({"run": run, "services": list(services), "reasons": list(reasons)}).encode()
    try:
        ran = subprocess.run(
            build_command(python, "gpuprov.host_code.pull.reboot"),
            input=request,
            env=build_environment(place, state),
            cwd=state,
            timeout=TRY,
            capture_output=True,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)[:200]
    lines = (ran.stdout if ran.returncode == 1 else ran.stderr).decode(errors="replace").strip().splitlines()
    return "" if ran.returncode == 0 else (lines[-1] if lines else f"it ended with {ran.returncode}")[:500]
