"""Repairs of a job's hosts before they are changed: no more than it may do, each host once in a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.jobs import outcome, repairs, work
from gpuprov.jobs.model import HostResult
from gpuprov.jobs.pulse import Pulse
from gpuprov.jobs.repairs import RecordedHosts, Repairs, repair_first
from gpuprov.plan.read import Pair
from gpuprov.repair import hosts as reached
from gpuprov.repair.hosts import Answer
from gpuprov.repair.model import HostRepair, Options, Repaired
from gpuprov.verify.evaluate import Result
from tests.jobs.test_work import silent
from tests.repair.fake_hosts import FakeHost, plan
from tests.repair.test_command import Fleet, pairs, short

__all__ = ["short"]
OPTIONS = Options(run="r1", yes=True, drain=False, reboot=True, max_out="100%", max_fail="100%", total=4)


@dataclass
class Known(Fleet):
    """Hosts of which some were repaired by this run before."""

    repaired: set[str] = field(default_factory=set)


@pytest.fixture(autouse=True)
def tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tickets of hosts that are not read again; none can be written of `full`."""

    def write_tickets(_pairs: object, run: Repaired, folder: Path | None) -> None:
        assert folder is None
        for host in run.hosts:
            if host.state == "given up" and host.host == "full":
                raise GpuprovError("no space")
            host.ticket = ("/tickets/a.html", "/tickets/a.json") if host.state == "given up" else ()

    monkeypatch.setattr(repairs, "write_tickets", write_tickets)


@pytest.mark.parametrize(
    ("name", "words"), [("gpu1", "tried: /tickets/a.html"), ("full", "no ticket was written: no space")]
)
def test_a_host_that_was_given_up_has_a_ticket(name: str, words: str) -> None:
    found, _ = repair({name: FakeHost(ends="")}, 1)
    assert (found.refused[name].state, found.refused[name].fix.endswith(words)) == ("failed", True)


def repair(hosts: dict[str, FakeHost], most: int, *before: str) -> tuple[Repairs, Known]:
    fleet = Known(hosts, repaired={*before})
    return repair_first(pairs(*hosts), cast(RecordedHosts, fleet), OPTIONS, most), fleet


def test_the_first_unfit_hosts_are_repaired_and_the_others_left_alone() -> None:
    found, fleet = repair({"gpu1": FakeHost(well=True), "gpu2": FakeHost(), "gpu3": FakeHost()}, 1)
    assert found.repaired == {"gpu2"}
    assert {name: (host.state, host.task) for name, host in found.refused.items()} == {"gpu3": ("blocked", "repair")}
    assert found.refused["gpu3"].message.endswith("no repair is left for it")
    assert fleet.calls.count("reset") == 1
    assert not fleet.hosts["gpu3"].well


@pytest.mark.parametrize(
    ("host", "most", "before", "repaired", "state"),
    [
        (FakeHost(ends="reboot"), 1, (), True, ""),
        (FakeHost(ends=""), 1, (), True, "failed"),
        (FakeHost(), 0, (), False, "blocked"),
        (FakeHost(), 2, ("gpu1",), True, "blocked"),
        (FakeHost(well=True), 0, ("gpu1",), True, ""),
        # What is in use, or another run's, is apply's to tell.
        (FakeHost(answers={"look": Answer(holders=("python3",))}), 1, (), False, ""),
        (FakeHost(answers={"take": Answer(locked={"holder": None, "id": "x"})}), 1, (), False, ""),
        (FakeHost(action="replace"), 1, (), False, ""),
    ],
    ids=["by a reboot", "given up", "none left", "once in a run", "before a kill", "in use", "locked", "a vendor's"],
)
def test_what_becomes_of_a_host(host: FakeHost, most: int, before: tuple[str, ...], repaired: bool, state: str) -> None:
    found, _ = repair({"gpu1": host}, most, *before)
    assert ("gpu1" in found.repaired) == repaired
    refused = found.refused.get("gpu1")
    assert (refused.state if refused else "") == state


def test_only_a_host_for_which_no_repair_was_left_waits_for_one() -> None:
    given_up = repairs._give_up(HostRepair(plan=plan("gpu1"), state="given up", message="a defect"))
    left = repairs._refuse(plan("gpu2"), again=False)
    again = repairs._refuse(plan("gpu3"), again=True)
    found = Repairs(frozenset({"gpu3"}), {"gpu1": given_up, "gpu2": left, "gpu3": again})
    assert [found.describe(name) for name in ("gpu1", "gpu2", "gpu3", "gpu4")] == ["", "none left", "done", ""]


def test_a_repair_of_a_killed_worker_counts() -> None:
    found, fleet = repair({"gpu1": FakeHost(well=True), "gpu2": FakeHost()}, 1, "gpu1")
    assert ({*found.repaired}, {*found.refused}) == ({"gpu1"}, {"gpu2"})
    assert "reset" not in fleet.calls


def test_a_host_says_by_its_record_which_run_has_repaired_it(monkeypatch: pytest.MonkeyPatch) -> None:
    line = '{"at": 5, "run": "RUN", "act": "reset"}'
    told: dict[str, Facts | UnreachableError] = {
        "gpu1": Facts({"repairs": Output(line.replace("RUN", "r1"))}),
        "gpu2": Facts({"repairs": Output(line.replace("RUN", "r2"))}),
        "gpu3": UnreachableError("gone"),
    }

    def verify_each(_pairs: object, note: Any, **_more: object) -> None:
        for name, facts in told.items():
            note(name, [], facts)

    monkeypatch.setattr(reached, "verify_each", verify_each)
    hosts = RecordedHosts(pairs(*told), OPTIONS)
    hosts.judge([*told])
    assert hosts.repaired == {"gpu1"}


def test_results_say_what_was_repaired_and_what_is_unfit_is_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied: list[str] = []
    refused = repairs._refuse(plan("gpu2"), again=False)
    done = Repairs(frozenset({"gpu1"}), {"gpu2": refused})
    asked: list[tuple[Options, int]] = []

    def repair_hosts(_pairs: object, options: Options, most: int) -> Repairs:
        asked.append((options, most))
        return done

    def apply(chosen: Sequence[Pair], _options: object, common: outcome.Told, _pulse: object, note: Any) -> bool:
        for raw, _ in chosen:
            applied.append(raw.name)
            note(
                outcome.of_verify(common, raw.name, [Result(host=raw.name, capability="x", check="x.y", status="pass")])
            )
        return False

    monkeypatch.setattr(work, "repair_hosts", repair_hosts)
    monkeypatch.setattr(work, "_apply", apply)
    common = outcome.Told(run="r1", job="", fleet="", act="apply", started=outcome.now())
    noted: dict[str, HostResult] = {}

    def note(result: HostResult) -> None:
        noted[result.host] = result

    hosts = pairs("gpu1", "gpu2", "gpu3")
    pulse = Pulse(silent)
    options = work.Options(act="apply", run="r1", repair=3, reboot=True)
    assert work.ACTS["apply"](hosts, options, common, pulse, note) is False
    assert applied == ["gpu1", "gpu3"]
    assert {name: (result.state, result.repair) for name, result in noted.items()} == {
        "gpu1": ("verified", "done"), "gpu2": ("blocked", "none left"), "gpu3": ("verified", "")}  # fmt: skip
    [(given, most)] = asked
    assert (most, given.run, given.drain, given.reboot, given.yes) == (3, "r1", False, True, True)
    work.ACTS["apply"](hosts, work.Options(act="apply", run="r1"), common, pulse, note)
    assert (len(asked), applied[2:]) == (1, ["gpu1", "gpu2", "gpu3"]), "without --repair no host is looked at for that"
