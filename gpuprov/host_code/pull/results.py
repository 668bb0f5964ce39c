"""Sending of results: those of `gpuprov fleet work`, or a note that nothing was begun, to a folder, an https server or
rsync."""

from __future__ import annotations

import os
import subprocess
import time

from . import kept, web
from .config import RSYNC, Config
from .refused import Refused, Unfetched
from .run import RESULTS, Summary
from .state import State

FORMAT = 1
CHECK = "host.act"
LIMIT = 300.0


def format_now() -> str:
    """Return the time in UTC, to the millisecond, as gpuprov writes it."""
    at = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at))}.{int(at * 1000) % 1000:03d}Z"


def build_refusal(config: Config, state: State, run: str, started: str, why: Refused) -> Summary:
    """Return the result of a host on which nothing was begun. It names the fleet of the last accepted bundle."""
    row = {
        "check": CHECK,
        "status": "error",
        "expected": "the bundle is accepted",
        "found": f"blocked: {why.message}",
        "fix": why.fix,
    }
    summary: Summary = {
        "gpuprov_result": FORMAT,
        "gpuprov_version": "",
        "run": run,
        "job": state.job,
        "fleet": state.fleet,
        "host": config.name,
    }
    summary.update(
        {"act": "verify", "state": "blocked", "verdict": "differs", "counts": {"error": 1}, "failures": [row]}
    )
    summary.update({"message": f"pull: {why.message}", "fix": why.fix, "started": started, "ended": format_now()})
    return summary


def upload(config: Config, data: bytes) -> None:
    """Upload a result. Raises Refused or Unfetched if that fails; the result stays on the host in any case."""
    name, to = config.result, config.results
    if not to:
        return
    if to.startswith("https://"):
        web.put(config, name, data)
        return
    try:
        if to.startswith("/"):
            kept.write_whole(os.path.join(to, name), data, mode=0o644)
        else:
            send_by_rsync(config, os.path.join(config.state, RESULTS, name), to[len(RSYNC) :])
    except OSError as error:
        raise Unfetched(f"the result cannot be put into {to}: {error.strerror or error}", web.AGAIN) from None


def send_by_rsync(config: Config, file: str, to: str) -> None:
    password = ["--password-file", config.password_file] if config.password_file else []
    command = ["rsync", "--timeout=60", "--perms", "--chmod=F644", *password, "--", file, f"{to.rstrip('/')}/"]
    try:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unfetched(f"rsync did not end within {LIMIT:g} s", web.AGAIN) from None
    if ran.returncode:
        error = " ".join(ran.stderr.decode(errors="replace").split())[-300:]
        raise Unfetched(f"rsync ended with {ran.returncode}: {error}", web.AGAIN)
