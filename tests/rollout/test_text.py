"""Where a roll-out stands, in words."""

from __future__ import annotations

import random

import msgspec
import pytest

from gpuprov.fleet.drain import Step
from gpuprov.fleet.policy import events
from gpuprov.fleet.policy.planned import planned
from gpuprov.fleet.policy.state import State, folded
from gpuprov.jobs.model import HostResult
from gpuprov.rollout import results
from gpuprov.rollout.drains import follows
from gpuprov.rollout.status import Status, status
from gpuprov.rollout.text import as_text, awaited, line
from tests.fleet.policy.world import World, members, policy


def stands(text: str, count: int, outcomes: dict[str, int]) -> Status:
    one = World(planned(policy(text), members(count)), random.Random(3), outcomes)
    state = one.run()
    return status("friday", state, carried_out=False, domains=one.plan.domains, details={})


def test_batches_that_fared_alike_are_one_line_and_the_canary_is_its_own() -> None:
    told = stands("canary: {count: 2}\nbatches: {size: 2}\n", 12, {"green": 1})
    assert as_text(told).splitlines()[2:] == ["  canary        over    2 green", "  batch 1 to 5  over    2 green"]


@pytest.mark.install
def test_a_thousand_hosts_are_told_in_a_screen() -> None:
    told = stands("batches: {size: 50}\nbudget: {batch: 100%, whole: 100%}\n", 1000, {"green": 9, "failed": 1})
    lines = as_text(told).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 60
    assert lines[0] == "friday: finished"
    assert any(line.startswith("failed: gpu0") for line in lines)
    assert told.exit_code == 3


def test_who_looks_is_told_what_to_say_next() -> None:
    status = stands("canary: {count: 2}\n", 4, {"green": 1})
    wait = 'waits for the approval of "batch 3" by 1 of alice, bob'
    assert awaited(wait) == "batch 3"
    assert awaited('waits for the approval of "the "big" rack" by night" by alice, bob') == 'the "big" rack" by night'
    assert awaited("outside the time windows") == awaited("waits for the approval of nobody") == ""
    for changed, said in (
        ({"state": "running", "waits": [wait]}, 'fix: gpuprov rollout approve r "batch 3"'),
        ({"state": "paused", "why": "by alice"}, "fix: gpuprov rollout resume r continues"),
    ):
        told = msgspec.structs.replace(status, id="r", **changed)
        assert as_text(told).splitlines()[-1] == said


GONE = "gpu0001: no route to host"


def untold(*given: events.Event) -> Status:
    """Of a roll-out over two hosts, of which one knows nothing of its fate."""
    plan = planned(policy("drain: {adapter: slurm}\n"), members(2))
    drained = events.Drained(at=1, hosts=("gpu0001",), untold=GONE)
    return status("friday", folded(plan, [drained, *given]), carried_out=False, domains=plan.domains, details={})


def test_a_host_that_does_not_know_that_it_is_out_is_told() -> None:
    words = f"what verify says of gpu0001 does not know of it: no note could be left there ({GONE})"
    for given, known in (
        ([], False),
        ([events.Returned(at=2, hosts=("gpu0001",), untold="")], True),
        ([events.Returned(at=2, hosts=("gpu0001",), untold=GONE)], False),
        ([events.Returned(at=2, hosts=("gpu0001",), message="not given back")], False),
    ):
        told = untold(*given)
        assert (words in as_text(told, 200)) is not known
        assert [one.untold for one in told.hosts] == ["", "" if known else GONE]


def test_what_a_step_says_of_it_is_recorded_and_said() -> None:
    done = Step(host="gpu0001", node="n", state="done", untold=GONE)
    refused = msgspec.structs.replace(done, state="refused", message="somebody's", untold="")
    state = folded(planned(policy("drain: {adapter: slurm}\n"), members(2)), [])
    words = f"what verify says of gpu0001 does not know of it: no note could be left there ({GONE})"
    out = follows("drained", "gpu0001", done, 1.0)
    back = follows("return", "gpu0001", done, 1.0)
    kept = follows("return", "gpu0001", refused, 1.0)
    assert isinstance(out, events.Drained)
    assert isinstance(back, events.Returned)
    assert isinstance(kept, events.Returned)
    assert (out.untold, back.untold, kept.untold) == (GONE, GONE, None)
    told = [line(one, state) for one in (out, back, kept)]
    assert told == [f"free: gpu0001; {words}", words, "gpu0001: not given back: somebody's"]


def test_what_a_host_says_stays_in_its_line() -> None:
    told = HostResult(
        run="r", job="", fleet="", host="gpu1", act="apply", state="failed", message="x\ngpu2: done",
        started="2026-11-23T18:00:00.000Z", ended="2026-11-23T18:00:00.000Z",
    )  # fmt: skip
    assert results.message(told) == "x gpu2: done"


def test_repairs_are_told_with_their_budget() -> None:
    plan = planned(policy("repair: {budget: 2}\n"), members(2))
    begun = events.Working(at=1, job=1, act="apply", hosts=tuple(plan.domains), repairs=2)
    ends = (events.HostEnd("gpu0000", "green"), events.HostEnd("gpu0001", "failed", message="given up", repair="done"))
    ended = events.Done(at=2, job=1, hosts=ends)
    state = folded(plan, [begun, ended])
    assert line(ended, state).splitlines() == ["repaired: gpu0001", "gpu0000: green", "gpu0001: failed: given up"]
    told = status("friday", state, carried_out=False, domains=plan.domains, details={})
    assert (told.repairs, [host.repaired for host in told.hosts]) == (2, [False, True])
    assert "repaired: gpu0001 (1 of 2)" in as_text(told).splitlines()


def test_a_host_without_a_try_left_is_said_to_have_failed() -> None:
    state = State(planned(policy("retry: {attempts: 2}\n"), members(1)))
    [name] = state.hosts
    told = []
    for number in (1, 2):
        state.add(events.Working(at=1.0, job=number, act="apply", hosts=(name,)))
        ended = events.Done(at=2.0, job=number, hosts=(events.HostEnd(name, "again", "unreachable", "refused"),))
        state.add(ended)
        told.append(line(ended, state))
    assert told == [f"{name}: tried again: refused", f"{name}: failed: refused"]
