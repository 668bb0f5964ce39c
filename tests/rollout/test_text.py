"""Where a roll-out stands, in words."""

from __future__ import annotations

import random

import msgspec

from gpuprov.rollout.planned import planned
from gpuprov.rollout.status import Status, status
from gpuprov.rollout.text import as_text, awaited
from tests.rollout.world import World, members, policy


def stands(text: str, count: int, outcomes: dict[str, int]) -> Status:
    one = World(planned(policy(text), members(count)), random.Random(3), outcomes)
    state = one.run()
    return status("friday", state, carried_out=False, domains=one.plan.domains, details={})


def test_batches_that_fared_alike_are_one_line_and_the_canary_is_its_own() -> None:
    told = stands("canary: {count: 2}\nbatches: {size: 2}\n", 12, {"green": 1})
    assert as_text(told).splitlines()[2:] == ["  canary        over    2 green", "  batch 1 to 5  over    2 green"]


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
        ({"state": "running", "waits": [wait]}, 'hint: gpuprov rollout approve r "batch 3"'),
        ({"state": "paused", "why": "by alice"}, "hint: gpuprov rollout resume r continues"),
    ):
        told = msgspec.structs.replace(status, id="r", **changed)
        assert as_text(told).splitlines()[-1] == said
