"""What the policy promises holds in every order of events: seeds make the orders."""

from __future__ import annotations

import random

import pytest

from gpuprov.fleet.policy import decide, events
from gpuprov.fleet.policy.planned import planned
from gpuprov.fleet.policy.state import folded
from tests.fleet.policy.world import World, members, policy, world
from tests.rows import run_each


def made_up(chance: random.Random) -> str:
    """A policy by chance."""
    lines = ["domain: rack"]
    lines += (
        [f"canary: {{count: {chance.randint(1, 3)}, soak: {chance.choice(['0s', '30m'])}}}"]
        if chance.random() < 0.7
        else []
    )
    soak = chance.choice(["0s", "10m", "2h"])
    size = "by_domain: true" if chance.random() < 0.3 else f"size: {chance.choice(['1', '7', '10%', '50%'])}"
    lines.append(f"batches: {{{size}, soak: {soak}}}")
    domain = f", per_domain: {chance.randint(1, 4)}" if chance.random() < 0.6 else ""
    lines.append(
        f"limits: {{at_once: {chance.randint(1, 12)}, jobs: {chance.randint(1, 3)}, job_size: "
        f"{chance.randint(1, 9)}{domain}}}"
    )
    lines.append(f"budget: {{batch: {chance.choice(['0', '1', '20%'])}, whole: {chance.choice(['0', '2', '10%'])}}}")
    lines.append(f"retry: {{attempts: {chance.randint(1, 4)}, after: {chance.choice(['0s', '5m'])}}}")
    if chance.random() < 0.4:
        lines.append(
            'windows: {time_zone: Europe/Berlin, open: ["mon-thu 22:00-05:00", "sat 02:00-03:30"], margin: 30m}'
        )
    if chance.random() < 0.5:
        lines.append("drain: {adapter: slurm, timeout: 1h}")
    if chance.random() < 0.3:
        lines.append("prepare: true")
    if chance.random() < 0.3:
        lines.append(f"repair: {{budget: {chance.choice(['1', '3', '10%'])}}}")
    if chance.random() < 0.3:
        lines.append("approvals: [{before: batches, by: [alice, bob], count: 2}, {before: each-batch, by: [carol]}]")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.install) for part in range(1, 8))])
def test_promises_hold_whatever_happens(part: int) -> None:
    ended = 0
    for seed in range(part * 60, part * 60 + 60):
        chance = random.Random(seed)
        text, count = made_up(chance), chance.randint(1, 40)
        outcomes = chance.choice(
            [{"green": 1}, {"green": 20, "failed": 1, "again": 2}, {"green": 9, "waits": 1, "again": 1}]
        )
        one = world(seed, text, count, outcomes)
        state = one.run()
        assert state.finished, (seed, text)
        ended += 1
        assert folded(one.plan, one.log) == state, "the events alone make the state"
        assert {name for batch in one.plan.batches for name in batch.hosts} == set(state.hosts), "a host was lost"
        assert all(host.stage == "done" for host in state.hosts.values()), (seed, text)
    assert ended == 60


@pytest.mark.install
def test_the_same_is_decided_again() -> None:
    one = world(7, made_up(random.Random(7)), 30, {"green": 8, "failed": 1, "again": 2})
    one.run()
    for cut in range(0, len(one.log), 3):
        now = one.log[cut].at
        again = [decide.following(folded(one.plan, log), now) for log in (one.log[:cut], list(one.log[:cut]))]
        assert again[0] == again[1]


@run_each("seed", range(40))
def test_whoever_aborts_gets_every_host_back(seed: int) -> None:
    chance = random.Random(seed)
    one = world(seed, made_up(chance), 25, {"green": 9, "again": 1}, meddles=False)
    steps = chance.randint(1, 30)
    for _ in range(steps):
        actions = decide.following(one.state, one.now)
        one.watch(actions)
        for action in actions:
            one.do(action)
        one.happen()
        one.now += 20
    if one.state.finished:
        return
    one.add(events.Aborted(at=one.now, by="alice"))
    state = one.run()
    assert state.finished
    assert not [name for name, host in state.hosts.items() if host.stage in ("draining", "ready", "working", "worked")]
    kept = [name for name, host in state.hosts.items() if host.held]
    assert all(state.hosts[name].touched and state.hosts[name].verdict != "green" for name in kept)


def play(text: str, count: int = 6) -> World:
    return World(planned(policy(text), members(count)), random.Random(1))


def work(actions: list[decide.Action]) -> list[tuple[str, ...]]:
    return [one.hosts for one in actions if isinstance(one, decide.Work)]


def test_the_canary_is_first_and_alone() -> None:
    one = play("canary: {hosts: [rack2]}\n")
    assert work(decide.following(one.state, one.now)) == [("gpu0002", "gpu0005")]


def end(one: World, *ends: events.HostEnd) -> list[decide.Action]:
    """The one job that is decided now ends so."""
    for action in decide.following(one.state, one.now):
        one.do(action)
    job = next(iter(one.state.jobs.values()))
    one.add(events.Done(at=one.now, job=job.number, hosts=ends))
    one.add(events.JobOver(at=one.now, job=job.number))
    return decide.following(one.state, one.now)


@run_each(
    ("more", "why"),
    [
        ("", "waits for a reboot that is not permitted (reboot: if-needed permits it)"),
        ("reboot: if-needed\n", "still waits for a reboot, which is permitted"),
    ],
)
def test_a_canary_that_waits_for_a_reboot_stops_all(more: str, why: str) -> None:
    one = play(f"canary: {{count: 1}}\nbudget: {{whole: 100%}}\n{more}")
    assert end(one, events.HostEnd("gpu0000", "waits")) == [decide.Stop(f"the canary gpu0000 {why}")]


def test_a_green_canary_that_its_scheduler_does_not_take_back_stops_all() -> None:
    """The site's health check has drained it meanwhile: what it finds would be found on every host."""
    one = play("canary: {count: 1}\ndrain: {adapter: slurm, timeout: 1h}\n")
    for action in decide.following(one.state, one.now):
        one.do(action)
    one.add(events.Drained(at=one.now, hosts=("gpu0000",)))
    assert end(one, events.HostEnd("gpu0000", "green")) == [decide.Return("gpu0000", True)]
    one.add(events.Returned(at=one.now, hosts=("gpu0000",), message="not given back: NHC: check_nvsmi"))
    assert decide.following(one.state, one.now) == [decide.Stop("the canary gpu0000 is not green")]
    assert one.state.hosts["gpu0000"].held


def test_a_budget_is_of_the_batch_and_of_the_whole() -> None:
    one = play("batches: {size: 2}\nbudget: {batch: 1, whole: 1}\n")
    [over] = end(one, events.HostEnd("gpu0000", "failed"), events.HostEnd("gpu0001", "green"))
    assert over == decide.EndBatch(1)
    one.do(over)
    [stop] = end(one, events.HostEnd("gpu0002", "failed"), events.HostEnd("gpu0003", "green"))
    assert stop == decide.Stop("2 failed in all, budget.whole is 1: gpu0000, gpu0002")


def test_jobs_share_the_repairs_and_give_back_what_they_do_not_need() -> None:
    one = play("limits: {jobs: 2, job_size: 2}\nrepair: {budget: 3}\n")
    for action in decide.following(one.state, one.now):
        one.do(action)
    assert {job.number: job.repairs for job in one.state.jobs.values()} == {1: 2, 2: 1}
    one.add(events.Done(at=one.now, job=2, hosts=(events.HostEnd("gpu0002", "again", "not-started"),)))
    repaired = events.HostEnd("gpu0000", "green", repair="done")
    one.add(events.Done(at=one.now, job=1, hosts=(repaired, events.HostEnd("gpu0001", "green"))))
    assert (one.state.repaired, one.state.jobs[1].repairs, one.state.count_repairs_left()) == (["gpu0000"], 1, 0)
    one.add(events.JobOver(at=one.now, job=1))
    assert one.state.count_repairs_left() == 1
    assert folded(one.plan, one.log) == one.state
    one.add(events.JobOver(at=one.now, job=2))
    [began] = decide.record([decide.Work("verify", ("gpu0000",))], one.state, one.now)
    assert isinstance(began, events.Working)
    assert began.repairs == 0, "only what is changed is repaired"


def test_an_unfit_host_waits_for_a_repair_only_while_one_may_come_free() -> None:
    unfit = events.HostEnd("gpu0001", "again", "blocked", "no repair is left for it", repair="none left")
    one = play("limits: {jobs: 2, job_size: 1}\nrepair: {budget: 1}\nretry: {attempts: 9, after: 5m}\n", 2)
    for action in decide.following(one.state, one.now):
        one.do(action)
    one.add(events.Done(at=one.now, job=2, hosts=(unfit,)))
    one.add(events.JobOver(at=one.now, job=2))
    assert one.state.hosts["gpu0001"].stage == "ready", "the other job may not need its repair"
    one.add(events.Done(at=one.now, job=1, hosts=(events.HostEnd("gpu0000", "green", repair="done"),)))
    one.now += 300
    for action in decide.following(one.state, one.now):
        one.do(action)
    one.add(events.Done(at=one.now, job=3, hosts=(unfit,)))
    assert one.state.hosts["gpu0001"].verdict == "failed"


def test_a_host_that_is_told_of_twice_is_counted_once() -> None:
    one = play("retry: {attempts: 3, after: 0s}\nrepair: {budget: 2}\n", 1)
    for _ in range(2):
        end(one, events.HostEnd("gpu0000", "again", "unreachable", repair="done"))
    assert one.state.count_repairs_left() == 1


def test_a_soak_is_waited_for_and_then_verified() -> None:
    one = play("batches: {size: 100%, soak: 10m}\n", 2)
    [wait] = end(one, events.HostEnd("gpu0000", "green"), events.HostEnd("gpu0001", "green"))
    assert wait == decide.Wait("batch 1 soaks", one.now + 600)
    one.now += 599
    assert isinstance(decide.following(one.state, one.now)[0], decide.Wait)
    one.now += 1
    assert decide.following(one.state, one.now) == [decide.Work("verify", ("gpu0000", "gpu0001"))]
    [stop] = end(one, events.HostEnd("gpu0000", "failed"), events.HostEnd("gpu0001", "green"))
    assert stop == decide.Stop("batch 1: 1 failed, budget.batch is 0: gpu0000")


def test_a_locked_host_is_tried_again_later_and_not_for_ever() -> None:
    one = play("retry: {attempts: 2, after: 5m}\n", 1)
    [wait] = end(one, events.HostEnd("gpu0000", "again", "locked"))
    assert wait == decide.Wait("gpu0000: tried again", one.now + 300)
    one.now += 300
    [stop] = end(one, events.HostEnd("gpu0000", "again", "locked"))
    assert stop == decide.Stop("batch 1: 1 failed, budget.batch is 0: gpu0000")


def test_a_failed_host_stays_out_and_its_domain_waits_for_it() -> None:
    one = play("domain: rack\nlimits: {per_domain: 1, jobs: 1}\nbudget: {batch: 100%, whole: 100%}\n")
    green = [events.HostEnd(name, "green") for name in ("gpu0001", "gpu0002")]
    actions = end(one, events.HostEnd("gpu0000", "failed"), *green)
    assert work(actions) == [("gpu0004", "gpu0005")]
    [stop] = end(one, *(events.HostEnd(name, "green") for name in ("gpu0004", "gpu0005")))
    assert stop == decide.Stop("rack0: gpu0000 is not green and at most 1 may be out at once")


def test_nothing_starts_outside_a_window_and_the_opening_is_known() -> None:
    from datetime import UTC, datetime

    one = play('windows: {time_zone: Europe/Berlin, open: ["mon-thu 22:00-05:00"], margin: 1h}\n')
    one.now = datetime(2027, 3, 28, 12, tzinfo=UTC).timestamp()  # a Sunday, the day on which summer time begins
    [wait] = decide.following(one.state, one.now)
    assert wait == decide.Wait("outside the time windows", datetime(2027, 3, 29, 20, tzinfo=UTC).timestamp())
    one.now = datetime(2027, 3, 30, 2, 30, tzinfo=UTC).timestamp()  # 04:30 in Berlin: within the margin
    assert isinstance(decide.following(one.state, one.now)[0], decide.Wait)
    one.now = datetime(2027, 3, 30, 1, 30, tzinfo=UTC).timestamp()
    assert work(decide.following(one.state, one.now))


def test_who_pauses_ends_nothing_that_has_begun() -> None:
    one = play("batches: {size: 2}\ndrain: {adapter: slurm}\n")
    for action in decide.following(one.state, one.now):
        one.do(action)
    one.add(events.Drained(at=one.now, hosts=("gpu0000",)))
    for action in decide.following(one.state, one.now):
        one.do(action)
    one.add(events.Paused(at=one.now, by="bob", why="talk"))
    assert decide.following(one.state, one.now) == [decide.Wait("paused by bob: talk")]
    one.add(events.Done(at=one.now, job=1, hosts=(events.HostEnd("gpu0000", "green"),)))
    assert decide.following(one.state, one.now)[0] == decide.Return("gpu0000", True)


def test_a_host_that_is_not_free_in_time_is_given_back_untouched() -> None:
    one = play("drain: {adapter: slurm, timeout: 1h}\nbudget: {batch: 1, whole: 1}\n", 1)
    for action in decide.following(one.state, one.now):
        one.do(action)
    one.now += 3600
    assert decide.following(one.state, one.now) == [decide.GiveUp("gpu0000", "not free after 1h")]
    one.do(decide.GiveUp("gpu0000", "not free after 1h"))
    assert decide.following(one.state, one.now)[0] == decide.Return("gpu0000", True)
