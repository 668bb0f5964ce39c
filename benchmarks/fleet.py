"""Many hosts simulated by a stub of ssh: the cost of each command on the controller, for each host.

usage: python -m benchmarks.fleet [HOSTS]... 1000 by default. `fold` and `freeze` take ten times as many.

A stub answers at once like a good host, so that gpuprov's own work is measured. On a machine that others use, too, CPU
seconds are more reliable than wall-clock time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from gpuprov.jobs.results import Results
from tests.jobs import stub
from tests.jobs.fleet import result

SPEC: dict[str, object] = {
    "gpu": {"model": "H100-SXM5-80GB", "count": 8},
    "nouveau": {},
    "nvidia_driver": {"version": "535"},
    "persistence": {},
    "fabric_manager": {},
    "container_toolkit": {"runtimes": ["containerd"]},
    "dcgm": {},
}
GOALS = {"verify": 10.0, "plan --quick": 10.0, "work --act verify": 10.0}
"""Milliseconds of CPU per host."""


def cost(folder: Path, *arguments: str | Path) -> dict[str, float]:
    """Return the cost of a gpuprov command. Its exit code is ignored: a stub host is not green in every respect."""
    file = folder / "costs"
    file.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "benchmarks.own", str(file), *map(str, arguments)]
    environment = {**os.environ, "HOME": str(folder)}
    null = subprocess.DEVNULL
    done = subprocess.run(argv, stdout=null, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"{arguments[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    costs: dict[str, float] = json.loads(file.read_text(encoding="utf-8").splitlines()[-1])
    return costs


def row(name: str, count: int, costs: dict[str, float], floor: float) -> None:
    own = 1000 * costs["own"] / count
    goal = f" (goal {GOALS[name]:g})" if name in GOALS else ""
    sys.stdout.write(
        f"  {name:<20} {costs['own']:7.1f} CPU-s  {own:6.2f} ms a host{goal:<10} {own / floor:6.2f}x  "
        f"ssh {costs['theirs']:6.1f} CPU-s  {costs['mebibytes']:5.0f} MiB  {costs['seconds']:6.1f} s by the clock\n"
    )
    sys.stdout.flush()


def started(count: int) -> float:
    """Return the floor: milliseconds of CPU to start a program and read its output, for each of so many."""
    before = os.times()
    for _ in range(count):
        subprocess.run(["/bin/true"], capture_output=True, check=False)
    after = os.times()
    return 1000 * (after.user + after.system - before.user - before.system) / count


def inventory(folder: Path, count: int) -> Path:
    """Write an inventory of stub hosts, named in a range, one spec for all."""
    ssh = stub.transport(folder / "stub", SPEC)
    known = f"ansible_ssh_executable: {ssh}, gpuprov: {json.dumps(SPEC)}"
    file = folder / "inventory.yaml"
    file.write_text(f"all: {{vars: {{{known}}}, hosts: {{'gpu[000001:{count:06}]': {{}}}}}}\n", encoding="utf-8")
    return file


def scale(folder: Path, count: int) -> None:
    floor = started(500)
    sys.stdout.write(f"\n{count} stub hosts; to start a program and read it: {floor:.2f} ms (the floor)\n")
    file = inventory(folder, count)
    row("check", count, cost(folder, "check", file), floor)
    row("verify", count, cost(folder, "verify", file, "--json"), floor)
    row("plan --quick", count, cost(folder, "plan", file, "--quick", "--json"), floor)
    row("freeze", count, cost(folder, "fleet", "freeze", file, "--out", folder / "fleet.json"), floor)
    row(
        "slice",
        count,
        cost(folder, "fleet", "slice", folder / "fleet.json", "--size", "50", "--out", folder / "jobs"),
        floor,
    )
    jobs = sorted((folder / "jobs").iterdir())[:4]
    size = min(50, count)
    for job in jobs[:1]:
        costs = cost(folder, "fleet", "work", job, "--results", folder / "results", "--run", "bench")
        row("work --act verify", size, costs, floor)
    many = count * 10
    results = Results(folder / "many")
    for number in range(many):
        write(results, f"gpu{number:07}")
    results.close()
    row(f"fold of {many}", many, cost(folder, "fleet", "fold", folder / "many", "--json"), floor)


def write(results: Results, host: str) -> None:
    """Write a result, without waiting for the disk as a worker does."""
    (results.folder / f"{host}.json").write_bytes(msgspec.json.encode(result(host)))


def main() -> None:
    counts = [int(one) for one in sys.argv[1:]] or [1000]
    sys.stdout.write(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.0f}\n")
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="gpuprov-bench-") as name:
            scale(Path(name), count)


if __name__ == "__main__":
    main()
