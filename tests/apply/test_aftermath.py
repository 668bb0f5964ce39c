"""A host's lock at the end of a run that was cut off: given back at once, or when what still runs there has ended."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuprov.apply import aftermath
from gpuprov.apply.aftermath import Left, leave
from gpuprov.host_code import lock
from gpuprov.plan import host_lock
from gpuprov.spec.model import RawHost
from tests.host_code.modules import KIM as OWNER


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lock's folder on the host is a temporary one; so is the home of who logs in."""
    program = tmp_path / "lock.py"
    program.write_text(
        host_lock.program()
        .replace("/run/gpuprov", str(tmp_path / "run"))
        .replace("/var/lib/gpuprov", str(tmp_path / "lib"))
    )
    monkeypatch.setattr(lock, "__file__", str(program))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def ask(place: Path, **request: Any) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-IS", place / "lock.py"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def started_by(run: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that the run started on the host, below a shell as Ansible has one."""
    environment = {**os.environ, "GPUPROV_RUN": run}
    words = ["sh", "-c", "sleep 61.5; true"]
    with subprocess.Popen(words, env=environment, start_new_session=True) as child:
        try:
            yield child
        finally:
            os.killpg(child.pid, 9)


def host(name: str = "gpu1") -> RawHost:
    return RawHost(name=name, connection={"ansible_connection": "local"})


def wait_until_gone(path: Path) -> None:
    deadline = time.monotonic() + 20
    while path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.install
def test_the_lock_is_given_back_and_nobody_elses(place: Path) -> None:
    folder = place / "run" / "lock"
    temporary = place / "home" / ".ansible" / "tmp"
    (temporary / "gpuprov" / "ansible-tmp-1").mkdir(parents=True)
    (temporary / "ansible-tmp-2").mkdir()
    assert ask(place, action="take", owner=OWNER)["taken"]
    assert leave([host()], {"run": "another"}) == {"gpu1": Left()}
    assert folder.exists()
    assert leave([host()], OWNER) == {"gpu1": Left()}
    assert not folder.exists()
    assert [path.name for path in temporary.rglob("ansible-tmp-*")] == ["ansible-tmp-2"]


@pytest.mark.install
def test_what_still_runs_is_named_and_keeps_the_lock_until_it_ends(place: Path) -> None:
    ask(place, action="take", owner=OWNER)
    with started_by(str(OWNER["run"])), started_by("another"):
        left = leave([host()], OWNER, wait=0.3)["gpu1"]
        assert len(left.running) == 1
        assert re.fullmatch(r"sleep 61.5 \(pid \d+, of sh -c sleep 61.5; true\)", left.running[0])
        assert "the lock goes when it ends, in 10 minutes at the latest" in str(left)
        assert (place / "run" / "lock").exists()
    wait_until_gone(place / "run" / "lock")


@pytest.mark.install
def test_what_still_runs_is_named_where_the_lock_is_gone(place: Path) -> None:
    with started_by("0a1b2c3d"):
        left = leave([host()], OWNER, wait=0.1)["gpu1"]
    assert left.running
    assert "the lock" not in str(left)


@pytest.mark.install
def test_the_lock_goes_some_time_whatever_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aftermath, "MOST", 1)
    ask(place, action="take", owner=OWNER)
    with started_by(str(OWNER["run"])):
        assert leave([host()], OWNER, wait=0.1)["gpu1"].running
        wait_until_gone(place / "run" / "lock")


@pytest.mark.install
def test_a_host_that_does_not_answer_costs_its_limit_and_no_more(place: Path) -> None:
    (place / "ssh").write_text("#!/bin/sh\nexec sleep 60\n")
    (place / "ssh").chmod(0o755)
    gone = RawHost(name="gone", connection={"ansible_ssh_executable": str(place / "ssh")})
    started = time.monotonic()
    left = leave([gone, host()], OWNER, limit=5)
    assert time.monotonic() - started < 15
    assert "the next apply from this machine takes it over" in str(left["gone"])
    assert left["gpu1"] == Left()
