"""Applies that are killed at random points, and what they leave: `python -m tests.e2e.kills [ROUNDS [SEED]]`, on a host
of its own.

A round: apply is killed (SIGKILL to all its processes, or to gpuprov alone; SIGTERM; SIGINT), the next apply completes
it, a third has nothing to do, and neither the host nor this machine has more on it than after an apply that nobody
disturbed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from difflib import ndiff
from pathlib import Path
from typing import Any

from gpuprov.simulate import container, hosts, inventory
from gpuprov.simulate.description import Description
from tests.e2e.lab import GPUPROV, descendants
from tests.e2e.machine import Machine
from tests.here import commands

SPEC = "all: {vars: {gpuprov: {nouveau: {}}}}\n"
WAYS = ("all-killed", "killed", "terminated", "interrupted")
BOUND = 90.0
"""Seconds within which an apply that is told to end has ended, with its locks given back: twice the grace, and one read
of a host."""
UNDO = "rm -rf /etc/modprobe.d/gpuprov.conf /var/lib/gpuprov"
# Names and contents, not times: what an apply writes again may be written at another time.
STATE = """
find /etc /home /root -xdev -type f -not -path '*/mtab' -not -path '/root/.cache/*' -exec sha256sum {} + | sort -k 2
ls -A /run/gpuprov /var/lib/gpuprov /tmp /var/tmp
find /home /root -path '*/.ansible/*'
"""


class Trial:
    """A host that is applied to again and again, by a gpuprov that has its temporary folder to itself."""

    def __init__(self, machine: Machine, place: Path) -> None:
        self.machine, self.place = machine, place
        self.temporary = place / "tmp"
        self.temporary.mkdir()
        (place / "hosts").mkdir()
        inventory.write([machine.host], place / "hosts" / "hosts.yaml")
        (place / "hosts" / "spec.yaml").write_text(SPEC, encoding="utf-8")
        self.whole = ""
        self.seconds = 0.0

    def start(self, *more: str) -> subprocess.Popen[str]:
        mine = {
            "TMPDIR": str(self.temporary),
            "XDG_STATE_HOME": str(self.place / "state"),
            "XDG_CACHE_HOME": str(self.place / "cache"),
        }
        return subprocess.Popen(
            [GPUPROV, "apply", str(self.place / "hosts"), "--yes", *more], env={**os.environ, **mine}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def apply(self) -> str:
        child = self.start()
        told = child.communicate(timeout=900)[0]
        assert child.returncode == 0, told
        return told

    def undisturbed(self) -> None:
        """Apply once without a kill: how long it takes, and what it leaves."""
        self.machine.sh(UNDO)
        started = time.monotonic()
        self.apply()
        self.seconds = time.monotonic() - started
        self.whole = self.state()

    def state(self) -> str:
        return self.machine.sh(STATE)

    def round(self, way: str, after: float) -> None:
        """Kill an apply `after` seconds; raises AssertionError for anything that is not as it was before."""
        self.machine.sh(UNDO)
        child = self.start()
        time.sleep(after)
        told = end(child, way)
        if way in ("terminated", "interrupted"):
            assert child.returncode in (130, 0), told
            assert "Traceback" not in told, told
            running = "still running there" in told
            assert running or "lock" not in self.machine.sh("ls /run/gpuprov 2>/dev/null || true").split(), told
            assert not list(self.temporary.iterdir()), told
        self.apply()
        third = self.apply()
        assert "Act 1" not in third, f"the third apply had something to do:\n{third}"
        differs = [one for one in ndiff(self.whole.splitlines(), self.state().splitlines()) if one[0] in "+-"]
        assert not differs, "not as after an apply that nobody disturbed:\n" + "\n".join(differs)
        assert not list(self.temporary.iterdir()), "a killed apply's folder stays here"
        assert not masters(self.temporary), "an ssh master lives on"


def end(child: subprocess.Popen[str], way: str) -> str:
    """End the apply in that way; what it said."""
    if way == "all-killed":
        for pid in [child.pid, *descendants(child.pid)]:
            send(pid, signal.SIGKILL)
    else:
        send(child.pid, {"killed": signal.SIGKILL, "terminated": signal.SIGTERM, "interrupted": signal.SIGINT}[way])
    started = time.monotonic()
    told = child.communicate(timeout=300)[0]
    assert time.monotonic() - started < BOUND, told
    return told


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def masters(place: Path) -> list[str]:
    """ssh connections whose socket is, or was, in a folder of this place."""
    return [line for line in commands() if line.startswith("ssh: ") and str(place) in line]


def trials(machine: Machine, place: Path, rounds: int, seed: int, say: Any = print) -> None:
    """So many rounds, the ways in turn, each at a random moment of the apply."""
    chance, trial = random.Random(seed), Trial(machine, place)
    trial.undisturbed()
    say(f"an undisturbed apply takes {trial.seconds:.1f} s; seed {seed}")
    for number in range(rounds):
        way, after = WAYS[number % len(WAYS)], chance.uniform(0.5, trial.seconds)
        say(f"round {number + 1} of {rounds}: {way} after {after:.1f} s")
        trial.round(way, after)


def main(rounds: str = "20", seed: str = "") -> None:
    name = "kills"
    container.down(name)
    try:
        with tempfile.TemporaryDirectory() as place:
            trials(Machine(hosts.up(name, Description())), Path(place), int(rounds), int(seed or time.time()))
    finally:
        container.down(name)


if __name__ == "__main__":
    main(*sys.argv[1:])
