"""Roll-outs on a real Temporal server: whatever is killed, no host is lost, none is changed twice, and the report is
the same."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.rollout.approvals import Abort, Approve, Pause, Resume
from tests.rollout import made
from tests.rollout.temporal import lab
from tests.rollout.test_engine import BEHAVIOUR, HOSTS, POLICY

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
SITES = f"site: site\n{POLICY}"
MOMENTS = ["begun", "begin prepare gpu0001 ", "begin apply gpu0004 ", "begin verify gpu0003 ", "begin apply gpu0020 "]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Counter[str]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    with _running(folder) as (server, _):
        found = _followed(folder, server)
    assert {host["host"]: host["state"] for host in found["hosts"]} == {
        f"gpu{n:04}": "failed" if n == 5 else "green" for n in range(HOSTS)
    }
    return found, made.attempts(folder)


def _running(folder: Path, seconds: float = 0.02) -> Any:
    (folder / "behaviour.json").write_text(json.dumps(BEHAVIOUR | {"seconds": seconds}))
    return lab.running(folder)


def _followed(folder: Path, server: lab.Server, policy: str = SITES) -> dict[str, Any]:
    client = lab.client(folder, server, policy, HOSTS, 3, "friday")
    assert client.wait(240) == 0, (folder / "client-friday.log").read_text()
    return lab.report(lab.engine(folder, server.address))


def _reached(folder: Path, moment: str) -> Callable[[], bool]:
    file = folder / ("client-friday.log" if moment == "begun" else "log")
    word = "begun by" if moment == "begun" else moment
    return lambda: file.exists() and word in file.read_text()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("what", ["worker", "client", "server"])
def test_whatever_is_killed(
    undisturbed: tuple[dict[str, Any], Counter[str]], tmp_path: Path, what: str, moment: str
) -> None:
    with _running(tmp_path, 0.3) as (server, workers):
        client = lab.client(tmp_path, server, SITES, HOSTS, 3, "friday")
        lab.until(_reached(tmp_path, moment))
        if what == "worker":
            for site in "abc":
                workers[site].kill()
                workers[site].wait()
                workers[site] = lab.worker(tmp_path, server, site)
        elif what == "server":
            server.kill()
            time.sleep(1)
            server.start()
        else:
            client.kill()
            client.wait()
            client = lab.client(tmp_path, server, SITES, HOSTS, 3, "friday")
        assert client.wait(240) == 0, (tmp_path / "client-friday.log").read_text()
        assert lab.report(lab.engine(tmp_path, server.address)) == undisturbed[0]
    assert made.attempts(tmp_path) == undisturbed[1], "a job's process outlives its worker: nothing is done again"


def test_workers_that_are_away_while_a_timer_fires(tmp_path: Path) -> None:
    """Longer than the server waits for the worker that had the workflow in memory. The client asks all the while: what
    is answered must not run the workflow on, or its history cannot be replayed any more.
    """
    soaks = "site: site\ncanary: {count: 3, soak: 3s}\ndrain: {adapter: command, command: 'true', poll: 1s}\n"
    with _running(tmp_path) as (server, workers):
        client = lab.client(tmp_path, server, soaks, 8, 3, "friday")
        log = tmp_path / "client-friday.log"
        lab.until(lambda: "soaks" in log.read_text())
        for site in "abc":
            workers[site].kill()
            workers[site].wait()
        time.sleep(14)
        for site in "abc":
            workers[site] = lab.worker(tmp_path, server, site)
        assert client.wait(240) == 0, log.read_text()
        engine = lab.engine(tmp_path, server.address)
        history = engine._runner.run(engine._handle("friday").fetch_history())
    replayed = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from tests.rollout.temporal.test_whole import replayed; replayed(sys.stdin.read())",
        ],
        input=history.to_json(),
        capture_output=True,
        text=True,
        check=False,
        cwd=lab.ROOT,
    )
    assert "replayed" in replayed.stdout, replayed.stderr[-2000:]
    assert made.attempts(tmp_path) == {f"gpu{n:04}": 1 for n in range(8)}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, lab.Server]]:
    """A server with a worker of the site that hosts without a site are at."""
    folder = tmp_path_factory.mktemp("quick")
    (folder / "behaviour.json").write_text(json.dumps({"gpu0001": ["failed", "green"]}))
    with lab.running(folder, ["default"]) as (server, _):
        yield folder, server


def test_people_and_their_say(quick: tuple[Path, lab.Server]) -> None:
    folder, server = quick
    engine = lab.engine(folder, server.address)
    approvals = "approvals: [{before: batches, by: [alice]}]\n"
    begun, text = lab.project(f"batches: {{size: 2}}\n{approvals}retry: {{attempts: 1}}\n", 4, 0, "monday")
    engine.begin(begun, text)
    with pytest.raises(GpuprovError, match="approved by alice; you are bob"):
        engine.say("monday", Approve(by="bob"))
    engine.say("monday", Pause(by="bob", why="lunch"))
    assert engine.say("monday", Approve(by="alice"))
    assert not made.logged(folder)
    assert engine.say("monday", Resume(by="bob"))
    assert engine.carry_out("monday", lambda _told: None)
    assert lab.report(engine, "monday")["why"] == "batch 1: 1 failed, budget.batch is 0: gpu0001"
    with pytest.raises(GpuprovError, match="is stopped"):
        engine.say("monday", Resume(by="bob"))
    other, text = lab.project("", 2, 0, "tuesday")
    with pytest.raises(
        GpuprovError, match="the roll-out monday is open and has gpu0000, gpu0001 too; nothing was started"
    ):
        engine.begin(other, text)
    with pytest.raises(GpuprovError, match="there is a roll-out monday already"):
        engine.begin(begun, text)
    assert engine.say("monday", Resume(by="bob", retry=True))
    assert engine.carry_out("monday", lambda _told: None)
    assert lab.report(engine, "monday")["state"] == "finished"
    with pytest.raises(GpuprovError, match="is over"):
        engine.say("monday", Abort(by="bob"))
    engine.begin(other, text)
    assert engine.carry_out("tuesday", lambda _told: None), "an id that was refused is free"
    assert [one.id for one in engine.all()] == ["monday", "tuesday"]


def test_a_terminated_roll_out_has_no_hosts_any_more(quick: tuple[Path, lab.Server]) -> None:
    folder, server = quick
    engine = lab.engine(folder, server.address)
    begun, text = lab.project("approvals: [{before: canary, by: [alice]}]\ncanary: {count: 1}\n", 2, 0, "first")
    engine.begin(begun, text)
    engine._runner.run(engine._handle("first").terminate("by hand"))
    other, text = lab.project("", 2, 0, "second")
    engine.begin(other, text)
    assert engine.carry_out("second", lambda _told: None)


def test_a_worker_that_is_asked_to_end_does(tmp_path: Path) -> None:
    with lab.running(tmp_path, "a") as (_, workers):
        workers["a"].send_signal(signal.SIGTERM)
        assert workers["a"].wait(30) == 0
