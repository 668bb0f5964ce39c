"""A saved plan is what is applied, or it is refused with what has changed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from gpuprov import apply as applying
from gpuprov.cli.reference import file_schema
from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.plan import planning, saved
from gpuprov.plan.decide import PlanOptions
from gpuprov.plan.model import HostPlan, Item
from gpuprov.plan.read import Pair, Reading
from gpuprov.spec.kernel import Kernel
from gpuprov.verify.evaluate import Result
from tests.apply import fleet
from tests.apply.fleet import SECRET

ASKED = saved.Asked(inventory=("/etc/ansible/inventory.yaml",), limit="training", extra_vars=("wanted=enabled",))


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    with fleet.project(tmp_path) as state:
        (state / "same1").write_text("as wanted\n")
        yield state


def planned(pairs: list[Pair]) -> saved.Saved:
    readings: dict[str, Reading] = {}
    plans = planning.plan(pairs, PlanOptions(exact=False), on_read=readings.update)
    return saved.made(ASKED, pairs, readings, plans, "2026-11-23T11:00:00Z")


def find_none(_plans: object, _readings: object) -> dict[str, list[str]]:
    return {}


def kept(made: saved.Saved, pairs: list[Pair], folder: Path) -> saved.Saved:
    """Through the file and back."""
    file = folder / "friday.plan"
    file.write_text(saved.text(made, pairs))
    file.chmod(0o600)
    assert saved.is_saved_plan(str(file))
    return saved.load(file)


@pytest.mark.install
def test_what_was_planned_is_applied_and_then_refused(tmp_path: Path, state: Path) -> None:
    pairs = [fleet.pair(name) for name in ("new1", "same1")]
    made = planned(pairs)
    plan = kept(made, pairs, tmp_path)
    assert plan == made
    assert saved.of_plan(plan, pairs) == pairs
    options = applying.Options(yes=True, log_dir=tmp_path / "log")
    run = applying.apply(pairs, options, agreed=partial(saved.agree, plan, compare=find_none))
    assert {outcome.host: outcome.state for outcome in run.hosts} == {"new1": "changed", "same1": "unchanged"}
    (state / "same1").unlink()
    with pytest.raises(GpuprovError) as caught:
        applying.apply(pairs, options, agreed=partial(saved.agree, plan, compare=find_none))
    assert caught.value.message.splitlines() == [
        "saved plan is stale: it can no longer be applied, because something has changed since it was made; nothing "
        "was changed",
        "  new1: kernel.state: was fail (missing; file /state: missing -> matches); is pass",
        "  same1: kernel.state: was pass; is fail (missing; file /state: missing -> matches)",
    ]
    assert not (state / "same1").exists()


def test_another_decision_on_the_same_host_is_refused(state: Path) -> None:
    pairs = [fleet.pair("new1")]
    plan = planned(pairs)
    readings: dict[str, Reading] = {}
    planning.plan(pairs, PlanOptions(exact=False), on_read=readings.update)
    saved.agree(plan, readings, {"new1": {"kernel": "fails"}}, find_none)
    with pytest.raises(GpuprovError, match="new1: to apply was kernel; is nothing"):
        saved.agree(plan, readings, {"new1": {}}, find_none)
    moved = "vm.swappiness: the plan puts back 60; now apply leaves it (changed by others)"
    with pytest.raises(GpuprovError, match=re.escape(f"new1: {moved}")):
        saved.agree(plan, readings, {"new1": {"kernel": "fails"}}, lambda _plans, _readings: {"new1": [moved]})
    lost = {"new1": replace(readings["new1"], lost=UnreachableError("gone"))}
    saved.agree(plan, lost, {}, find_none)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "new1: this plan was applied already, by run 5f of kim on ops1, at 2026-11-23T12:00:00Z"),
        ({"fence": "2026-11-23T13:00:00Z"}, "new1: this plan was applied already, at 2026-11-23T12:00:00Z"),
        ({"applied": "2026-11-23T10:00:00Z"}, "saved plan is stale"),
        ({"digest": "of another spec"}, "saved plan is stale"),
        ({"to_run": True}, "saved plan is stale"),
    ],
)
def test_a_plan_that_was_applied_says_by_which_run_and_when(
    changed: dict[str, Any], expected: str, state: Path
) -> None:
    """Where the receipt has the same spec since the plan; of a host that differs again, beside the refusal."""
    pairs = [fleet.pair("new1")]
    plan = planned(pairs)
    (state / "new1").write_text("as wanted\n")
    readings: dict[str, Reading] = {}
    planning.plan(pairs, PlanOptions(exact=False), on_read=readings.update)
    at, taken = changed.get("applied", "2026-11-23T12:00:00Z"), changed.get("fence", "2026-11-23T11:30:00Z")
    entry = {"digest": changed.get("digest", plan.hosts[0].spec["kernel"]), "applied_at": at}
    facts = Facts(
        {
            "receipt": Output(json.dumps({"applied_at": at, "capabilities": {"kernel": entry}})),
            "fence": Output(f"7-0123abcd 5f kim ops1 {taken} new1\n"),
        }
    )
    readings = {"new1": replace(readings["new1"], facts=facts)}
    with pytest.raises(GpuprovError) as caught:
        saved.agree(plan, readings, {"new1": {"kernel": "fails"} if "to_run" in changed else {}}, find_none)
    assert expected in caught.value.message
    assert ("new1: kernel.state" in caught.value.message) == ({*changed} & {"applied", "digest"} != set())
    assert caught.value.fix == (saved.AGAIN if "stale" in expected else saved.DONE)


def other(pair: Pair, **spec: Any) -> Pair:
    return pair[0], replace(pair[1], **spec)


def test_what_the_inventory_says_now(state: Path) -> None:
    pair = fleet.pair("new1")
    plan = planned([pair])
    moved = replace(
        pair[0], connection={**pair[0].connection, "ansible_connection": "ssh", "ansible_host": "192.0.2.9"}
    )
    wanted = {"kernel": Kernel(sysctl={"vm.nr_hugepages": 8})}
    for pairs, said in [
        ([(moved, pair[1])], "new1: is reached at 192.0.2.9, was at local"),
        ([other(pair, reboot="if-needed")], "new1: reboot is if-needed, was never"),
        ([other(pair, capabilities=wanted)], "new1: kernel: the spec changed"),
        ([other(pair, capabilities={})], "new1: kernel is not in the spec any more"),
        ([], "new1 is not in the inventory any more"),
        ([pair, fleet.pair("new2")], "new2 is new in the inventory"),
    ]:
        with pytest.raises(GpuprovError) as caught:
            saved.of_plan(plan, pairs)
        assert caught.value.message.splitlines()[1:] == [f"  {said}"]
        assert "gpuprov plan -o" in caught.value.fix


def test_hosts_that_the_plan_did_not_reach_are_left_out(state: Path) -> None:
    pairs = [fleet.pair("new1"), fleet.pair("down1")]
    plan = planned(pairs)
    down = replace(plan.hosts[1], plan=HostPlan(host="down1", unreachable="no answer"))
    plan = replace(plan, hosts=(plan.hosts[0], down))
    assert [raw.name for raw, _ in saved.of_plan(plan, pairs)] == ["new1"]
    assert saved.left_out(plan) == ["down1"]


def test_no_secret_of_the_inventory_is_in_it(state: Path) -> None:
    pairs = [fleet.pair("new1")]
    plan = planned(pairs)
    leaking = replace(plan.hosts[0].plan, diffs=(Item(kind="file", name="/etc/x", diff=f"+token={SECRET}"),))
    text = saved.text(replace(plan, hosts=(replace(plan.hosts[0], plan=leaking),)), pairs)
    assert SECRET not in text
    assert "+token=********" in text


def test_the_schema_describes_it(state: Path) -> None:
    pairs = [fleet.pair("new1"), fleet.pair("same1")]
    document = json.loads(saved.text(planned(pairs), pairs))
    jsonschema.validate(document, json.loads(file_schema("plan")))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "hosts": [{}]}, json.loads(file_schema("plan")))


def test_a_plan_saved_before_places_were_kept_is_read(tmp_path: Path, state: Path) -> None:
    """`places` is the only key of a host's plan that a file of this version may lack."""
    pairs = [fleet.pair("new1")]
    made = planned(pairs)
    placed = replace(made.hosts[0].plan, places={"kernel.boot": "gpu.yaml:5:24"})
    made = replace(made, hosts=(replace(made.hosts[0], plan=placed),))
    assert kept(made, pairs, tmp_path) == made
    text = json.loads(saved.text(made, pairs))
    del text["hosts"][0]["plan"]["places"]
    file = tmp_path / "older.plan"
    file.write_text(json.dumps(text, separators=(",", ":")))
    assert saved.load(file).hosts[0].plan.places == {}


def test_equal_hosts_share_what_was_said_of_them(state: Path) -> None:
    pairs = [fleet.pair(f"new{number}") for number in range(50)]
    plan = planned(pairs)
    assert len({one.state for one in plan.hosts}) == len(plan.states) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpuprov_version": "0.0.1"}, "is a plan of gpuprov 0.0.1"),
        ({"gpuprov_plan": 99, "hosts": "in another way"}, "format 99"),
        ({"hosts": 1}, "is not a plan that gpuprov wrote"),
    ],
)
def test_a_file_that_is_not_ours(change: dict[str, object], said: str, tmp_path: Path, state: Path) -> None:
    pairs = [fleet.pair("new1")]
    file = tmp_path / "x.plan"
    file.write_text(json.dumps(json.loads(saved.text(planned(pairs), pairs)) | change))
    file.chmod(0o600)
    with pytest.raises(GpuprovError, match=said):
        saved.load(file)


def test_a_plan_that_others_may_write_is_not_followed(tmp_path: Path, state: Path) -> None:
    pairs = [fleet.pair("new1")]
    file = tmp_path / "x.plan"
    file.write_text(saved.text(planned(pairs), pairs))
    file.chmod(0o666)
    with pytest.raises(GpuprovError, match="others may write it"):
        saved.load(file)
    if os.geteuid() == 0:
        file.chmod(0o600)
        os.chown(file, 65534, -1)
        with pytest.raises(GpuprovError, match="belongs to another user"):
            saved.load(file)


def test_what_is_no_plan_is_an_inventory(tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text("all: {}\n")
    assert not any(
        saved.is_saved_plan(str(path)) for path in (tmp_path, tmp_path / "inventory.yaml", tmp_path / "none")
    )


def test_no_more_than_its_beginning_is_read_to_know_a_plan(tmp_path: Path) -> None:
    """Every inventory is looked at so: a file of a TiB, which takes no room on the disk, ended gpuprov with a
    MemoryError."""
    large = tmp_path / "inventory.yaml"
    large.touch()
    os.truncate(large, 1 << 40)
    assert not saved.is_saved_plan(str(large))


def test_figures_of_what_passes_are_not_bound() -> None:
    results = [
        Result(
            host="a", capability="host", check="host.clock", status="pass", expected=f"{n} MiB free", found=f"{n} MiB"
        )
        for n in (1, 2)
    ]
    assert saved.judged(results[:1]) == saved.judged(results[1:])
    failing = [replace(result, status="fail") for result in results]
    assert saved.judged(failing[:1]) != saved.judged(failing[1:])


def test_a_plan_holds_for_a_host_that_is_drained_for_it() -> None:
    """Planned on Thursday, drained and applied on Friday; and whatever became of its note."""
    there, out = (
        Result(host="a", capability="host", check="host.in_service", status=status) for status in ("n/a", "skip")
    )
    assert saved.judged([there]) == saved.judged([out])
    lost = Result(host="a", capability="host", check="host.in_service", status="error", found="no answer")
    assert saved.judged([there]) == saved.judged([lost])
