"""The scripts of an acceptance in a real shell: lock, server, client, end. Their folders are put into a temporary
one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpuprov.accept import scripts
from gpuprov.accept.lock import FOLDER, Lock
from gpuprov.accept.model import Ran, Step

pytestmark = pytest.mark.install

SERVER = """import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("* Waiting for client to connect... *", flush=True)
listener.accept()[0].sendall(b"391.2")
print("served", flush=True)
time.sleep(float(sys.argv[2]))
"""
CLIENT = """import socket, sys
print(socket.create_connection(("127.0.0.1", int(sys.argv[1]))).recv(9).decode())
"""


class Here:
    """A runner whose one host is this machine, with its folders elsewhere."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, steps: Sequence[Step]) -> dict[str, Ran]:
        return {step.host: self.one(step.script) for step in steps}

    def one(self, script: str) -> Ran:
        moved = script.replace("/run/gpuprov", f"{self.root}/run").replace("/var/lib/gpuprov", f"{self.root}/lib")
        moved = moved.replace('[ "$(id -u)" = 0 ]', "true")
        ended = subprocess.run(["sh", "-c", moved], capture_output=True, text=True, timeout=20, check=False)
        return Ran(text=ended.stdout + ended.stderr, status=ended.returncode)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


@pytest.fixture
def lock(here: Here) -> Iterator[Lock]:
    made = Lock(here, "run1")
    yield made
    made.release()


def program(here: Here, name: str, text: str) -> list[str]:
    path = here.root / name
    path.write_text(text)
    return [sys.executable, "-IS", str(path)]


def alive(here: Here) -> list[str]:
    """Process groups that are noted and live."""
    noted = [file.read_text().split()[0] for file in (here.root / "run" / "accept").glob("*.pid")]
    return [pid for pid in noted if Path(f"/proc/{pid}").exists()]


def test_a_server_is_ready_when_its_step_ends_and_gone_after_the_next(here: Here, lock: Lock) -> None:
    assert lock.take(["gpu1"]) == {}
    server, client = program(here, "server.py", SERVER), program(here, "client.py", CLIENT)
    up = lock.phase({"gpu1": (scripts.serve([*server, "@PORT@", "60"], listens=True, limit=60), 20.0)})["gpu1"]
    assert up.status == 0, up
    port = int(up.text.split()[-1])
    assert 20000 <= port < 28100
    asked = lock.phase({"gpu1": (scripts.ask([*client, "@PORT@"], port=port, limit=10), 20.0)})["gpu1"]
    assert (asked.text, asked.status) == ("391.2\n", 0)
    assert alive(here)
    stopped = lock.phase({"gpu1": (scripts.STOP, 20.0)})["gpu1"]
    assert stopped.text.endswith("served\n")
    assert not alive(here)


def test_a_server_that_does_not_come_up_fails_with_what_it_said(here: Here, lock: Lock) -> None:
    lock.take(["gpu1"])
    broken = program(here, "broken.py", "raise SystemExit('Unable to find the Infiniband/RoCE device')")
    ran = lock.phase({"gpu1": (scripts.serve([*broken, "@PORT@"], listens=True, limit=60), 20.0)})["gpu1"]
    assert ran.status == 1
    assert "Unable to find" in ran.text


def test_a_client_that_does_not_end_is_ended(here: Here, lock: Lock) -> None:
    lock.take(["gpu1"])
    started = time.monotonic()
    ran = lock.phase({"gpu1": (scripts.ask(["sleep", "60"], limit=1), 20.0)})["gpu1"]
    assert ran.status == scripts.TIMED_OUT
    assert time.monotonic() - started < 10


def test_the_locks_end_ends_what_still_runs_and_nothing_else(here: Here) -> None:
    made = Lock(here, "run1")
    made.take(["gpu1"])
    server = program(here, "server.py", SERVER)
    made.phase({"gpu1": (scripts.serve([*server, "@PORT@", "60"], listens=True, limit=60), 20.0)})
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    (here.root / "run" / "accept" / "client.pid").write_text(f"{other.pid} 1\n")  # its number, another start
    started = (here.root / "run" / "accept" / "server.pid").read_text().split()[0]
    try:
        assert made.release() == {}
        assert other.poll() is None
        state = Path(f"/proc/{started}/stat")
        assert not state.exists() or state.read_text().rpartition(") ")[2].startswith("Z")
        assert not (here.root / "run" / "lock").exists()
        assert not (here.root / "run" / "accept").exists()
    finally:
        os.killpg(other.pid, signal.SIGKILL)
        other.wait()


def test_a_machine_with_two_names_is_not_measured_against_itself(here: Here) -> None:
    made = Lock(here, "run1")
    refused = made.take(["gpu1", "gpu1-ib"])
    assert list(refused) == ["gpu1-ib"]
    assert str(refused["gpu1-ib"]).startswith(
        "the same machine as gpu1, by which name alone a run works on it: take all"
    )
    assert list(made.held) == ["gpu1"]
    assert made.phase({"gpu1": ("echo here", 20.0)})["gpu1"].text.endswith("here\n")
    assert made.release(["gpu1-ib"]) == {}
    assert (here.root / "run" / "lock").exists(), "the name that was refused gives nothing back"
    made.release()
    assert not (here.root / "run" / "lock").exists()


def test_two_acceptances_never_overlap(here: Here, lock: Lock) -> None:
    assert lock.take(["gpu1"]) == {}
    other = Lock(here, "run2")
    why = other.take(["gpu1"])["gpu1"]
    assert "locked by" in str(why)
    assert f"(pid {os.getpid()})" in str(why)
    assert other.release() == {}
    assert (here.root / "run" / "lock" / "owner.json").exists(), "another's lock is not given back"
    assert lock.phase({"gpu1": ("true", 5.0)})["gpu1"].status == 0
    assert "lock run1; that is another lock than --break-lock names" in str(
        other.take(["gpu1"], broken=["run3"])["gpu1"]
    )
    assert "--break-lock run1" in str(other.take(["gpu1"], broken=[""])["gpu1"])
    assert other.take(["gpu1"], broken=["run3", "run1"]) == {}
    lost = lock.phase({"gpu1": ("true", 5.0)})["gpu1"]
    assert "the lock of this acceptance is gone" in lost.text
    assert "gpu1" not in lock.held
    other.release()


def test_a_dead_runs_lock_is_taken_over(here: Here, lock: Lock) -> None:
    dead = Lock(here, "dead")
    dead._owner = {**dead._owner, "pid": 4_000_000, "pid_start": "1"}
    dead.take(["gpu1"])
    assert lock.take(["gpu1"]) == {}


def test_a_damaged_lock_is_told(here: Here, lock: Lock) -> None:
    (here.root / "run" / "lock").mkdir(parents=True)
    assert "damaged or missing" in str(lock.take(["gpu1"])["gpu1"])


def test_without_root_it_says_so() -> None:
    assert "need root" in str(
        Lock(lambda steps: {step.host: Ran(text="not root\n", status=3) for step in steps}, "r").take(["a"])["a"]
    )


def test_a_file_is_replaced_in_one_step(here: Here) -> None:
    path = here.root / "lib" / "acceptance.json"
    assert here.one(scripts.write("/var/lib/gpuprov/acceptance.json", '{"it\'s": "$HOME %s"}')).status == 0
    assert path.read_text() == '{"it\'s": "$HOME %s"}\n'
    assert not path.with_suffix(".json.new").exists()


def test_the_host_gives_its_lock_back_by_itself(here: Here) -> None:
    """When the time that every step puts off is over, because nobody puts it off any more."""
    quick = Lock(
        lambda steps: {step.host: here.one(step.script.replace("sleep 5", "sleep 0.1")) for step in steps}, "run1"
    )
    quick.take(["gpu1"])
    folder = here.root / "run" / "accept"
    (folder / "until").write_text("0\n")
    limit = time.monotonic() + 10
    while folder.exists() or (here.root / "run" / "lock").exists():
        assert time.monotonic() < limit, "the lock is still held"
        time.sleep(0.05)
    assert FOLDER == "/run/gpuprov/accept"


def test_of_a_long_output_whole_lines_of_its_beginning_and_end_are_kept(
    here: Here, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "LONGEST", 1000)
    lock.take(["gpu1"])
    ran = lock.phase({"gpu1": (scripts.ask(["seq", "-w", "1", "9999"], limit=10), 20.0)})["gpu1"]
    lines = ran.text.split()
    assert (lines[0], lines[-1]) == ("0001", "9999")
    assert 190 < len(lines) < 200
    assert {len(line) for line in lines} == {4}


def test_without_python_it_says_so(here: Here) -> None:
    bare = here.root / "bin"
    bare.mkdir()
    for name in ("id", "sh", "cat"):
        (bare / name).symlink_to(f"/usr/bin/{name}")
    runner = Here(here.root)

    def without(steps: Sequence[Step]) -> dict[str, Ran]:
        path = f"PATH={bare}\n"
        pythons = re.compile(r"/usr/(?:local/)?(?:bin|libexec)/(?:platform-)?python")
        return runner([Step(host=one.host, script=path + pythons.sub("/none/python", one.script)) for one in steps])

    assert Lock(without, "run1").take(["gpu1"]) == {"gpu1": "acceptance tests need Python 3 on the host"}
