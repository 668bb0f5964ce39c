"""The state of a roll-out after some events. Only `State.add` changes it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from gpuprov.fleet.policy import events as kinds
from gpuprov.fleet.policy.events import Act, Event, HostEnd, Verdict
from gpuprov.fleet.policy.planned import Batch, Plan

# ready: free, for its job to begin. worked: it has a result, and is not given back yet.
Stage = Literal["waiting", "preparing", "prepared", "draining", "ready", "working", "worked", "done"]
OUT = frozenset({"draining", "ready", "working", "worked"})


@dataclass(slots=True)
class Host:
    """`since`: when its stage began. `held`: taken out or left broken by this roll-out, and not good since. `touched`:
    a job that changes was begun. `ended`: when it was done. `proved`: verified again after the soak. `forgiven`: its
    failure no longer counts. `repaired`: this roll-out has repaired it, or tried to. `untold`: the reason why the host
    itself does not know that it is out, or in service again."""

    stage: Stage = "waiting"
    verdict: Verdict | Literal[""] = ""
    message: str = ""
    result: str = ""
    since: float = 0.0
    ended: float = 0.0
    tries: int = 0
    held: bool = False
    touched: bool = False
    proved: bool = False
    forgiven: bool = False
    repaired: bool = False
    untold: str = ""

    @property
    def bad(self) -> bool:
        """Return whether it differs from its spec, and nobody has forgiven that."""
        return self.stage in ("worked", "done") and self.verdict in ("failed", "waits") and not self.forgiven

    @property
    def out(self) -> bool:
        """Return whether it is, or may be, out of service."""
        return self.stage in OUT or ((self.held or self.bad) and not self.forgiven)


@dataclass(slots=True)
class Job:
    """A job that has begun and is not over."""

    number: int
    act: Act
    hosts: tuple[str, ...]
    # Hosts without a result.
    left: set[str]
    # How many of them it may repair.
    repairs: int = 0


@dataclass(slots=True)
class State:
    """The state of a whole roll-out."""

    plan: Plan
    hosts: dict[str, Host] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)
    approved: dict[str, set[str]] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)
    acts: dict[int, Act] = field(default_factory=dict)
    # The number of events.
    seen: int = 0
    last: float = 0.0
    begun: float = 0.0
    paused: str = ""
    stopped: str = ""
    aborted: str = ""
    finished: bool = False

    def __post_init__(self) -> None:
        self.hosts = {name: Host() for name in self.plan.domains}

    def of(self, batch: Batch) -> list[tuple[str, Host]]:
        """Return the hosts of a batch."""
        return [(name, self.hosts[name]) for name in batch.hosts]

    @property
    def batch(self) -> Batch | None:
        """Return the first batch that is not over."""
        return next((batch for batch in self.plan.batches if batch.number not in self.over), None)

    @property
    def busy(self) -> bool:
        """Return whether something is under way, which is completed whatever people say."""
        return bool(self.jobs) or any(host.stage in OUT - {"ready"} for host in self.hosts.values())

    @property
    def repaired(self) -> list[str]:
        """Return the hosts that this roll-out has repaired, or tried to."""
        return [name for name, host in self.hosts.items() if host.repaired]

    def count_repairs_left(self) -> int:
        """Return how many more hosts a new job may repair, beside those that jobs under way may."""
        under_way = sum(job.repairs for job in self.jobs.values())
        return max(0, self.plan.most_repairs - len(self.repaired) - under_way)

    def add(self, event: Event) -> None:
        """Apply one more event."""
        self.seen += 1
        self.last = event.at
        match event:
            case kinds.Started(at=at):
                self.begun = at
            case kinds.Approved(step=step, by=by):
                self.approved.setdefault(step, set()).add(by)
            case kinds.Paused(by=by, why=why):
                self.paused = f"by {by}" + (f": {why}" if why else "")
            case kinds.Resumed():
                self._resume(event)
            case kinds.Aborted(by=by, why=why):
                self.aborted, self.paused, self.stopped = f"by {by}" + (f": {why}" if why else ""), "", ""
            case kinds.Stopped(why=why):
                self.stopped = why
            case kinds.BatchOver(batch=batch):
                self.over.add(batch)
            case kinds.Finished():
                self.finished = True
            case _:
                self._of_hosts(event)

    def _of_hosts(self, event: Event) -> None:
        match event:
            case kinds.Draining(hosts=hosts):
                self._move(hosts, "draining", held=True)
            case kinds.Drained(hosts=hosts, untold=untold):
                self._move(hosts, "ready", untold=untold)
            case kinds.NotDrained(host=host, message=message):
                self._move((host,), "worked")
                self.hosts[host].verdict, self.hosts[host].message = "failed", message
            case kinds.Returned(hosts=hosts, message=message, untold=unknown):
                for entry in (self.hosts[name] for name in hosts):
                    entry.message = message or entry.message
                    # One that is not taken back is as its spec says, and out of its cluster all the same.
                    entry.verdict = "failed" if message and entry.verdict == "green" else entry.verdict
                    entry.held = entry.touched and entry.verdict != "green"
                self._move(hosts, "done", untold=unknown)
            case kinds.Working(job=number, act=act, hosts=hosts, repairs=repairs):
                self.acts[number] = act
                self.jobs[number] = Job(number, act, hosts, {*hosts}, repairs)
                if act != "verify":
                    self._move(hosts, "preparing" if act == "prepare" else "working")
                for name in hosts:
                    self.hosts[name].touched |= act == "apply"
            case kinds.Done(job=number, hosts=ends):
                for end in ends:
                    self._end(self.jobs[number], end)
            case kinds.JobOver(job=number, message=message):
                job = self.jobs[number]
                for name in [host for host in job.hosts if host in job.left]:
                    self._end(job, HostEnd(name, "again", "no result", message))
                del self.jobs[number]

    def _move(self, hosts: Iterable[str], stage: Stage, *, held: bool = False, untold: str | None = None) -> None:
        for name in hosts:
            host = self.hosts[name]
            host.untold = host.untold if untold is None else untold
            host.stage, host.since, host.held = stage, self.last, host.held or held
            host.ended = self.last if stage == "done" else 0.0

    def _end(self, job: Job, end: HostEnd) -> None:
        if end.host not in job.left:
            return
        job.left.discard(end.host)
        host = self.hosts[end.host]
        if end.repair == "done" and not host.repaired:
            host.repaired, job.repairs = True, max(0, job.repairs - 1)
        verdict, host.message, host.result, host.since = end.verdict, end.message, end.state, self.last
        if verdict == "again":
            host.tries += 1
            is_spent = end.repair == "none left" and len(self.repaired) >= self.plan.most_repairs
            if is_spent or host.tries >= self.plan.policy.retry.attempts:
                verdict = "failed"
        else:
            host.tries = 0
        if job.act == "verify":
            host.proved = verdict == "green"
            host.verdict = host.verdict if verdict == "again" else verdict
        elif verdict == "again":
            host.stage = "waiting" if job.act == "prepare" else "ready"
        elif job.act == "prepare":
            host.verdict = "" if verdict == "green" else "failed"
            host.stage, host.ended = "prepared" if verdict == "green" else "done", self.last
        else:
            host.verdict, host.ended = verdict, self.last
            host.stage = "worked" if self.plan.policy.drain else "done"
            host.held = host.held and not (verdict == "green" and host.stage == "done")

    def _resume(self, event: kinds.Resumed) -> None:
        self.paused = self.stopped = ""
        for host in self.hosts.values():
            if event.forgive:
                host.forgiven |= host.bad
            elif event.retry and host.bad and host.stage == "done":
                host.stage, host.verdict, host.tries, host.proved = "waiting", "", 0, False
                host.since, host.held = 0.0, host.held or host.touched
        if event.retry and not event.forgive:
            for batch in self.plan.batches:
                if any(host.stage != "done" for _, host in self.of(batch)):
                    self.over.discard(batch.number)


def folded(plan: Plan, events: Iterable[Event]) -> State:
    """Return the state after these events."""
    state = State(plan)
    for event in events:
        state.add(event)
    return state
