"""`python -m benchmarks.controller [--hosts 1,2,4] [--runs 2]`: this machine's CPU seconds for `plan`, and for an
`apply` that changes something.

Simulated Debian hosts get another setting of `readings` each time. User and system time of all processes of the command
count, those of the hosts do not: what is fixed, and what a further host adds. The floor is `ansible-playbook` with one
raw task on the same hosts. Needs root and podman.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

from gpuprov.simulate import container, inventory
from gpuprov.simulate.description import Description

BIN = Path(sys.executable).parent
NAME = "bench-controller"
DAYS = count(31)
PLAY = "- {hosts: all, gather_facts: false, tasks: [{ansible.builtin.raw: 'true'}]}\n"


class Spent(NamedTuple):
    """CPU seconds of all processes of a command, and seconds by the clock."""

    cpu: float
    clock: float


def spent(argv: Sequence[str | Path], allowed: Sequence[int]) -> Spent:
    """Return the cost of one command; its error message ends the benchmark."""
    before, started = os.times(), time.perf_counter()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, text=True, capture_output=True, check=False)
    after, ended = os.times(), time.perf_counter()
    if done.returncode not in allowed:
        raise SystemExit(f"{argv[0]} exited with {done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
    user, system = after.children_user - before.children_user, after.children_system - before.children_system
    return Spent(user + system, ended - started)


def least(argv: Sequence[str | Path], runs: int, folder: Path, allowed: Sequence[int] = (0,)) -> Spent:
    """Return the run of least CPU time; before each run the spec is changed to a value that no host has yet."""
    turns = []
    for _ in range(runs):
        spec = {"nouveau": {}, "readings": {"keep_days": next(DAYS)}}
        (folder / "spec.yaml").write_text(json.dumps({"all": {"vars": {"gpuprov": spec}}}), encoding="utf-8")
        turns.append(spent(argv, allowed))
    return min(turns)


def measure(names: Sequence[str], folder: Path, runs: int) -> dict[str, Spent]:
    """Measure each command with these hosts."""
    (folder / "play.yml").write_text(PLAY, encoding="utf-8")
    hosts = folder / "hosts.yaml"
    given = (hosts, folder / "spec.yaml")
    gpuprov = BIN / "gpuprov"
    return {
        "ansible-playbook of one raw task (the floor)": least(
            [BIN / "ansible-playbook", "-i", hosts, folder / "play.yml"], runs, folder
        ),
        "gpuprov plan --quick": least([gpuprov, "plan", "--quick", "--no-cache", *given], runs, folder, (1,)),
        "gpuprov plan": least([gpuprov, "plan", "--no-cache", *given], runs, folder, (1,)),
        "gpuprov apply": least([gpuprov, "apply", "--yes", "--no-cache", *given], runs, folder),
        "gpuprov apply --full": least([gpuprov, "apply", "--yes", "--full", "--no-cache", *given], runs, folder),
    }


def show(counts: Sequence[int], results: Sequence[dict[str, Spent]]) -> None:
    """Print a row per command: the cost for each number of hosts, and of each further host."""
    load = os.getloadavg()[0]
    sys.stdout.write(f"CPU seconds of the controller (by the clock); load {load:.1f}\n")
    heads = "".join(f"{f'{number} hosts':>18}" for number in counts)
    sys.stdout.write(f"  {'':<46}{heads}{'a further host':>18}\n")
    for name in results[0]:
        row = [result[name] for result in results]
        cells = "".join(f"{f'{one.cpu:.2f} ({one.clock:.1f})':>18}" for one in row)
        further = (row[-1].cpu - row[0].cpu) / (counts[-1] - counts[0]) if len(counts) > 1 else 0.0
        sys.stdout.write(f"  {name:<46}{cells}{f'{further:.2f}':>18}\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.controller", description=__doc__)
    parser.add_argument("--hosts", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--keep", action="store_true", help="leave the hosts for another run")
    given = parser.parse_args()
    names = [f"{NAME}{number}" for number in range(max(given.hosts))]
    try:
        hosts = [container.up(name, Description(user="root")) for name in names]
        results = []
        with tempfile.TemporaryDirectory(prefix="gpuprov-bench-") as name:
            for number in given.hosts:
                inventory.write(hosts[:number], Path(name) / "hosts.yaml")
                results.append(measure(names[:number], Path(name), given.runs))
        show(given.hosts, results)
    finally:
        for name in names if not given.keep else ():
            container.down(name)


if __name__ == "__main__":
    main()
