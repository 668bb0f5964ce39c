"""Hosts that wait while Ansible works on others keep their locks, as long as their run lives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuprov.apply.keeper import Keeper
from gpuprov.facts.collect.script import compose
from gpuprov.facts.probes.base import Probe
from gpuprov.host_code import lock
from gpuprov.host_code.fence import Owner
from gpuprov.plan import host_lock
from gpuprov.spec.model import RawHost

OWNER: Owner = {
    "controller": "elsewhere", "pid": 77, "pid_start": "1", "user": "kim", "host": "ops1",
    "since": "2026-11-21T08:00:00Z", "run": f"keeper-{os.getpid()}", "lease": 8,
}  # fmt: skip
HOST = RawHost(name="gpu1", connection={"ansible_connection": "local"})
GONE = RawHost(name="gone", connection={"ansible_host": "127.0.0.1", "ansible_port": 1})


@pytest.mark.install
def test_a_silent_host_keeps_its_lock_until_the_run_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "lock.py"
    text = host_lock.program().replace("/run/gpuprov", str(tmp_path / "run"))
    program.write_text(text.replace("/var/lib/gpuprov", str(tmp_path / "lib")), encoding="utf-8")
    monkeypatch.setattr(lock, "__file__", str(program))

    def take(**owner: Any) -> dict[str, Any]:
        request = json.dumps({"action": "take", "owner": {**OWNER, **owner}})
        done = subprocess.run(
            [sys.executable, "-IS", program], input=request, capture_output=True, text=True, check=True
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    take()
    keeper = Keeper([HOST, GONE, RawHost(name="never")], OWNER, 8)
    with keeper.keeping():
        keeper.heard("gpu1")
        keeper.heard("gone")
        time.sleep(10)
        refused = take(controller="another")
        assert (refused["taken"], refused["left"] > 0) == (False, True)
    time.sleep(8.5)
    assert take(controller="another")["taken"], "nobody keeps it any more"


def rounds(monkeypatch: pytest.MonkeyPatch, answer: Callable[[], bytes]) -> list[str]:
    """The hosts that a keeper asks in two seconds, where a host answers so."""
    asked: list[str] = []

    def run(jobs: Sequence[Any], at_a_time: int) -> None:
        for one in jobs:
            asked.append("gpu1")
            one.done(answer())

    monkeypatch.setattr("gpuprov.apply.keeper.run_all", run)
    monkeypatch.setattr("gpuprov.apply.keeper.job", lambda raw, script, limit, done: SimpleNamespace(done=done))
    keeper = Keeper([HOST], OWNER, 1)
    with keeper.keeping():
        keeper.heard("gpu1")
        time.sleep(2)
    return asked


@pytest.mark.install  # it takes seconds
def test_a_lock_that_was_lost_is_kept_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(held: bool) -> bytes:
        script = compose((Probe("leave", f"echo '{json.dumps({'held': held})}'", str),), limit=9)
        return subprocess.run(["sh"], input=script.encode(), capture_output=True, check=True).stdout

    assert len(rounds(monkeypatch, lambda: answer(held=False))) == 1
    assert len(rounds(monkeypatch, lambda: answer(held=True))) > 1


@pytest.mark.install
def test_whatever_goes_wrong_in_a_round_the_next_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer() -> bytes:
        raise RuntimeError("can't start new thread")

    assert len(rounds(monkeypatch, answer)) > 1
