"""One machine by two names of the inventory: told to who reads it, and changed by one of them alone."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov import apply as applying
from gpuprov.apply.execution import _Execution
from gpuprov.apply.model import HostOutcome
from gpuprov.fleet.specs import judge
from gpuprov.jobs import outcome
from gpuprov.plan import planning
from gpuprov.plan.decide import PlanOptions
from gpuprov.plan.read import Pair
from gpuprov.spec.model import RawHost
from gpuprov.verify.verify import exit_code, verify
from tests.taint.transport import Texts, answers, serve

BOOT, OTHER = "9f0c1b1e-0000-4000-8000-000000000001", "9f0c1b1e-0000-4000-8000-000000000002"
MACHINE = "pid:[4026531836]"


def host(name: str, memlock: int) -> Pair:
    values: dict[str, Any] = {"kernel": {"limits": {"memlock": memlock}}}
    [pair] = judge([RawHost(name=name, values=values)]).pairs
    return pair


PAIRS = [host("gpu1", 2000000), host("gpu2", 2000000), host("gpu1-ib", 3000000)]


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Texts]:
    boots = {"gpu1": BOOT, "gpu2": OTHER, "gpu1-ib": BOOT}
    found = {name: answers() | {"which_machine": f"{boot} {MACHINE}\n"} for name, boot in boots.items()}
    serve(monkeypatch, found)
    return found


def run(monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[list[str], dict[str, HostOutcome], int]:
    """The hosts that Ansible would have been run on, what became of all, and the exit code."""
    worked: list[str] = []
    monkeypatch.setattr(_Execution, "roll", lambda _self, work: worked.extend(work))
    monkeypatch.setattr(_Execution, "tidy", lambda _self: None)
    done = applying.apply(PAIRS, applying.Options(yes=True, **options))
    return worked, {one.host: one for one in done.hosts}, done.exit_code


@pytest.mark.usefixtures("hosts")
@pytest.mark.parametrize("options", [{}, {"serial": "1"}, {"run": "friday"}])
def test_apply_works_on_it_by_its_first_name(monkeypatch: pytest.MonkeyPatch, options: dict[str, str]) -> None:
    worked, found, code = run(monkeypatch, **options)
    assert worked == ["gpu1", "gpu2"]
    assert (found["gpu1-ib"].state, found["gpu1-ib"].ran, code) == ("blocked", {}, 3)
    assert found["gpu1-ib"].message == "the same machine as gpu1, by which name alone a run works on it"
    assert "take all its names but one out of the inventory, or out of this run with --limit" in found["gpu1-ib"].fix


def test_a_machine_whose_boot_is_not_known_is_its_name(
    monkeypatch: pytest.MonkeyPatch, hosts: dict[str, Texts]
) -> None:
    for texts in hosts.values():
        texts["which_machine"] = f" {MACHINE}\n"
    assert run(monkeypatch)[0] == ["gpu1", "gpu2", "gpu1-ib"], "its lock is what is left"


@pytest.mark.parametrize(
    ("fence", "state"),
    [
        ("7-0a1b2c3d friday kim ops1 2026-11-28T08:00:00Z gpu1", "blocked"),
        ("7-0a1b2c3d friday kim ops1 2026-11-28T08:00:00Z gpu1-ib", "not-started"),
        ("7-0a1b2c3d monday kim ops1 2026-11-28T08:00:00Z gpu1", "not-started"),
        ("7-0a1b2c3d friday kim ops1 2026-11-28T08:00:00Z", "not-started"),
    ],
)
def test_an_earlier_job_of_the_roll_out_had_it_by_another_name(
    monkeypatch: pytest.MonkeyPatch, hosts: dict[str, Texts], fence: str, state: str
) -> None:
    hosts["gpu1-ib"]["fence"] = f"{fence}\n"
    monkeypatch.setattr(_Execution, "roll", lambda _self, _work: None)
    monkeypatch.setattr(_Execution, "tidy", lambda _self: None)
    done = applying.apply(PAIRS[2:], applying.Options(yes=True, run="friday"))
    assert done.hosts[0].state == state
    if state == "blocked":
        assert done.hosts[0].message.startswith("the same machine as gpu1")
        told = outcome.Told(run="friday", job="1", fleet="1", act="apply", started=outcome.now())
        assert not outcome.of_apply(told, done.hosts[0]).green


@pytest.mark.usefixtures("hosts")
def test_plan_says_what_apply_does() -> None:
    first, _, second = planning.plan(PAIRS, PlanOptions(exact=False))
    assert first.run
    assert (second.run, [one.check for one in second.blocked]) == ({}, ["host.machine"])
    assert second.blocked[0].found.startswith("the same machine as gpu1")


@pytest.mark.usefixtures("hosts")
def test_verify_tells_it_once_and_fails_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    both = verify(PAIRS)
    told = capsys.readouterr().err
    assert " ".join(told.split()).count("gpu1, gpu1-ib are one machine") == 1
    assert exit_code(both) == exit_code(verify(PAIRS[:1])) == exit_code(verify(PAIRS[2:]))
    assert "are one machine" not in capsys.readouterr().err
