"""The note on a host that is out of its scheduler: written before, gone after, and read by verify and plan."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.host import House, in_service
from gpuprov.core.errors import UnreachableError
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.facts.probes.host import house
from gpuprov.fleet.drain import Step, noted
from gpuprov.fleet.drain.base import State
from gpuprov.fleet.drain.noted import Noted
from gpuprov.fleet.specs import judge
from gpuprov.spec.model import RawHost


class Scheduler:
    """Answers each step as it is told to."""

    name = "slurm"

    def __init__(self, file: Path, **states: State) -> None:
        self.file, self.states = file, states
        self.seen: list[bool] = []

    def _step(self, what: str, host: str) -> Step:
        self.seen.append(self.file.exists())
        return Step(host=host, node=host, state=self.states.get(what, "done"))

    def drain(self, host: str, run: str) -> Step:
        return self._step("drain", host)

    def drained(self, host: str, run: str) -> Step:
        return self._step("drained", host)

    def returned(self, host: str, run: str, green: bool) -> Step:
        return self._step("returned", host)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The note of a host whose scripts run here."""
    found = tmp_path / "lib" / "drained.json"
    monkeypatch.setattr(noted, "DRAINED_FILE", str(found))

    def run(_raw: object, script: str, _limit: float) -> str:
        done = subprocess.run(["sh", "-s"], input=script, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    monkeypatch.setattr(noted, "run_on", run)
    return found


def of(scheduler: Scheduler) -> Noted:
    return Noted(scheduler, {"gpu1": RawHost(name="gpu1")})


def test_it_is_there_before_and_gone_after(file: Path) -> None:
    scheduler = Scheduler(file)
    one = of(scheduler)
    assert one.drain("gpu1", "fri").state == "done"
    known = json.loads(file.read_text())
    assert (known["by"], known["run"]) == ("slurm", "fri")
    one.drain("gpu1", "fri")
    assert json.loads(file.read_text()) == known, "the time is that of the first"
    one.drained("gpu1", "fri")
    one.returned("gpu1", "fri", True)
    assert not file.exists()
    assert scheduler.seen == [True, True, True, True]
    assert one.untold == {}


@pytest.mark.parametrize("state", ["waiting", "unknown", "refused"])
def test_what_does_not_go_back_stays_noted(file: Path, state: State) -> None:
    one = of(Scheduler(file, returned=state))
    one.drain("gpu1", "fri")
    one.returned("gpu1", "fri", False)
    assert file.exists()


def test_what_is_refused_is_not_out_by_this_run(file: Path) -> None:
    of(Scheduler(file, drain="refused")).drain("gpu1", "fri")
    assert not file.exists()
    of(Scheduler(file)).drain("gpu1", "thu")
    of(Scheduler(file, drain="refused")).drain("gpu1", "fri")
    assert json.loads(file.read_text())["run"] == "thu"
    of(Scheduler(file)).drain("gpu1", "fri")
    assert json.loads(file.read_text())["run"] == "fri", "somebody has given it back since"


def test_a_host_that_is_out_by_an_earlier_call_keeps_its_note(file: Path) -> None:
    """A site's command that fails once, a token that has run out, an operator at work: refused, and the host is out all
    the same."""
    of(Scheduler(file)).drain("gpu1", "fri")
    of(Scheduler(file, drain="refused")).drain("gpu1", "fri")
    assert json.loads(file.read_text())["run"] == "fri"


def test_what_is_asked_again_is_noted_again(file: Path) -> None:
    scheduler = Scheduler(file, drain="unknown")
    one = of(scheduler)
    one.drain("gpu1", "fri")
    scheduler.states["drain"] = "refused"
    one.drain("gpu1", "fri")
    assert not file.exists(), "whatever was said before it was refused"
    scheduler.states["drain"] = "done"
    one.drain("gpu1", "fri")
    assert json.loads(file.read_text())["run"] == "fri"


def test_a_note_of_another_run_is_replaced_whenever_the_host_is_out(file: Path) -> None:
    of(Scheduler(file)).drain("gpu1", "thu")
    scheduler = Scheduler(file, drain="unknown")
    one = of(scheduler)
    one.drain("gpu1", "fri")
    assert json.loads(file.read_text())["run"] == "thu"
    scheduler.states["drain"] = "done"
    one.drain("gpu1", "fri")
    assert json.loads(file.read_text())["run"] == "fri"


def two(scheduler: Scheduler) -> Noted:
    """One machine by two names."""
    return Noted(scheduler, {name: RawHost(name=name) for name in ("gpu1", "gpu1-ib")})


def test_a_machine_is_taken_out_by_one_of_its_names(file: Path) -> None:
    scheduler = Scheduler(file)
    one = two(scheduler)
    assert one.drain("gpu1", "fri").state == "done"
    step = one.drain("gpu1-ib", "fri")
    assert (step.state, step.message) == (
        "refused",
        "it is the same machine as gpu1, by which name alone a run works on it",
    )
    assert step.fix.startswith("take all its names but one")
    assert len(scheduler.seen) == 1, "its scheduler is not asked"
    assert one.drain("gpu1", "fri").state == "done"
    assert json.loads(file.read_text())["host"] == "gpu1"
    assert two(scheduler).drain("gpu1-ib", "sat").state == "done", "another run may call it so"


def test_of_two_names_at_the_same_time_one_is_first(file: Path) -> None:
    scheduler = Scheduler(file)
    with ThreadPoolExecutor(8) as pool:
        for number in range(5):
            one, run = two(scheduler), f"run-{number}"
            states = [
                step.state
                for step in pool.map(lambda name, one=one, run=run: one.drain(name, run), ("gpu1", "gpu1-ib"))
            ]
            assert sorted(states) == ["done", "refused"], number
            file.unlink()
    assert not [*file.parent.glob("*.json.*")], "nothing is left beside it"


def test_a_note_of_an_earlier_version_is_the_runs_own(file: Path) -> None:
    file.parent.mkdir()
    file.write_text(json.dumps({"by": "slurm", "run": "fri", "since": "2026-11-26T07:40:01Z"}))
    assert two(Scheduler(file)).drain("gpu1-ib", "fri").state == "done"


def test_a_host_is_logged_in_to_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logins: list[str] = []
    there: Callable[[RawHost, str, float], str] = vars(noted)["run_on"]

    def counted(raw: RawHost, script: str, limit: float) -> str:
        logins.append(script)
        return there(raw, script, limit)

    monkeypatch.setattr(noted, "run_on", counted)
    one = of(Scheduler(file))
    for _ in range(3):
        one.drain("gpu1", "fri")
    assert len(logins) == 1
    one.returned("gpu1", "fri", True)
    assert len(logins) == 2


def test_a_host_that_is_not_reached_is_drained_all_the_same(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def lost(*_: object) -> str:
        tried.append(1)
        raise UnreachableError("gpu1: no route to host", "see to it")

    monkeypatch.setattr(noted, "run_on", lost)
    one = of(Scheduler(file))
    assert one.drain("gpu1", "fri").state == "done"
    assert one.drain("gpu1", "fri").state == "done"
    assert one.untold == {"gpu1": "gpu1: no route to host"}
    assert len(tried) == 1, "each try may cost its whole limit"


def said(text: str) -> tuple[str, str, str]:
    [(_, spec)] = judge([RawHost(name="gpu1", values={"nouveau": {}})]).pairs
    found = in_service.run(Context(spec, House(), Facts({"drained": Output(text)})))
    return found.status, found.found, found.fix


def test_what_verify_says(file: Path) -> None:
    assert said("")[0] == "n/a"
    of(Scheduler(file)).drain("gpu1", "fri")
    status, found, fix = said(file.read_text())
    assert status == "skip"
    assert found.startswith("drained by gpuprov since 2")
    assert found.endswith(" UTC (Slurm, run fri): it gets no jobs")
    assert fix == "when it is as it should be: gpuprov undrain HOST INVENTORY --by slurm --run fri"
    fleet = [json.dumps({"by": "slurm", "run": "fri", "since": f"2026-11-26T{at}Z"}) for at in ("07:40:01", "09:12:59")]
    assert len({said(text) for text in fleet}) == 1, "hosts of one run are told together"
    for text in ("{", '{"by": "x; reboot", "run": "fri"}', '{"by": "slurm", "run": "$(reboot)"}'):
        status, found, fix = said(text)
        assert (status, fix) == ("skip", f"see {house.DRAINED_FILE}")
        assert "cannot be read" in found
        assert "reboot" not in found


def test_a_step_says_what_the_host_does_not_know(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> str:
        raise UnreachableError("gpu1: no route to host", "see to it")

    reached = vars(noted)["run_on"]
    one = of(Scheduler(file))
    monkeypatch.setattr(noted, "run_on", lost)
    assert one.drain("gpu1", "fri").untold == "gpu1: no route to host"
    assert one.drained("gpu1", "fri").untold == "gpu1: no route to host"
    assert one.returned("gpu1", "fri", True).untold == "gpu1: no route to host"
    monkeypatch.setattr(noted, "run_on", reached)
    assert one.drain("gpu1", "sat").untold == ""
    assert one.returned("gpu1", "sat", True).untold == ""


def test_why_no_note_could_be_left_is_one_line(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a host prints adds no line of its own to a roll-out's status."""
    (tmp_path / "mkdir").write_text("#!/bin/sh\nprintf 'no room\\ngpu9: all is well\\n' >&2; exit 1\n")
    (tmp_path / "mkdir").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    step = Noted(Scheduler(file), {"gpu1": RawHost(name="gpu1", groups=())}).drain("gpu1", "r")
    assert step.untold == "no room gpu9: all is well"
