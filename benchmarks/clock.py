"""Timing of whole commands: wall seconds and peak memory, the best of a few runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Timing(NamedTuple):
    """The best wall time in seconds, and the peak memory of that run in MiB."""

    seconds: float
    mebibytes: float


def command(
    argv: Sequence[str | Path], *, runs: int = 3, allowed: Sequence[int] = (0,), cwd: Path | None = None
) -> Timing:
    """Run a command `runs` times; its output is shown only if its exit status is not allowed."""
    best = Timing(float("inf"), 0.0)
    for _ in range(runs):
        started = time.perf_counter()
        child = subprocess.Popen([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=cwd)
        assert child.stdout
        output = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - started
        code = os.waitstatus_to_exitcode(status)
        if code not in allowed:
            sys.stderr.write(output.decode(errors="replace")[-3000:])
            raise SystemExit(f"{argv[0]} exited with {code}")
        if seconds < best.seconds:
            best = Timing(seconds, usage.ru_maxrss / 1024)
    return best


def row(name: str, timing: Timing, floor: Timing | None = None) -> None:
    """Print one line of the result: seconds, memory, ratio to the floor."""
    ratio = f"{timing.seconds / floor.seconds:6.2f}x" if floor else ""
    sys.stdout.write(f"  {name:<58} {timing.seconds:8.2f} s {timing.mebibytes:7.0f} MiB {ratio}\n")
    sys.stdout.flush()
