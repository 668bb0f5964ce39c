"""`python -m benchmarks.driver_change [--runs 2]`: a real driver change against the time of its own downloads and DKMS
build.

One simulated Debian host gets the second newest driver of its archive (a real DKMS build). Copies of it go to the
newest: once by one bare apt-get with the same packages, which downloads, unpacks and builds (the floor), once by
`gpuprov apply`, which also resolves, builds before it replaces, holds and verifies. They take turns, and the fastest
run of each counts: on a shared machine the same build takes 140 to 170 s. CPU time, of the host and of the controller,
is printed beside it: it says what is added where other work slows one of the two. Needs root and podman; takes about 20
minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.clock import Timing, row
from gpuprov.simulate import container, inventory
from gpuprov.simulate.description import Description
from gpuprov.simulate.engine import engine
from gpuprov.simulate.host import SimulatedHost

GPUPROV = Path(sys.executable).parent / "gpuprov"
IMAGE = "localhost/gpuprov-bench:older"
DRIVER = "nvidia-kernel-dkms"
ALLOWED = 1.08


class Spent(NamedTuple):
    """The cost of one change: wall-clock seconds, and CPU time on the host and on the controller."""

    seconds: float
    host: float
    controller: float

    def __str__(self) -> str:
        return f"{self.seconds:.0f} s, CPU {self.host:.1f} s on the host and {self.controller:.1f} s on the controller"


def spec(version: str) -> str:
    """Return an inventory's variables that request this driver."""
    return json.dumps({"all": {"vars": {"gpuprov": {"nvidia_driver": {"version": version}}}}})


def inventory_of(host: SimulatedHost, version: str, folder: Path) -> Path:
    """Write an inventory of one host with one driver version."""
    place = folder / f"{host.name}-{version}"
    place.mkdir(exist_ok=True)
    inventory.write([host], place / "hosts.yaml")
    (place / "spec.yaml").write_text(spec(version), encoding="utf-8")
    return place


def gpuprov(*arguments: str | Path) -> str:
    """Return gpuprov's output; its error message ends the benchmark."""
    done = subprocess.run([GPUPROV, *arguments], stdin=subprocess.DEVNULL, text=True, capture_output=True, check=False)
    if done.returncode not in (0, 1 if arguments[0] == "plan" else 0):
        raise SystemExit(
            f"gpuprov {arguments[0]} exited with {done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
        )
    return done.stdout


def versions(host: str) -> tuple[str, str]:
    """Return the two newest driver versions in the host's archive."""
    lines = container.run(host, f"apt-get -qq update; apt-cache madison {DRIVER} | cut -d '|' -f 2").split()
    found = list(dict.fromkeys(line.partition("-")[0] for line in lines))
    if len(found) < 2:
        raise SystemExit(f"the archive has one driver version only: {found}")
    return found[0], found[1]


def by_apt(packages: list[str]) -> Spent:
    """Measure one bare transaction on a copy of the host."""
    script = (
        "export DEBIAN_FRONTEND=noninteractive autoinstall_all_kernels=1; "
        "apt-mark unhold $(apt-mark showhold) > /dev/null; apt-get clean; "
        f"apt-get -y -q --no-install-recommends -o Dpkg::Options::=--force-confold install {' '.join(packages)} > "
        "/var/log/floor 2>&1"
    )
    return _on_a_copy("bench-floor", lambda _host: container.run("bench-floor", script))


def by_gpuprov(newest: str, folder: Path) -> Spent:
    """Measure `gpuprov apply` on a copy of the host."""

    def apply(host: SimulatedHost) -> object:
        return gpuprov("apply", "--yes", "--no-cache", inventory_of(host, newest, folder))

    return _on_a_copy("bench-change", apply)


def _on_a_copy(name: str, work: Callable[[SimulatedHost], object]) -> Spent:
    container.down(name)
    try:
        host = container.up(name, Description(user="root"), tag=IMAGE)
        before = Spent(time.perf_counter(), _host_cpu(name), _own_cpu())
        work(host)
        after = Spent(time.perf_counter(), _host_cpu(name), _own_cpu())
        return Spent(*(end - start for start, end in zip(before, after, strict=True)))
    finally:
        container.down(name)


def _host_cpu(name: str) -> float:
    """Return the container's CPU time since it was started; with either version of control groups."""
    read = (
        "awk '/^usage_usec/ {print $2 * 1000}' /sys/fs/cgroup/cpu.stat 2> /dev/null || cat "
        "/sys/fs/cgroup/cpuacct/cpuacct.usage"
    )
    return float(container.run(name, read)) / 1e9


def _own_cpu() -> float:
    times = os.times()
    return times.children_user + times.children_system


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.driver_change", description=__doc__)
    parser.add_argument("--runs", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpuprov-bench-") as name:
        folder = Path(name)
        container.down("bench-older")
        host = container.up("bench-older", Description(user="root"))
        try:
            newest, older = versions(host.name)
            sys.stderr.write(f"applying {older} (a real DKMS build) ...\n")
            gpuprov("apply", "--yes", inventory_of(host, older, folder))
            plan = json.loads(gpuprov("plan", "--quick", "--json", inventory_of(host, newest, folder)))
            packages = [f"{change['name']}={change['after']}" for change in plan["hosts"][0]["packages"]]
            container.run(host.name, "apt-get clean; sync")
            container.freeze(host.name, IMAGE)
        finally:
            container.down(host.name)
        try:
            rounds = [(by_apt(packages), by_gpuprov(newest, folder)) for _ in range(given.runs)]
        finally:
            engine("rmi", "--force", IMAGE)
    floor, ours = (Timing(min(spent.seconds for spent in turns), 0) for turns in zip(*rounds, strict=True))
    sys.stdout.write(f"\n{older} -> {newest}, {len(packages)} packages\n")
    for apt, change in rounds:
        sys.stdout.write(f"  round: apt-get {apt}; gpuprov {change}\n")
    row("one apt-get: downloads, unpacking, DKMS build (the floor)", floor)
    row("gpuprov apply", ours, floor)
    row(f"allowed ({ALLOWED}x)", Timing(floor.seconds * ALLOWED, 0), floor)


if __name__ == "__main__":
    main()
