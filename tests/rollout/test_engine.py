"""The engine over stub hosts: whatever is killed, no host is lost, none is changed twice, and the report is the
same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.policy import events
from gpuprov.rollout import engine, store
from tests.rollout import made

pytestmark = pytest.mark.install
POLICY = """\
domain: rack
canary: {count: 2, soak: 1s}
batches: {size: 11, soak: 1s}
limits: {at_once: 8, per_domain: 3, jobs: 2, job_size: 4}
budget: {batch: 1, whole: 2}
retry: {attempts: 3, after: 0s}
drain: {adapter: command, command: "true", poll: 0s}
prepare: true
"""
HOSTS = 24
BEHAVIOUR = {
    "gpu0005": ["failed"],
    "gpu0007": ["locked", "green"],
    "gpu0011": ["unreachable", "green"],
    "seconds": 0.02,
}
MOMENTS = [
    ("started", 5),
    ("before Working", 3),
    ("after Working", 2),
    ("after Working", 6),
    ("started", 1),
    ("before Done", 2),
    ("after Done", 4),
    ("after Draining", 2),
    ("before Drained", 3),
    ("before Returned", 2),
    ("before JobOver", 3),
    ("soak", 1),
    ("before BatchOver", 2),
    ("before Finished", 1),
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    made.begun(folder, HOSTS, POLICY, BEHAVIOUR)
    state = made.carry_out(folder)
    assert state.finished
    return folder


def test_an_undisturbed_run_ends_with_every_host_done(undisturbed: Path) -> None:
    told = made.report(undisturbed)
    assert told["state"] == "finished"
    assert told["exit_code"] == 3
    words = {host["host"]: host["state"] for host in told["hosts"]}
    assert words == {f"gpu{n:04}": "failed" if n == 5 else "green" for n in range(HOSTS)}
    assert made.attempts(undisturbed) == {f"gpu{n:04}": 2 if n in (7, 11) else 1 for n in range(HOSTS)}
    assert {*made.attempts(undisturbed, "verify")} == {f"gpu{n:04}" for n in range(HOSTS) if n != 5}
    assert [path.name for path in (undisturbed / "drained").iterdir() if "." not in path.name] == ["gpu0005"]


def test_no_more_hosts_are_repaired_than_the_policy_permits(tmp_path: Path) -> None:
    """One that finds no repair left is tried again, since another job may not need its own."""
    policy = (
        "limits: {jobs: 2, job_size: 1}\nrepair: {budget: 2}\nbudget: {batch: 100%, whole: 100%}\nretry: {after: 0s}\n"
    )
    behaviour = {f"gpu{n:04}": ["repaired"] for n in (1, 3, 5)}
    made.begun(tmp_path, 6, policy, behaviour)
    assert made.carry_out(tmp_path).finished
    told = {host["host"]: host for host in made.report(tmp_path)["hosts"]}
    repaired = [name for name, host in told.items() if host.get("repaired")]
    assert (len(repaired), {told[name]["state"] for name in repaired}) == (2, {"green"})
    [left] = {*behaviour} - {*repaired}
    assert (told[left]["state"], told[left]["message"]) == ("failed", "no repair is left for it")
    assert made.report(tmp_path)["exit_code"] == 3
    asked = [line.split() for line in (tmp_path / "repairs").read_text().splitlines()]
    assert {int(most) for _, most in asked} <= {0, 1}


@pytest.mark.parametrize(("moment", "nth"), MOMENTS)
def test_a_killed_engine_is_gone_on_with(undisturbed: Path, tmp_path: Path, moment: str, nth: int) -> None:
    made.begun(tmp_path, HOSTS, POLICY, BEHAVIOUR)
    words = [sys.executable, "-m", "tests.rollout.made", str(tmp_path), moment, str(nth)]
    killed = subprocess.run(
        words, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert made.report(tmp_path)["state"] != "finished"
    assert made.carry_out(tmp_path).finished
    assert made.report(tmp_path) == made.report(undisturbed)
    assert made.attempts(tmp_path) == made.attempts(undisturbed), (
        "the job's process outlives the engine: nothing is done again"
    )


@pytest.mark.parametrize("nth", [1, 2, 4])
def test_a_machine_that_goes_down_does_again_what_had_no_result(undisturbed: Path, tmp_path: Path, nth: int) -> None:
    """The engine and its jobs, all at once, as at a loss of power."""
    made.begun(tmp_path, HOSTS, POLICY, BEHAVIOUR | {"seconds": 0.3})
    words = [sys.executable, "-m", "tests.rollout.made", str(tmp_path), "started", str(nth)]
    before = made.at_work(tmp_path)
    assert (
        subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, timeout=60, check=False).returncode
        < 0
    )
    while not (dead := frozenset(made.at_work(tmp_path) - before)):
        time.sleep(0.01)
    for pid in dead:
        os.kill(int(pid), signal.SIGKILL)
    (tmp_path / "behaviour.json").write_text(json.dumps(BEHAVIOUR))
    assert made.carry_out(tmp_path).finished
    assert made.report(tmp_path) == made.report(undisturbed)
    acts = ("prepare", "apply", "verify")
    again = sum((made.attempts(tmp_path, act, dead) - made.attempts(undisturbed, act) for act in acts), Counter())
    assert 1 <= sum(again.values()) <= len(dead), "only what was cut off is done again"


def test_a_second_engine_is_refused_while_one_is_at_work(tmp_path: Path) -> None:
    made.begun(tmp_path, 2, "")
    place = store.Store(tmp_path / "state").place("friday")
    with engine.alone(place, "friday"):
        assert engine.is_carried_out(place)
        with pytest.raises(GpuprovError, match="is being carried out by another process"):
            made.carry_out(tmp_path)
    assert not engine.is_carried_out(place)


def test_who_pauses_and_resumes_is_another_process(tmp_path: Path) -> None:
    made.begun(tmp_path, 8, "batches: {size: 2}\nlimits: {jobs: 1}\n", {"seconds": 0.1})
    told: list[str] = []
    other = store.Store(tmp_path / "state")

    def resume() -> None:
        late = store.Store(tmp_path / "state")
        assert late.record("friday", len(late.events("friday")), [events.Resumed(at=time.time(), by="bob")])

    def tell(text: str) -> None:
        told.append(text)
        seen = len(other.events("friday"))
        if text.startswith("batch 1 is over"):
            assert other.record("friday", seen, [events.Paused(at=time.time(), by="bob", why="talk")])
            threading.Timer(1.5, resume).start()
        elif text == "resumed by bob":
            assert sum(made.attempts(tmp_path).values()) <= 4, "what was under way when it was paused, and no more"

    assert made.carry_out(tmp_path, tell=tell).finished
    assert "resumed by bob" in told
    assert made.attempts(tmp_path) == {f"gpu{n:04}": 1 for n in range(8)}


def test_a_stopped_roll_out_does_again_what_failed_when_it_is_told_to(tmp_path: Path) -> None:
    made.begun(
        tmp_path,
        6,
        "batches: {size: 3}\nretry: {attempts: 1}\n",
        {"gpu0001": ["failed", "green"], "gpu0004": ["unreachable"]},
    )
    state = made.carry_out(tmp_path)
    assert state.stopped == "batch 1: 1 failed, budget.batch is 0: gpu0001"
    kept = store.Store(tmp_path / "state")
    assert kept.record("friday", state.seen, [events.Resumed(at=1.0, by="bob", retry=True)])
    state = made.carry_out(tmp_path)
    assert state.stopped == "batch 2: 1 failed, budget.batch is 0: gpu0004"
    assert kept.record("friday", state.seen, [events.Resumed(at=1.0, by="bob", forgive=True)])
    assert made.carry_out(tmp_path).finished
    assert made.report(tmp_path)["exit_code"] == 4, "the only host that failed was not reached"
    assert made.attempts(tmp_path) == {f"gpu{n:04}": 2 if n == 1 else 1 for n in range(6)}


def test_a_job_that_leaves_no_result_is_tried_again_and_not_for_ever(tmp_path: Path) -> None:
    made.begun(tmp_path, 2, "retry: {attempts: 2, after: 0s}\n", {"gpu0000": ["no such word"]})
    told: list[str] = []
    state = made.carry_out(tmp_path, tell=told.append)
    assert state.stopped == "batch 1: 2 failed, budget.batch is 0: gpu0000, gpu0001"
    assert "a process ended without all results: KeyError: 'no such word'" in told
    assert [line[2] for line in made.logged(tmp_path) if line[0] == "begin"] == ["gpu0000"] * 2
