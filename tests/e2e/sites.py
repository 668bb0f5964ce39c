"""Three sites on one machine: simulated hosts that are really changed among a thousand stub hosts, and Slurm for some
of them.

As a program it is what `gpuprov` is there, with two things put in: a job's stub hosts are done by
`tests/rollout/stub.py` (its other hosts by `gpuprov fleet work`), and hosts without a node in Slurm have a folder for a
scheduler. `worker SITE ADDRESS FOLDER`, `start FOLDER ID [ADDRESS]`, `work ...`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from gpuprov.core import terminal
from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.drain import Adapter
from gpuprov.fleet.drain.slurm.adapter import Slurm as InSlurm
from gpuprov.fleet.policy.state import folded
from gpuprov.jobs import stored
from gpuprov.jobs.model import digest_of
from gpuprov.rollout.project import Project
from gpuprov.rollout.status import status
from gpuprov.simulate import container, hosts, inventory
from gpuprov.simulate.description import Description
from tests.e2e import kills, slurm
from tests.e2e.lab import descendants
from tests.e2e.machine import Machine
from tests.rollout import made, stub
from tests.rollout.temporal import lab

PREFIX, CLUSTER = "e2e-site-", "e2e-site-slurm"
STUBS = 1000
SITES = "abc"
REAL = {"1": "a", "2": "b", "3": "a", "4": "c", "5": "b", "6": "c"}
"""The hosts that are changed for good: two in the canary, and two in each batch."""
NODES = {"1": "gpu1", "2": "gpu3", "3": "gpu2", "5": "gpu4"}
BROKEN = "3"
"""Its initramfs cannot be built."""
POLICY = f"""\
gpuprov_rollout: 1
site: site
domain: rack
canary: {{hosts: [{PREFIX}1, {PREFIX}2, stub0000, stub0001, stub0002], soak: 3s}}
batches: {{size: 50%, soak: 2s}}
limits: {{at_once: 250, per_domain: 40, jobs: 2, job_size: 50}}
budget: {{batch: 2, whole: 2}}
retry: {{attempts: 3, after: 1s}}
drain: {{adapter: slurm, poll: 1s}}
"""
BEHAVIOUR = {
    "stub0005": ["failed"],
    "stub0007": ["locked", "green"],
    "stub0411": ["unreachable", "green"],
    "seconds": 0.02,
}
FAILED = {"stub0005", f"{PREFIX}{BROKEN}"}
ROLLOUT = "friday"
SPEC: dict[str, dict[str, str]] = {"nouveau": {}}
BUILT = "/srv/built"
"""On a host: a line for each build of an initramfs."""
HOOK = f'#!/bin/sh\n[ "$1" = prereqs ] && exit 0\necho built >> {BUILT}\nexit {{code}}\n'
PATIENCE = 900.0
HEARTBEAT = 10.0
"""Seconds until a worker is taken for gone."""


class Both:
    """Slurm for the hosts that have a node there; a folder for the others."""

    name = "slurm"

    def __init__(self, folder: Path, nodes: dict[str, str]) -> None:
        self._marks, self._slurm, self._nodes = made.Marks(folder), InSlurm(nodes), nodes

    def _of(self, host: str) -> Adapter:
        return self._slurm if host in self._nodes else self._marks

    def drain(self, host: str, run: str) -> Any:
        return self._of(host).drain(host, run)

    def drained(self, host: str, run: str) -> Any:
        return self._of(host).drained(host, run)

    def returned(self, host: str, run: str, green: bool) -> Any:
        return self._of(host).returned(host, run, green)


class Sites:
    """The hosts, and the cluster that some are nodes of. They outlive a roll-out: `afresh` undoes it."""

    def __init__(self, folder: Path, real: int = len(REAL)) -> None:
        self.real = [*REAL][:real]
        self.machines = {name: Machine(hosts.up(f"{PREFIX}{name}", Description())) for name in self.real}
        for name, machine in self.machines.items():
            machine.write("/etc/initramfs-tools/hooks/count", HOOK.format(code=int(name == BROKEN)), "0755")
        container.up(CLUSTER)
        self.slurm = slurm.start(CLUSTER, folder)
        self.inventory = folder / "inventory.yaml"
        self.inventory.write_text(json.dumps(self._inventory(folder)), encoding="utf-8")

    def _inventory(self, folder: Path) -> dict[str, Any]:
        """The real hosts of the batches stand in the middle of them."""
        import yaml

        inventory.write([one.host for one in self.machines.values()], folder / "real.yaml")
        known = yaml.safe_load((folder / "real.yaml").read_text())["all"]["hosts"]
        found: dict[str, Any] = {}
        places = {PREFIX + name: place for name, place in zip(REAL, (0, 0, 100, 300, 600, 800), strict=True)}
        for number in range(STUBS):
            for name in [name for name, place in places.items() if place == number and name in known]:
                which = name.removeprefix(PREFIX)
                node = {"host_slurm_node": NODES[which]} if which in NODES else {}
                found[name] = {**known[name], "site": REAL[which], "rack": f"r{which}", **node}
            at = {"site": SITES[number % 3], "rack": f"r{number % 16}"}
            found[f"stub{number:04}"] = {"ansible_host": f"127.9.{number // 250}.{number % 250 + 1}", **at}
        return {"all": {"vars": {"gpuprov": SPEC}, "hosts": found}}

    def afresh(self) -> None:
        """As before the first roll-out."""
        for machine in self.machines.values():
            machine.sh(f"{kills.UNDO} {BUILT} /boot/initrd.img-*.new")
        for node in slurm.NODES:
            self.slurm.sh(f"scontrol update NodeName={node} State=RESUME 2> /dev/null || true")
            self.slurm.wait(node, "State=IDLE", without="DRAIN")

    def seen(self) -> dict[str, str]:
        """What a roll-out has left: files of each host, how often an initramfs was built, and the nodes of the
        cluster."""
        found = {name: machine.sh(f"{kills.STATE}cat {BUILT}") for name, machine in self.machines.items()}
        return found | {node: self.slurm.show(node).partition(" [")[0] for node in NODES.values()}


@contextmanager
def sites(folder: Path, real: int = len(REAL)) -> Iterator[Sites]:
    """The hosts go at the end, unless they are to stay for the next run (GPUPROV_KEEP_SITES)."""
    names = [*(f"{PREFIX}{name}" for name in REAL), CLUSTER]
    for name in names:
        container.down(name)
    try:
        yield Sites(folder, real)
    finally:
        for name in names:
            container.down(name)


class Run:
    """One roll-out over the sites, in a folder of its own: its processes can be killed."""

    def __init__(self, of: Sites, folder: Path, *, temporal: bool) -> None:
        self.sites, self.folder = of, folder
        self.job = ""
        (folder / "behaviour.json").write_text(json.dumps(BEHAVIOUR))
        (folder / "policy.yaml").write_text(POLICY)
        (folder / "inventory.yaml").write_text(of.inventory.read_text())
        self.server = lab.Server(folder) if temporal else None
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.client: subprocess.Popen[bytes] | None = None

    def process(self, name: str, *words: str | Path) -> subprocess.Popen[bytes]:
        """This module as a program; what it says goes to a file of this name."""
        told = {"PATH": f"{self.sites.slurm.folder}:{os.environ['PATH']}", "STUB": str(self.folder)}
        told |= {"XDG_STATE_HOME": str(self.folder / "state"), "XDG_CACHE_HOME": str(self.folder / "cache")}
        command = [sys.executable, "-m", "tests.e2e.sites", *map(str, words)]
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=lab.ROOT, env={**os.environ, **told}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def __enter__(self) -> Run:
        self.sites.afresh()
        script = "cd /tmp && sbatch --parsable -w gpu1 -n1 --wrap 'sleep 8'"
        self.job = self.sites.slurm.sh(script).strip()
        if self.server:
            self.server.start()
            self.work()
            lab.until(self._is_served)
        self.start()
        return self

    def _is_served(self) -> bool:
        """Whether a worker asks for work at each site."""
        from temporalio.api.enums.v1 import TaskQueueType

        from gpuprov.rollout.temporal import messages

        assert self.server
        engine = lab.engine(self.folder, self.server.address)
        activity, workflow = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
        queues = [(messages.queue(site), activity) for site in SITES]
        return all(engine._has_worker(*one) for one in [*queues, (messages.QUEUE, workflow)])

    def work(self) -> None:
        """A worker at each site."""
        assert self.server
        for site in SITES:
            self.workers[site] = self.process(f"worker-{site}", "worker", site, self.server.address, self.folder)

    def start(self) -> None:
        """Begin the roll-out, or wait for the one that was begun."""
        self.client = self.begin("client", ROLLOUT)

    def begin(self, name: str, rollout: str) -> subprocess.Popen[bytes]:
        """Begin a roll-out over all hosts."""
        return self.process(name, "start", self.folder, rollout, *([self.server.address] if self.server else []))

    def kill(self, what: str) -> frozenset[str]:
        """SIGKILL to a part; it is started again. `jobs`: with the processes of all jobs, and what they have started
        here, which are returned."""
        assert self.client
        hands = [*self.workers.values()] or [self.client]
        if what == "server":
            assert self.server
            self.server.kill()
            time.sleep(1)
            self.server.start()
            return frozenset()
        dying = [self.client] if what == "client" else hands
        below = self.below() if what == "jobs" else []
        for pid in [*(one.pid for one in dying), *below]:
            kills.send(pid, signal.SIGKILL)
        for one in dying:
            one.wait()
        if self.client in dying:
            self.start()
        else:
            self.work()
        return frozenset(map(str, below))

    def below(self) -> list[int]:
        """The processes of jobs, whoever has started them, and what those have started."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"STUB={self.folder}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    if b"work" in words:
                        found += [int(entry.name), *descendants(int(entry.name))]
        return found

    def said(self, text: str) -> bool:
        """Whether the client has said it."""
        return text in (self.folder / "client.log").read_text()

    def over(self) -> None:
        """Wait for the end."""
        assert self.client
        code = self.client.wait(PATIENCE)
        assert code == 3, (self.folder / "client.log").read_text()[-4000:]

    def report(self) -> dict[str, Any]:
        """What became of it, without times: as the engine has it, and of all results of the sites as one."""
        results = self.folder / ("kept" if self.server else "state/gpuprov/rollout") / ROLLOUT / "results"
        fleets = [*results.parent.glob("fleet.json"), *results.parent.parent.glob("fleet-*.json")]
        words = [sys.executable, "-m", "gpuprov", "fleet", "fold", str(results), "--fleet", str(fleets[0]), "--json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 3, done.stderr
        folded_results = json.loads(done.stdout)
        for host in folded_results["hosts"]:
            host.pop("seconds")
        return {
            "status": self._status(),
            "fold": {key: folded_results[key] for key in ("summary", "states", "hosts", "results")},
        }

    def _status(self) -> dict[str, Any]:
        if self.server:
            engine = lab.engine(self.folder, self.server.address)
            plan, events = engine.plan(ROLLOUT), engine.events(ROLLOUT)
        else:
            from gpuprov.rollout import project, store

            kept = store.Store(self.folder / "state/gpuprov/rollout")
            plan, events = project.load(kept, ROLLOUT).plan, kept.events(ROLLOUT)
        told = status(ROLLOUT, folded(plan, events), carried_out=False, domains=plan.domains, details={})
        return {**msgspec.to_builtins(told), "begun": ""}

    def attempts(self, dead: frozenset[str] = frozenset()) -> Counter[str]:
        """How often each stub host was begun on, and each initramfs built."""
        return made.attempts(self.folder, dead=dead)

    def __exit__(self, *_: object) -> None:
        for pid in self.below():
            kills.send(pid, signal.SIGKILL)
        ending = [*self.workers.values(), *([self.client] if self.client else [])]
        ending += [self.server.process] if self.server and self.server.process else []
        for one in ending:
            one.kill()
            one.wait()


def moments(run: Run) -> dict[str, Callable[[], bool]]:
    """What a kill waits for."""

    def at_work(name: str) -> bool:
        return "lock" in run.sites.machines[name].sh("ls /run/gpuprov 2> /dev/null || true").split()

    def logged(line: str) -> bool:
        file = run.folder / "log"
        return file.exists() and line in file.read_text()

    return {
        "begun": lambda: run.said("has begun"),
        "draining": lambda: run.said("draining "),
        "canary": lambda: at_work("1"),
        "soak": lambda: run.said("soaks"),
        "batch": lambda: logged("begin apply stub0300 ") or run.said("batch 1 is over"),
    }


def _patched(folder: Path) -> None:
    """Who drains in this process."""

    def adapter(self: Project) -> Both:
        nodes = {one.name: str(one.connection.get("host_slurm_node") or "") for one in self.fleet.hosts}
        return Both(folder / "drained", {name: node for name, node in nodes.items() if node})

    Project.adapter = property(adapter)  # type: ignore[assignment,method-assign]


HANDS = (sys.executable, "-m", "tests.e2e.sites", "work")


def work(words: list[str]) -> int:
    """A job: its stub hosts by the stub, the others by gpuprov; both at once."""
    file = next(Path(one) for one in words if one.endswith(".json"))
    rest = [one for one in words if one != str(file)]
    job = stored.load_job(file)
    real = tuple(one for one in job.hosts if one.name.startswith(PREFIX))
    left = tuple(one for one in job.hosts if one not in real)
    hands = None
    if real:
        mine = msgspec.structs.replace(job, hosts=real)
        mine = msgspec.structs.replace(mine, digest=digest_of(mine))
        stored.save(mine, place := file.with_suffix(".real"))
        hands = subprocess.Popen([sys.executable, "-P", "-m", "gpuprov", "fleet", "work", str(place), *rest])
    if left:
        stored.save(msgspec.structs.replace(job, hosts=left), place := file.with_suffix(".stub"))
        sys.argv = ["stub", str(place), *rest]
        with suppress(SystemExit):
            stub.main()
    return hands.wait() if hands else 0


def main(words: list[str]) -> int:
    """The programs."""
    what, *rest = words
    if what == "work":
        return work(rest)
    if what == "worker":
        from gpuprov.rollout.temporal import worker as working
        from gpuprov.rollout.temporal.connect import Connection

        site, address, place = rest
        _patched(Path(place))
        return working.run(Connection(address=address), site, Path(place) / "kept", HANDS)
    from gpuprov.fleet.specs import load_fleet
    from gpuprov.jobs import frozen
    from gpuprov.rollout import command
    from gpuprov.rollout.embedded import Embedded

    folder = Path(rest[0])
    _patched(folder)
    engine = Embedded() if not rest[2:] else lab.engine(folder, rest[2])
    if not isinstance(engine, Embedded):
        engine.heartbeat = HEARTBEAT
    fleet = frozen.freeze(load_fleet([str(folder / "inventory.yaml")], also=("site", "rack")))
    return command.start(
        engine, fleet, folder / "policy.yaml", rest[1], lambda run, _fleet: (*HANDS, "--run", run), yes=True
    )


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except GpuprovError as error:
        terminal.error(error)
        code = 2
    os._exit(code)
