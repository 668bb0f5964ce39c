"""`python -m tests.campaign.power [RUNS [SEED]]`: what only a machine with its own kernel, disk and clock can have.

Its power is cut in the middle of dpkg, DKMS or the initramfs: what the guest had not flushed is lost. Its root disk fills up.
Its clock jumps. Emulated, a run takes many minutes.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuprov.errors import GpuprovError
from gpuprov.simulate import hosts, inventory, machine
from gpuprov.simulate.description import Description, Gpus
from tests.campaign import outside
from tests.campaign.classes import LOST, Fault
from tests.campaign.group import Run, failures
from tests.e2e.lab import GPUPROV, descendants, tail

DESCRIPTION = Description(kind="machine", gpu=Gpus(model="L40S", count=1), durable=True)
TAG = "campaign-power"
LIMIT = 3000.0
MARK = "campaign: now"
MOMENTS = {
    "dpkg": "pgrep -f 'dpkg .*--(unpack|configure|install)'",
    "DKMS": "pgrep -x 'dkms|make|cc1'",
    "initramfs": "pgrep -x 'mkinitramfs|update-initramf'",
}
KINDS = ("dpkg", "DKMS", "initramfs", "root full", "clock")
# Said on the console once the program has run for so long: over ssh it would come too late.
WATCH = """systemd-run --quiet --collect --unit campaign-watch sh -c "
while ! {asked} >/dev/null; do sleep 0.1; done; sleep {later}; {then} printf '\\n{mark}\\n' > /dev/ttyS0" """
FILL = "dd if=/dev/zero of=/var/tmp/.campaign-fill bs=1M 2>/dev/null; sync;"


@dataclass(frozen=True)
class Moment:
    """What happens to the machine."""

    fault: Fault
    watch: str
    """Run on the machine before the apply: it waits for the moment."""


def drawn(number: int, seed: str) -> Moment:
    """The fault of this run."""
    chance, kind = random.Random(f"{seed}:{number}:machine"), KINDS[number % len(KINDS)]
    later, by = chance.uniform(0, 6), chance.choice(["-400 days", "-2 days", "+2 days", "+400 days"])
    name, what, cause, then = {
        "root full": ("root disk full", "the root disk is full", "no space left|full|free space", FILL),
        "clock": ("clock jumps", f"the clock jumps by {by}", "clock|valid|date", f"date -s '{by}' >/dev/null;"),
    }.get(kind, (f"power cut in {kind}", "the power is cut", LOST, ""))
    program = kind if kind in MOMENTS else "dpkg"
    fault = Fault(
        f"machine: {name}", f"{what} {later:.1f} s into {program}", lambda _: None, cause, died=kind in MOMENTS
    )
    return Moment(fault, WATCH.format(asked=MOMENTS[program], later=f"{later:.1f}", then=then, mark=MARK))


class Machine:
    """One machine with the old driver, started from a kept disk for each run."""

    def __init__(self, name: str, place: Path) -> None:
        self.name, self.place, self.versions = name, place, ("", "")
        self.way: tuple[str, ...] = ()

    def up(self, tag: str | None = None) -> None:
        """Start it, or start it again."""
        host = machine.up(self.name, DESCRIPTION, tag=tag)
        self.way = ("ssh", "-q", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
                    "-i", host.key_file, "-p", str(host.port), f"root@{host.address}", "bash")  # fmt: skip
        spec: dict[str, Any] = {"nouveau": {}, "nvidia_driver": {"version": self.versions[1]}, "persistence": {}}
        (self.place / "hosts.yaml").write_text(inventory.text([host], spec), encoding="utf-8")

    def prepare(self) -> None:
        """The old driver; the disk is kept."""
        machine.down(self.name)
        hosts.up(self.name, DESCRIPTION)
        said = machine.run(
            self.name,
            "apt-get -qq update >&2; apt-cache madison nvidia-kernel-dkms | cut -d'|' -f2 | tr -d ' ' | sort -uV",
        )
        old, new = (version.split("-")[0] for version in said.split()[-2:])
        self.versions = (old, old)
        self.up()
        code, told, _ = self.apply()
        assert code in (0, 1), told
        machine.reboot(self.name)
        self.versions = (old, new)
        machine.freeze(self.name, TAG)

    def apply(self) -> tuple[int | None, str, float]:
        """Its exit code, what it said, its seconds."""
        started = time.monotonic()
        with subprocess.Popen([GPUPROV, "apply", str(self.place / "hosts.yaml"), "--yes"], text=True, errors="replace",
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:  # fmt: skip
            try:
                told = child.communicate(timeout=LIMIT)[0]
            except subprocess.TimeoutExpired:
                subprocess.run(["kill", "-KILL", *map(str, [child.pid, *descendants(child.pid)])], check=False)
                return None, child.communicate()[0], LIMIT
        return child.returncode, f"{told}(exit code {child.returncode})\n", time.monotonic() - started

    def cut(self, over: threading.Event, run: Run) -> None:
        """Wait for the mark on the console, and cut the power where that is the fault."""
        while not over.wait(0.05):
            if MARK in machine.console(self.name):
                if run.fault.died:
                    machine.cut(self.name)
                return
        run.notes.append("the moment did not come")

    def run(self, run: Run, moment: Moment) -> Run:
        """One disturbed apply, the next one, and the one after it."""
        machine.down(self.name)
        self.up(TAG)
        outside.plant(self.way)
        before, over = outside.look(self.way), threading.Event()
        outside.inside(self.way, moment.watch)
        thread = threading.Thread(target=self.cut, args=(over, run))
        thread.start()
        code, told, run.seconds = self.apply()
        over.set()
        thread.join()
        run.told += f"--- disturbed ---\n{tail(told)}"
        if code is None:
            run.broken.append(f"bounded: the apply did not end within {LIMIT:g} s")
        if mine := failures(told, self.name):
            run.named = bool(re.search(run.fault.cause, mine, re.IGNORECASE))
        try:
            self.up()
            outside.inside(self.way, "rm -f /var/tmp/.campaign-fill")
            run.broken += outside.judge(before, outside.look(self.way), self.versions, died=run.fault.died)
            outside.plant(self.way)
            self.complete(run)
        except (GpuprovError, outside.Silent) as error:
            run.broken.append(f"driver: the machine does not start again: {error}")
        return run

    def complete(self, run: Run) -> None:
        """The next apply completes what the fault left, and the one after it changes nothing."""
        code, told, _ = self.apply()
        run.told += f"--- next ---\n{tail(told)}"
        now = outside.look(self.way)
        if code not in (0, 1) or failures(told, self.name):
            run.broken.append(f"completes: the next apply ended with {code}")
        if now.word("audit"):
            run.broken.append(f"completes: dpkg --audit: {now.word('audit')}")
        wrong = [row for row in now.rows("module") if row[1:] != [self.versions[1]]]
        run.broken += [f"completes: kernel {row[0]} has {' '.join(row[1:]) or 'no module'}" for row in wrong]
        times = outside.inside(self.way, outside.TIMES)
        third, idle, _ = self.apply()
        run.told += f"--- third ---\n{tail(idle)}"
        if third != code:
            run.broken.append(f"idle: the third apply ended with {third}")
        run.broken += [
            f"idle: {line}" for line in outside.differences(times, outside.inside(self.way, outside.TIMES), 4)
        ]


def campaign(numbers: range, seed: str, kept: Callable[[Run], None], name: str = "camppower") -> int:
    """How many runs broke an invariant."""
    broken = 0
    with tempfile.TemporaryDirectory() as folder:
        subject = Machine(name, Path(folder))
        try:
            subject.prepare()
            for number in numbers:
                moment = drawn(number, seed)
                done = subject.run(Run(number, "machine", moment.fault), moment)
                kept(done)
                broken += bool(done.broken)
        finally:
            machine.down(name)
            machine.discard(TAG)
    return broken


def main(runs: str = "5", seed: str = "") -> int:
    """0 if every run held."""
    from tests.campaign.__main__ import KEPT, kept

    seed = seed or str(random.SystemRandom().randrange(10**6))
    KEPT.mkdir(parents=True, exist_ok=True)
    return int(bool(campaign(range(int(runs)), seed, lambda run: kept(run, seed, KEPT))))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
