"""A rollback of several hosts, of which some keep checkpoints that no gpuprov wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuprov.apply import rollback
from gpuprov.apply.model import ApplyRun, HostOutcome, Options
from gpuprov.checkpoints import program
from gpuprov.gather.children import Ended
from gpuprov.probe.base import Facts, Output
from gpuprov.spec.model import RawHost

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
    monkeypatch.setattr(program, "run_all", lambda jobs, _: [*jobs])

    def job(raw: RawHost, script: str, limit: float, done: Any) -> None:
        done(Ended(raw.name.encode(), b"", 0))

    monkeypatch.setattr(program, "job", job)
    monkeypatch.setattr(program, "split", lambda ended: {"checkpoint": Output(json.dumps(answers[ended.out.decode()]))})
    hosts = [RawHost(name=name, values=GOOD) for name in specs]
    return rollback.rollback(hosts, Options(asked_at="2026-11-11T10:00:00Z"))


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
