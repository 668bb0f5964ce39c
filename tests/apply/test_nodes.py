"""`apply --drain kubernetes`: nodes go back after verify, under the lock, and not before. kubectl is a stand-in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpuprov import apply as applying
from gpuprov.apply import nodes
from gpuprov.apply.aftermath import LIMIT
from gpuprov.apply.model import HostOutcome
from gpuprov.core.errors import UnreachableError
from gpuprov.facts.probes.base import Output
from gpuprov.fleet.drain import in_play
from gpuprov.host_code.fence import Owner
from gpuprov.plan.show import Show
from gpuprov.spec.model import RawHost
from gpuprov.verify import Result
from tests.apply import fleet
from tests.fleet.drain.kubectl import Kubectl

pytestmark = pytest.mark.install
OWNER: Owner = {"run": "fri"}
NOTE = "gpuprov/drain"
RED = Result(host="h", check="kernel.state", capability="kernel", status="fail", expected="a", found="b", moment="now")


def held(run: str, *, apply: bool = True) -> dict[str, Any]:
    return {"annotations": {NOTE: json.dumps({"run": run, "apply": apply})}, "unschedulable": True}


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Kubectl(tmp_path)


@pytest.fixture
def locks(kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done with the host's lock, and whether the node is in service then."""
    did: list[str] = []

    def note(what: str) -> bool:
        did.append(f"{what}, {'out' if kubectl.node['spec'] else 'in service'}")
        return True

    monkeypatch.setattr(nodes, "_has_lock", lambda *_: note("taken"))
    monkeypatch.setattr(nodes, "leave", lambda *_: note("left"))
    return did


def given_back(*, green: bool, state: str = "unchanged") -> tuple[str, list[str]]:
    """The fix of the host gpu1, whose node is of the same name, and what was said."""
    said: list[str] = []
    good = Result(
        host="h", check="kernel.state", capability="kernel", status="pass", expected="a", found="a", moment="now"
    )
    outcome = HostOutcome(host="m1", state=state, results=[good if green else RED])  # type: ignore[arg-type]
    asked = in_play.parse_options("kubernetes", "fri")
    assert asked is not None
    raw = RawHost(name="m1", connection={"host_kubernetes_node": "gpu1"})
    nodes.give_back(asked, [raw], {"m1": outcome}, OWNER, said.append, lambda _: None)
    return outcome.fix, said


@pytest.mark.parametrize("run", ["fri", "thu"])
def test_a_green_host_s_node_goes_back_under_its_lock(kubectl: Kubectl, locks: list[str], run: str) -> None:
    """Also one that an earlier apply has left, and though this one has nothing to do."""
    kubectl.put(**held(run))
    by = "" if run == "fri" else ", which run thu has left,"
    assert given_back(green=True) == ("", [f"m1: node gpu1{by} is in service again"])
    assert kubectl.node["spec"] == {}
    assert not kubectl.node["metadata"].get("annotations")
    assert locks == ["taken, out", "left, in service"]


@pytest.mark.parametrize("run", ["fri", "thu"])
def test_a_host_that_is_not_green_stays_out_and_says_how_it_comes_back(
    kubectl: Kubectl, locks: list[str], run: str
) -> None:
    kubectl.put(**held(run))
    fix, said = given_back(green=False)
    assert f"Give it back later: gpuprov undrain HOST INVENTORY --by kubernetes --run {run}" in fix
    assert (said, locks, kubectl.changes, kubectl.node["spec"]) == ([], [], [], {"unschedulable": True})
    assert "stays cordoned" in given_back(green=True, state="failed")[0]


def test_a_host_that_another_run_works_on_is_that_run_s(kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_has_lock", lambda *_: False)
    kubectl.put(**held("thu"))
    assert "the lock of its host cannot be had" in given_back(green=True)[0]
    assert (kubectl.changes, kubectl.node["spec"]) == ([], {"unschedulable": True})


@pytest.mark.parametrize("there", [{"unschedulable": True}, held("thu", apply=False), {}])
def test_what_no_apply_has_taken_out_is_left_alone(kubectl: Kubectl, locks: list[str], there: dict[str, Any]) -> None:
    kubectl.put(**there)
    assert given_back(green=True) == ("", [])
    assert (kubectl.changes, locks) == ([], [])


def test_a_cluster_that_does_not_answer_is_told(kubectl: Kubectl) -> None:
    kubectl.put(fails="The connection to the server was refused")
    assert "node gpu1 was not looked at: Kubernetes was not asked to the end" in given_back(green=True)[0]


@pytest.mark.parametrize(("name", "out"), [("new1", False), ("wrong1", True)])
def test_apply_gives_back_after_verify(kubectl: Kubectl, tmp_path: Path, name: str, out: bool) -> None:
    """wrong1: its play ends well, and verify is not green. The lock is the real one, in a folder of the test's."""
    kubectl.put(**held("thu"))
    raw, spec = fleet.pair(name)
    raw.connection["host_kubernetes_node"] = "gpu1"
    (tmp_path / "project").mkdir()
    with fleet.project(tmp_path / "project"):
        given = {"yes": True, "log_dir": tmp_path / "log", "drain": "kubernetes", "run": "fri"}
        told: list[Any] = []

        def known(_: HostOutcome) -> None:
            told.append(kubectl.node["spec"])

        run = applying.apply([(raw, spec)], applying.Options.of(given), known=known)
        assert told == [{"unschedulable": True} if out else {}], "who goes on elsewhere does not look at it again"
        assert run.hosts[0].state == "changed"
        assert (kubectl.node["spec"] == {"unschedulable": True}) is out
        assert ("undrain" in run.hosts[0].fix) is out
        assert not (tmp_path / "project" / "run" / "lock").exists(), "it is given back"
        if not out:
            kubectl.put(**held("wed"))
            again = applying.apply([(raw, spec)], applying.Options.of({**given, "run": "sat"}))
            assert again.hosts[0].state == "unchanged"
            assert kubectl.node["spec"] == {}, "also where nothing had to be done"


def test_after_an_interrupt_it_is_said_that_nodes_stay_out(
    kubectl: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The play has ended well, and verify is what would have told."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    said: list[str] = []
    show = Show()
    monkeypatch.setattr(show, "say", said.append)
    monkeypatch.setattr("gpuprov.apply.execution._Execution.verify", interrupted)
    kubectl.put(**held("fri"))
    raw, spec = fleet.pair("new1")
    raw.connection["host_kubernetes_node"] = "gpu1"
    with fleet.project(tmp_path):
        given = {"yes": True, "log_dir": tmp_path / "log", "drain": "kubernetes", "run": "fri"}
        run = applying.apply([(raw, spec)], applying.Options.of(given), show)
    assert run.interrupted
    assert kubectl.node["spec"] == {"unschedulable": True}
    assert any("may stay out" in one and "undrain HOST INVENTORY --by kubernetes --run fri" in one for one in said)


@pytest.mark.parametrize(("lost", "taken", "back"), [(1, True, []), (99, False, ["m1"])])
def test_a_lock_whose_answer_was_lost_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, lost: int, taken: bool, back: list[str]
) -> None:
    """Who has it gets it again; where no answer comes at all, it is given back all the same."""
    asked: list[str] = []
    left: list[str] = []

    def run(*_: object) -> str:
        asked.append("take")
        if len(asked) <= lost:
            raise UnreachableError("gone", "m1")
        return "an answer"

    monkeypatch.setattr(nodes, "run", run)
    monkeypatch.setattr(nodes, "split", lambda _text: {"leave": Output('{"taken": true}')})
    monkeypatch.setattr(nodes, "leave", lambda hosts, _owner: left.append(hosts[0].name))
    assert nodes._has_lock(RawHost(name="m1"), OWNER) is taken
    assert (left, len(asked)) == (back, 2 if taken else nodes.TRIES)


def test_a_host_that_has_vanished_costs_its_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, limits = [0.0], []

    def run(_raw: object, _script: str, limit: float) -> str:
        limits.append(limit)
        now[0] += limit
        raise UnreachableError("no answer", "m1")

    monkeypatch.setattr(nodes, "run", run)
    monkeypatch.setattr(nodes, "leave", lambda *_: None)
    monkeypatch.setattr("gpuprov.apply.nodes.time.monotonic", lambda: now[0])
    assert nodes._has_lock(RawHost(name="m1"), OWNER) is False
    assert limits == [LIMIT]
