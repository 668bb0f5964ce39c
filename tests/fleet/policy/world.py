"""A made-up world for `decide`: hosts that fail, lock and hang by a seed, and people who pause, approve and abort."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from gpuprov.fleet.policy import decide, events
from gpuprov.fleet.policy.planned import Member, Plan, planned
from gpuprov.fleet.policy.policy import Policy, number_of, read
from gpuprov.fleet.policy.state import State
from gpuprov.fleet.policy.windows import is_open


def members(count: int, racks: int = 3) -> list[Member]:
    return [Member(f"gpu{n:04}", ("all", f"rack{n % racks}"), f"rack{n % racks}") for n in range(count)]


def policy(text: str = "") -> Policy:
    return read(f"gpuprov_rollout: 1\n{text}", "rollout.yaml")


@dataclass
class World:
    """Carries actions out, and watches that none of them should not have been."""

    plan: Plan
    chance: random.Random
    outcomes: dict[str, int] = field(default_factory=lambda: {"green": 1})
    meddles: bool = False
    now: float = 1_800_000_000.0
    log: list[events.Event] = field(default_factory=list)
    applied: Counter[str] = field(default_factory=Counter)
    green: set[str] = field(default_factory=set)
    waited: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = State(self.plan)
        self.add(events.Started(at=self.now, by="alice"))

    def add(self, event: events.Event) -> None:
        self.log.append(event)
        self.state.add(event)

    def run(self, most: int = 20_000) -> State:
        """Until nothing more happens by itself."""
        for _ in range(most):
            if self.state.finished:
                return self.state
            actions = decide.following(self.state, self.now)
            self.watch(actions)
            for action in actions:
                self.do(action)
            waits = [one for one in actions if isinstance(one, decide.Wait)]
            self.waited += [one.why for one in waits]
            moved = self.happen()
            if not moved and all(isinstance(one, decide.Wait) for one in actions):
                timed = [one.until for one in waits if one.until is not None]
                if not timed and not self.meddle(waits):
                    return self.state
                self.now = max([self.now, *([min(timed)] if timed else [])])
            self.now += self.chance.random() * 30
        raise AssertionError(f"no end after {most} steps: {actions}")

    def do(self, action: decide.Action) -> None:
        if isinstance(action, decide.Return):
            self.add(events.Returned(at=self.now, hosts=(action.host,)))
        elif (event := decide.event_of(action, self.state, self.now)) is not None:
            self.add(event)
            if isinstance(action, decide.Work) and action.act == "apply":
                self.applied.update(action.hosts)

    def happen(self) -> bool:
        """Something of what is under way comes to its end."""
        draining = [name for name, host in self.state.hosts.items() if host.stage == "draining"]
        moved = False
        for name in draining:
            if self.chance.random() < 0.5:
                self.add(events.Drained(at=self.now, hosts=(name,)))
                moved = True
        for job in list(self.state.jobs.values()):
            moved = True
            ends = [name for name in job.hosts if name in job.left and self.chance.random() < 0.6]
            told = tuple(
                events.HostEnd(name, self.outcome(name, job.act), repair="done" if number < job.repairs else "")
                for number, name in enumerate(ends)
            )
            self.add(events.Done(at=self.now, job=job.number, hosts=told))
            if not job.left or self.chance.random() < 0.05:
                self.add(events.JobOver(at=self.now, job=job.number))
        return moved or bool(draining)

    def outcome(self, name: str, act: str) -> events.Verdict:
        found = self.chance.choices([*self.outcomes], [*self.outcomes.values()])[0]
        if act == "apply" and found == "green":
            assert name not in self.green, f"{name} was changed twice"
            self.green.add(name)
        return found  # type: ignore[return-value]

    def meddle(self, waits: list[decide.Wait]) -> bool:
        """People do something where all waits for them; False: nobody does."""
        for one in waits:
            if one.why.startswith(decide.APPROVAL):
                step = one.why.split('"')[1]
                given = self.state.approved.get(step, set())
                names = [who for _, ask in self.plan.approvals(self.state.batch) for who in ask.by]  # type: ignore[arg-type]
                self.add(events.Approved(at=self.now, step=step, by=next(who for who in names if who not in given)))
                return True
        if self.meddles and (self.state.paused or self.state.stopped):
            retry = self.chance.random() < 0.5
            self.green -= {name for name, host in self.state.hosts.items() if host.bad}
            self.add(events.Resumed(at=self.now, by="alice", retry=retry, forgive=not retry))
            return True
        return False

    def watch(self, actions: list[decide.Action]) -> None:
        """The promises of a roll-out, at the moment before the actions are carried out."""
        state, plan, limits = self.state, self.plan, self.plan.policy.limits
        reserved = sum(job.repairs for job in state.jobs.values())
        assert len(state.repaired) + reserved <= plan.most_repairs, "more repairs than the policy permits"
        begun = [
            a.hosts for a in actions if isinstance(a, decide.Drain) or (isinstance(a, decide.Work) and a.act == "apply")
        ]
        fresh = [name for hosts in begun for name in hosts if state.hosts[name].stage in ("waiting", "prepared")]
        work = [name for a in actions if isinstance(a, decide.Work) for name in a.hosts]
        assert len(work) == len({*work}), "a host in two jobs"
        for name in work:
            assert all(name not in job.left for job in state.jobs.values()), f"{name} is in a job already"
        if state.paused or state.stopped or state.aborted:
            assert not begun, "new work while it stands"
            assert not work
        if not begun:
            return
        out = Counter(plan.domains[name] for name, host in state.hosts.items() if host.out or name in fresh)
        if limits.per_domain is not None and fresh:
            newly = [name for name in fresh if not state.hosts[name].out]
            assert all(out[plan.domains[name]] <= limits.per_domain for name in newly), out
        under_way = sum(host.stage in ("draining", "ready", "working", "worked") for host in state.hosts.values())
        assert not fresh or under_way + len(fresh) <= limits.at_once
        if plan.policy.windows and plan.zone:
            assert is_open(plan.spans, plan.zone, self.now), "outside the window"
        bad = [name for name, host in state.hosts.items() if host.bad]
        failed = [name for name in bad if state.hosts[name].verdict == "failed"]
        assert len(failed) <= number_of(plan.policy.budget.whole, len(plan.domains)), "past the budget"
        canary = [batch for batch in plan.batches if not batch.number]
        others = {name for batch in plan.batches if batch.number for name in batch.hosts}
        if canary and others & {name for hosts in begun for name in hosts}:
            assert all(state.hosts[name].verdict == "green" or state.hosts[name].forgiven for name in canary[0].hosts)
        for batch in plan.batches:
            if {*batch.hosts} & {*fresh}:
                mine = [name for name in failed if name in batch.hosts]
                assert len(mine) <= number_of(plan.policy.budget.batch, len(batch.hosts)), "past the batch's budget"
                for step, ask in plan.approvals(batch):
                    assert len(state.approved.get(step, set()) & {*ask.by}) >= ask.count, step


def world(seed: int, text: str, count: int, outcomes: dict[str, int], *, meddles: bool = True) -> World:
    return World(planned(policy(text), members(count)), random.Random(seed), outcomes, meddles)
