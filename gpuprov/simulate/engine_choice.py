"""Choice of the container engine for simulated hosts: checks which installed engine answers."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

from gpuprov.core.errors import GpuprovError

VARIABLE = "GPUPROV_SIM_ENGINE"
ENGINES = ("podman", "docker")  # in order of preference
SBIN = ":/usr/sbin:/sbin"  # not on every user's PATH


@functools.cache
def chosen() -> str:
    """Return the engine that GPUPROV_SIM_ENGINE names; else the first that answers; else podman, which `setup`
    installs."""
    named = os.environ.get(VARIABLE, "")
    if named and named not in ENGINES:
        raise GpuprovError(f'{VARIABLE} is "{named}"; allowed: {", ".join(ENGINES)}')
    return named or next((engine for engine in ENGINES if silent_because(engine) is None), "podman")


@functools.cache
def silent_because(engine: str) -> str | None:
    """Return why this engine does not answer: not installed, no daemon, no permission; None if it does."""
    program = shutil.which(engine, path=os.environ.get("PATH", "") + SBIN)
    if program is None:
        return "not installed"
    try:
        command = [program, *runtime(engine), "info"]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=60, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return "no answer within 60 s"
    except OSError as error:
        return f"cannot be run: {error.strerror}"
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines() or [f"{engine} info failed (exit status {done.returncode})"]
    return lines[-1]


def runtime(engine: str) -> tuple[str, ...]:
    """Return the flags that choose the engine's runtime: runc for podman if it is installed; crun refuses machines with
    hybrid cgroups."""
    runc = engine == "podman" and shutil.which("runc", path="/usr/sbin:/usr/bin:/sbin")
    return ("--runtime", "runc") if runc else ()


def forget() -> None:
    """Choose again next time: something was installed."""
    chosen.cache_clear()
    silent_because.cache_clear()
