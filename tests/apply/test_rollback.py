"""A rollback of several hosts, of which some keep checkpoints that no gpuprov wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuprov.apply import rollback
from gpuprov.apply.model import ApplyRun, HostOutcome, Options
from gpuprov.apply.text import summary
from gpuprov.checkpoints.program import CheckpointsAnswer
from gpuprov.facts.collect.children import Ended
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.host_code import process
from gpuprov.plan import host_code
from gpuprov.spec.model import RawHost
from gpuprov.verify.evaluate import Result, ResultStatus

GOOD: dict[str, object] = {"nvidia_driver": {"version": "535.261.03"}}
HOSTILE: tuple[Any, ...] = (
    {},
    {"no_such": {}},
    {"nvidia_driver": {"version": "535\n"}},
    {"nvidia_driver": 5},
    {"nvidia_driver": {"version": {"a": []}}},
)


def facts(spec: Any) -> Facts:
    line = json.dumps({"run": "one", "at": "2026-11-11T09:00:00Z", "spec": spec})
    return Facts({"checkpoints": Output(f"checkpoint {line}\n"), "receipt": Output("")})


def rolled_back(monkeypatch: pytest.MonkeyPatch, specs: dict[str, Any], answers: dict[str, Any]) -> ApplyRun:
    """What becomes of these hosts, which answer the program of checkpoints so; the apply itself does nothing."""

    def apply(pairs: Any, options: Options, *_: Any, **__: Any) -> ApplyRun:
        assert not options.asked_at, "what an older inventory's job has just brought the host to is undone"
        return ApplyRun(run="r", hosts=[HostOutcome(host=raw.name, state="changed") for raw, _ in pairs])

    monkeypatch.setattr(rollback, "gather", lambda *_, **__: {name: facts(one) for name, one in specs.items()})
    monkeypatch.setattr(rollback, "apply", apply)
    monkeypatch.setattr(host_code, "run_all", lambda jobs, _: [*jobs])

    def job(raw: RawHost, script: str, limit: float, done: Any) -> None:
        done(Ended(raw.name.encode(), b"", 0))

    monkeypatch.setattr(host_code, "job", job)
    monkeypatch.setattr(
        host_code, "split", lambda ended: {"host_code": Output(json.dumps(answers[ended.out.decode()]))}
    )
    hosts = [RawHost(name=name, values=GOOD) for name in specs]
    return rollback.rollback(hosts, Options(asked_at="2026-11-11T10:00:00Z"))


def test_a_host_that_is_back_hears_that_it_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only then a rollback that is done again goes one further: one that is killed before has told nobody."""
    run = rolled_back(monkeypatch, {"back": GOOD, "red": GOOD, "bad": {}}, {"back": {}, "red": {}})
    results = {"back": "pass", "red": "fail"}
    for one in run.hosts:
        if one.host in results:
            status: ResultStatus = results[one.host]  # type: ignore[assignment]
            one.results = [Result(host=one.host, capability="kernel", check="kernel.state", status=status)]
    asked: dict[str, Any] = {}
    monkeypatch.setattr(rollback, "on_hosts", lambda given, _: asked.update(given) or {})
    rollback.acknowledge([RawHost(name=name) for name in ("back", "red", "bad")], run)
    assert {name: (one["action"], one["owner"]["run"], one["owner"]["name"]) for name, (_, one) in asked.items()} == {
        "back": ("told", "r", "back")
    }


@pytest.mark.parametrize("spec", HOSTILE, ids=str)
def test_a_checkpoint_that_no_gpuprov_wrote_costs_only_its_host(monkeypatch: pytest.MonkeyPatch, spec: Any) -> None:
    run = rolled_back(monkeypatch, {"bad": spec, "good": GOOD}, {"good": {}})
    bad, good = run.hosts
    assert (bad.host, bad.state, good.host, good.state) == ("bad", "blocked", "good", "changed")
    assert "the spec of its checkpoint cannot be applied" in bad.message


@pytest.mark.parametrize("answer", [{"offered": [1]}, {"offered": 5}, {"missing": {"a": 1}}, {"problem": []}, 7, "x"])
def test_an_answer_that_the_program_does_not_give_costs_only_its_host(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    run = rolled_back(monkeypatch, {"bad": GOOD, "good": GOOD}, {"bad": answer, "good": {"offered": ["a"]}})
    assert [(one.host, one.state) for one in run.hosts] == [("bad", "blocked"), ("good", "changed")]


@pytest.mark.parametrize(
    "answer",
    [
        {"problem": "x\ngood: unchanged"},
        {"offered": ["x\ngood: unchanged"], "unasked": "x\ngood: unchanged"},
        {"locked": {"holder": {"user": "x"}, "running": 5, "id": ["x"]}},
    ],
)
def test_nor_does_it_begin_a_line_of_another_host(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: Any
) -> None:
    run = rolled_back(monkeypatch, {"bad": GOOD, "good": GOOD}, {"bad": answer, "good": {}})
    assert [one.host for one in run.hosts] == ["bad", "good"]
    assert "\n" not in run.hosts[0].message
    assert "\ngood: unchanged" not in capsys.readouterr().err


class Hosts:
    """Hosts with one checkpoint each, and what the program of checkpoints is asked there. `answers`: to `begin`, in
    turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: dict[str, Any]) -> None:
        self.asked: list[tuple[str, str]] = []
        self.requests: list[dict[str, Any]] = []
        self._answers = [*answers]
        monkeypatch.setattr(rollback, "gather", lambda pairs, **_: {raw.name: facts(GOOD) for raw, _ in pairs})
        monkeypatch.setattr(rollback, "on_hosts", self._on_hosts)

    def _on_hosts(self, asked: Any, _pace: Any = None) -> dict[str, Any]:
        answers = {}
        for name, (_, request) in asked.items():
            self.asked.append((name, request["action"]))
            self.requests.append(request)
            given = self._answers.pop(0) if request["action"] == "begin" and self._answers else {}
            answers[name] = CheckpointsAnswer(**given)
        return answers

    def roll_back(self, *names: str) -> ApplyRun:
        return rollback.rollback([RawHost(name=name, values=GOOD) for name in names], Options())


def test_an_interrupt_before_hosts_were_read_leaves_nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(pairs: Any, options: Options, *_: Any, **__: Any) -> ApplyRun:
        return ApplyRun(run=options.run, hosts=[], interrupted=True)

    hosts = Hosts(monkeypatch)
    monkeypatch.setattr(rollback, "apply", apply)
    run = hosts.roll_back("gpu1", "gpu2")
    assert ([one.state for one in run.hosts], run.exit_code) == (["not-started", "not-started"], 130)
    assert hosts.asked[2:] == [("gpu1", "end"), ("gpu2", "end")]
    assert all(request["over"] for request in hosts.requests[2:])
    assert {request["owner"]["run"] for request in hosts.requests} == {run.run}


def row(status: ResultStatus, reboot: str = "") -> Result:
    return Result(
        host="gpu1", capability="nvidia_driver", check="nvidia_driver.loaded", status=status,
        expected="535.261.03", found="535.309.01", reboot=reboot, fields=("version",),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("results", "there"),
    [([row("pass")], True), ([row("fail", "the driver changed")], False), ([row("skip")], False), ([], False)],
)
def test_a_rollback_has_ended_where_verify_is_green(
    monkeypatch: pytest.MonkeyPatch, results: list[Result], there: bool
) -> None:
    def apply(pairs: Any, options: Options, *_: Any, **__: Any) -> ApplyRun:
        return ApplyRun(run=options.run, hosts=[HostOutcome(host="gpu1", state="changed", results=results)])

    hosts = Hosts(monkeypatch)
    monkeypatch.setattr(rollback, "apply", apply)
    run = hosts.roll_back("gpu1")
    assert (hosts.requests[-1]["arrived"], hosts.requests[-1]["over"]) == ("one" if there else "", False)
    assert ("1 waiting for a reboot (rollback --reboot)" in summary(run)) == any(one.reboot for one in results)


def test_a_host_on_which_another_run_works_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    holder = {**process.describe("theirs", "0.1.0"), "controller": "another machine"}
    begun: list[str] = []

    def apply(pairs: Any, options: Options, *_: Any, **__: Any) -> ApplyRun:
        begun.extend(raw.name for raw, _ in pairs)
        return ApplyRun(run=options.run, hosts=[HostOutcome(host=name) for name in begun])

    hosts = Hosts(monkeypatch, {"locked": {"holder": holder, "id": "theirs", "text": "{}", "left": 200}})
    monkeypatch.setattr(rollback, "apply", apply)
    run = hosts.roll_back("gpu1", "gpu2")
    assert ([one.state for one in run.hosts], begun) == (["locked", "unchanged"], ["gpu2"])
    assert "lock theirs" in run.hosts[0].message
    assert "roll back with --break-lock theirs" in run.hosts[0].fix
    assert hosts.asked == [("gpu1", "begin"), ("gpu2", "begin"), ("gpu2", "end")]


def test_a_lock_that_a_dead_run_of_this_machine_has_left_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    holder = {**process.describe("dead", "0.1.0"), "pid_start": "1"}
    hosts = Hosts(monkeypatch, {"locked": {"holder": holder, "id": "dead", "text": "its text", "left": 200}}, {})
    monkeypatch.setattr(
        rollback, "apply", lambda _, options, *__, **___: ApplyRun(run=options.run, hosts=[HostOutcome(host="gpu1")])
    )
    assert hosts.roll_back("gpu1").hosts[0].state == "unchanged"
    assert hosts.requests[1]["stale"] == "its text"
