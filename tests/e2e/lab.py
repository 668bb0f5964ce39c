"""The hosts and commands of the end-to-end tests. Hosts are copied from images of earlier ones, so that a driver builds
once."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuprov.simulate import container, hosts, image, inventory
from gpuprov.simulate.description import Description, Gpus, User
from tests.e2e.machine import FORGET_ARCHIVE, Machine
from tests.e2e.mirror import Mirror

GPUPROV = str(Path(sys.executable).with_name("gpuprov"))
REPOSITORY = "localhost/gpuprov-e2e"
LOCK = Path("/run/lock/gpuprov-e2e")  # shared by all labs of the machine
IMAGES = Path("/run/lock/gpuprov-e2e-images")  # one lab at a time makes hosts and images that are known by their names
SHARED = ("e2e-first", "e2e-moved", "e2e-upgraded")  # hosts that several tests use
SIMULATED = Description(gpu=Gpus(model="L40S", count=2))
SPEC: dict[str, Any] = {"nouveau": {}, "nvidia_driver": {"version": "535"}, "persistence": {}}
# The driver's configure tests have their process id in every name: no cache can know them again.
CACHED_COMPILER = """#!/bin/sh
case "$*" in *conftest*) exec "/usr/bin/${0##*/}" "$@";; esac
exec ccache "/usr/bin/${0##*/}" "$@"
"""
PATIENCE = 900.0  # seconds for one command: a cold driver build on a busy machine


def tail(text: str, most: int = 6000) -> str:
    """The end of a text, for reports."""
    return text if len(text) <= most else f"(... {len(text) - most} characters)\n{text[-most:]}"


@dataclass(repr=False)
class Ran:
    """One command: what it was, what it said, how it ended, how long it took."""

    command: list[str]
    code: int
    out: str
    err: str
    seconds: float

    @property
    def text(self) -> str:
        """Both streams on one line, for messages that are wrapped."""
        return " ".join((self.out + " " + self.err).split())

    @property
    def json(self) -> Any:
        """What was printed; of `verify` the results."""
        told = json.loads(self.out)
        return told["results"] if isinstance(told, dict) and "verdict" in told else told

    def failed(self, capability: str = "") -> dict[str, dict[str, Any]]:
        """Of `verify --json`: what failed, by check; of one capability, if it is named."""
        found = {row["check"]: row for row in self.json if row["status"] == "fail"}
        return {check: row for check, row in found.items() if check.startswith(capability and f"{capability}.")}

    def __repr__(self) -> str:
        return (
            f"$ {' '.join(self.command)}\n{tail(self.out)}\n{tail(self.err)}\n(exit code {self.code}, "
            f"{self.seconds:.1f} s)\n"
        )


def spec_of(version: str, **more: Any) -> dict[str, Any]:
    """The usual spec with this driver version."""
    return {**SPEC, "nvidia_driver": {"version": version, **more}}


@dataclass
class First:
    """A host on which gpuprov ran for the first time, and what it said before, then and after."""

    machine: Machine
    inventory: str
    before: str
    plan: Ran
    between: str
    apply: Ran


@dataclass
class Moved:
    """A host whose driver went from the newest to the second newest version."""

    machine: Machine
    apply: Ran


@dataclass
class Lab:
    """Makes hosts, runs gpuprov on them, remembers both for the report of a failed test."""

    folder: Path
    stack: ExitStack
    ran: list[tuple[str, Ran]] = field(default_factory=list)
    machines: dict[str, Machine] = field(default_factory=dict)
    images: list[str] = field(default_factory=list)
    locked: bool = False
    test: str = ""

    def machine(self, name: str, snapshot: str = "prepared", *, user: User = "gpuadmin") -> Machine:
        """A host with the disk of a snapshot; the one of that name goes first."""
        if snapshot == "prepared" and f"{REPOSITORY}:prepared" not in self.images:
            self.lock()
            self.prepare()
        return self._machine(name, Description(user=user), f"{REPOSITORY}:{snapshot}")

    def simulated(self, name: str, snapshot: str = "", *, archive: bool = False) -> Machine:
        """A host with simulated GPUs, whose driver modules build in seconds; fresh, or with the disk of a snapshot of
        such a one. archive: with Debian's own archive among its package sources.

        No driver is loaded in it: a container cannot change the one of its machine, and packages are what is looked at.
        """
        machine = self._machine(name, SIMULATED, f"{REPOSITORY}:{snapshot}" if snapshot else None)
        machine.sh("! mountpoint -q /proc/driver || umount /proc/driver" + ("" if archive else f"\n{FORGET_ARCHIVE}"))
        return machine

    def _machine(self, name: str, description: Description, tag: str | None) -> Machine:
        self.lock()
        full = f"e2e-{name}"
        container.down(full)
        self.machines[full] = Machine(hosts.up(full, description, tag=tag))
        return self.machines[full]

    def lock(self) -> None:
        """Wait until no other lab has hosts or images of these names; held to the end."""
        if not self.locked:
            fcntl.flock(self.stack.enter_context(IMAGES.open("w")), fcntl.LOCK_EX)
            self.locked = True

    def clear(self) -> None:
        """Take down the hosts of a test. Systemd in many containers would use up the machine's inotify instances."""
        for name in [name for name in self.machines if name not in SHARED]:
            container.down(name)
            del self.machines[name]

    def prepare(self) -> None:
        """The first snapshot: package lists, the proxy for packages, and a compiler cache that outlives this run."""
        mirror = self.stack.enter_context(Mirror(cache=image.cache_dir() / "debs"))
        container.down("e2e-prepare")
        machine = Machine(container.up("e2e-prepare"))
        machine.write("/etc/apt/apt.conf.d/00mirror", mirror.apt_conf(container.gateway("e2e-prepare")))
        machine.sh("apt-get -qq update; apt-get -qq install -y --no-install-recommends ccache >/dev/null 2>&1")
        # The build calls gcc-12 (or 14) by name, and /usr/local/bin comes first.
        for compiler in machine.sh("cd /usr/bin; ls gcc-[0-9]*").split():
            machine.write(f"/usr/local/bin/{compiler}", CACHED_COMPILER, "0755")
        machine.write("/etc/ccache.conf", "cache_dir = /var/cache/ccache\nmax_size = 2G\n")
        kept = compiler_cache()
        if kept.exists():
            podman("cp", str(kept), f"{container.PREFIX}e2e-prepare:/var/cache/")
        self.freeze(machine, "prepared")
        container.down("e2e-prepare")

    def freeze(self, machine: Machine, snapshot: str) -> None:
        """Make a snapshot of a host's disk; its downloaded packages are left out, so that a copy downloads again."""
        machine.sh("apt-get clean; sync")
        container.freeze(machine.name, f"{REPOSITORY}:{snapshot}")
        self.images.append(f"{REPOSITORY}:{snapshot}")

    def keep_compiler_cache(self, machine: Machine) -> None:
        """Save the compiler's cache for the next run."""
        kept = compiler_cache()
        kept.mkdir(parents=True, exist_ok=True)
        podman("cp", f"{container.PREFIX}{machine.name}:/var/cache/ccache/.", str(kept))

    def inventory(self, spec: dict[str, Any] | None, *machines: Machine, **extra: dict[str, Any]) -> Path:
        """An inventory of these hosts with one spec for all (None: no spec); `extra`: further hosts' variables by
        name."""
        name = "-".join(machine.name for machine in machines) or "none"
        folder = self.folder / "inventories" / f"{name}-{len(list((self.folder / 'inventories').iterdir()))}"
        folder.mkdir()
        inventory.write([machine.host for machine in machines], folder / "hosts.yaml")
        variables = {} if spec is None else {"vars": {"gpuprov": spec}}
        more = {"hosts": {host.replace("_", "-"): values for host, values in extra.items()}}
        (folder / "spec.yaml").write_text(json.dumps({"all": {**variables, **more}}, indent=2), encoding="utf-8")
        return folder

    def environment(self) -> dict[str, str]:
        """Ours, with gpuprov's logs and cache in the lab's folder."""
        mine = {"XDG_STATE_HOME": str(self.folder / "state"), "XDG_CACHE_HOME": str(self.folder / "cache")}
        return {**os.environ, **mine}

    def run(self, *command: str | Path) -> Ran:
        """gpuprov with these arguments; its time is printed in the summary."""
        return self.finish(self.start(*command))

    def start(self, *command: str | Path, program: Sequence[str] = (GPUPROV,)) -> Running:
        """gpuprov with these arguments, not waited for, in a session of its own."""
        words = [*program, *map(str, command)]
        child = subprocess.Popen(
            words, cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        return Running(words, child, time.monotonic())

    def finish(self, running: Running) -> Ran:
        """Wait for a command and note it."""
        try:
            out, err = running.child.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            running.kill()
            out, err = running.child.communicate()
            err += f"\nkilled after {PATIENCE:g} s"
        words = [Path(running.command[0]).name, *running.command[1:]]
        ran = Ran(words, running.child.returncode, out, err, time.monotonic() - running.since)
        self.ran.append((self.test, ran))
        print(ran)
        return ran

    def log(self) -> str:
        """The newest log of an apply."""
        logs = sorted((self.folder / "state").rglob("*.log"), key=lambda path: path.stat().st_mtime)
        return f"{logs[-1]}:\n{logs[-1].read_text(errors='replace')[-8000:]}" if logs else "gpuprov wrote no log"


@dataclass
class Running:
    """A command under way."""

    command: list[str]
    child: subprocess.Popen[str]
    since: float

    def kill(self) -> None:
        """SIGKILL to it and to all it started, parents first."""
        for pid in [self.child.pid, *descendants(self.child.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """All processes below one, nearest first."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
    found, waiting = [], [pid]
    while waiting:
        children = parents.get(waiting.pop(0), [])
        found += children
        waiting += children
    return found


def compiler_cache() -> Path:
    """Where the compiler's cache is kept between runs."""
    return image.cache_dir() / "ccache"


def podman(*arguments: str) -> str:
    """podman, for what gpuprov.simulate does not offer."""
    done = subprocess.run(["podman", *arguments], text=True, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"podman {' '.join(arguments)}: {done.stderr}"
    return done.stdout


@contextmanager
def loaded(name: str, description: Description, *packages: str) -> Iterator[Machine]:
    """A host of a lab's run whose driver of Debian's, and these packages, are there and loaded; it goes at the end."""
    container.down(name)
    try:
        machine = Machine(hosts.up(name, description))
        machine.sh(
            "DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends nvidia-kernel-dkms nvidia-smi"
            f" {' '.join(packages)} >/dev/null 2>&1\n"
            "echo 'blacklist nouveau' > /etc/modprobe.d/before.conf\n/usr/lib/gpuprov-sim/silicon boot"
        )
        yield machine
    finally:
        container.down(name)


@contextmanager
def laboratory(folder: Path) -> Iterator[Lab]:
    """A lab; its hosts and images go at the end, also when the tests are told to end."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    (folder / "inventories").mkdir()
    with ExitStack() as stack:
        fcntl.flock(stack.enter_context(LOCK.open("w")), fcntl.LOCK_SH)
        lab = Lab(folder, stack)
        try:
            yield lab
        finally:
            for name in [*lab.machines, *(["e2e-prepare"] if lab.locked else [])]:
                container.down(name)
            for tag in reversed(lab.images):
                with suppress(AssertionError):
                    podman("image", "rm", "--force", tag)
