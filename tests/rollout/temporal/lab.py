"""A real Temporal server on loopback, built once from its Go module; workers and clients as processes that can be
killed.

Run as a program it is a worker (`worker SITE ADDRESS FOLDER`), whose jobs are done by the stub, or a client (`start
...`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from gpuprov.fleet.policy.policy import read
from gpuprov.fleet.policy.state import State, folded
from gpuprov.jobs.model import Fleet, Host, digest_of
from gpuprov.rollout.project import Given, Project
from gpuprov.rollout.status import status
from gpuprov.simulate import golang, image, tools
from tests.rollout import made

VERSION = "1.5.1"
"""Of github.com/temporalio/cli; 1.9 has a replace directive, with which `go install` builds nothing."""
WHAT = "the Temporal server"
PATIENCE = 240.0
ROOT = Path(__file__).parents[3]


def built() -> Path:
    """The program: cached, or built now, which takes ten minutes of a processor."""
    folder = image.cache_dir() / f"temporal-{VERSION}"
    with image.alone(folder.with_name(f"{folder.name}.lock")):
        if not (folder / "temporal").is_file():
            work = folder.with_name(f".{folder.name}.{os.getpid()}")
            work.mkdir()
            try:
                environment = {**os.environ, "GOFLAGS": "-trimpath", "CGO_ENABLED": "0", "GOBIN": str(work)}
                command = [golang.go(WHAT), "install", f"github.com/temporalio/cli/cmd/temporal@v{VERSION}"]
                tools.run(command, environment=environment, timeout=3600)
                shutil.rmtree(folder, ignore_errors=True)
                os.replace(work, folder)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return folder / "temporal"


class Server:
    """start-dev with its database in a file: what it has said it keeps, whatever kills it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.port = folder, free()
        self.address = f"127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        words = ["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(self.port)]
        words += ["--db-filename", str(self._folder / "temporal.db"), "--log-level", "error", *more]
        with (self._folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen([built(), *words], stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert self.process.poll() is None, (self._folder / "server.log").read_text()
            assert time.monotonic() < end, "no server"
            time.sleep(0.1)

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self.process.wait()


def free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "STUB": str(folder), "XDG_STATE_HOME": str(folder / "state"), "PYTHONUNBUFFERED": "1"}


def process(folder: Path, name: str, *words: str) -> subprocess.Popen[bytes]:
    """This module as a program, by itself; what it says goes to a file of this name."""
    command = [sys.executable, "-m", "tests.rollout.temporal.lab", *words]
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, env=environment(folder), stdout=log, stderr=log)


def worker(folder: Path, server: Server, site: str) -> subprocess.Popen[bytes]:
    return process(folder, f"worker-{site}", "worker", site, server.address, str(folder))


def client(folder: Path, server: Server, policy: str, hosts: int, sites: int, name: str) -> subprocess.Popen[bytes]:
    (folder / "policy").write_text(policy)
    return process(folder, f"client-{name}", "start", server.address, str(folder), str(hosts), str(sites), name)


def fleet(count: int, sites: int) -> Fleet:
    """Hosts of racks, at sites a, b, c."""
    hosts = tuple(
        Host(
            name=f"gpu{n:04}",
            groups=("all",),
            spec="one",
            domains={"rack": f"r{n % 4}", **({"site": "abcdefgh"[n % sites]} if sites else {})},
        )
        for n in range(count)
    )
    found = Fleet(specs={"one": {"nouveau": {}}}, groups={"all": ()}, hosts=hosts)
    return msgspec.structs.replace(found, digest=digest_of(found))


def engine(folder: Path, address: str, **more: Any) -> Any:
    """A client of this process."""
    from gpuprov.rollout.temporal.connect import Connection
    from gpuprov.rollout.temporal.engine import Temporal

    found = Temporal(Connection(address=address, **more), folder / "kept")
    found.heartbeat = 3.0
    return found


def project(policy: str, hosts: int, sites: int, name: str = "friday") -> tuple[Project, bytes]:
    text = f"gpuprov_rollout: 1\n{policy}"
    return Project(name, fleet(hosts, sites), read(text, "rollout.yaml"), Given(words=())), text.encode()


def report(of: Any, name: str = "friday") -> dict[str, Any]:
    """What became of it, without times."""
    plan = of.plan(name)
    state: State = folded(plan, of.events(name))
    told = status(name, state, carried_out=False, domains=plan.domains, details={})
    return {**msgspec.to_builtins(told), "begun": ""}


def until(happened: Any, seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


@contextmanager
def running(
    folder: Path, sites: Sequence[str] = "abc", *more: str
) -> Iterator[tuple[Server, dict[str, subprocess.Popen[bytes]]]]:
    """A server, and a worker at each site."""
    (folder / "behaviour.json").touch()
    server = Server(folder)
    server.start(*more)
    workers: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for site in sites:
            workers[site] = worker(folder, server, site)
        for site in sites:
            until(lambda site=site: b"is at work" in (folder / f"worker-{site}.log").read_bytes())
        yield server, workers
    finally:
        _end([*workers.values(), *([server.process] if server.process else [])])


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for one in processes:
        one.send_signal(signal.SIGTERM)
    for one in processes:
        with suppress(subprocess.TimeoutExpired):
            one.wait(10)
        one.kill()
        one.wait()


def main(words: list[str], _environment: Mapping[str, str] = os.environ) -> int:
    """The programs."""
    if words[0] == "worker":
        from gpuprov.rollout.temporal import worker as working
        from gpuprov.rollout.temporal.connect import Connection

        _, site, address, folder = words
        marks = made.Marks(Path(folder) / "drained")
        Project.adapter = property(lambda _self: marks)  # type: ignore[assignment,method-assign]
        kept = Path(folder) / "kept"
        about = Path(folder) / "connection.json"
        more = {name: Path(value) for name, value in json.loads(about.read_text()).items()} if about.exists() else {}
        keys = tuple(one for one in [more.pop("payload_key", None)] if one)
        name = str(more.pop("tls_name", ""))
        given = Connection(address=address, payload_keys=keys, tls_name=name, **more)  # type: ignore[arg-type]
        return working.run(given, site, kept, (sys.executable, str(made.STUB)))
    _, address, folder, hosts, sites, name = words
    found = engine(Path(folder), address)
    begun, text = project((Path(folder) / "policy").read_text(), int(hosts), int(sites), name)
    if name not in {one.id for one in found.all()}:
        found.begin(begun, text)
    found.carry_out(name, lambda told: print(told, flush=True))
    return 0


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # as gpuprov itself ends: threads of the SDK may abort a Python that ends by itself
