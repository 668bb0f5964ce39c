"""The next actions: a pure function of the plan, the events and the time. No I/O, no clock, no randomness.

The engine that executes them (this machine, or a workflow engine) records an action as its event before carrying it
out, and asks again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gpuprov.fleet.policy import events as kinds
from gpuprov.fleet.policy.events import Act, Event
from gpuprov.fleet.policy.planned import Batch, Plan
from gpuprov.fleet.policy.policy import number_of, seconds
from gpuprov.fleet.policy.state import OUT, Host, State
from gpuprov.fleet.policy.windows import is_open, opens
from gpuprov.inventory.names import fold_names as names


class Drain(msgspec.Struct, frozen=True):
    hosts: tuple[str, ...]


class GiveUp(msgspec.Struct, frozen=True):
    """Give up on a host that was not free in time."""

    host: str
    message: str


class Work(msgspec.Struct, frozen=True):
    act: Act
    hosts: tuple[str, ...]


class Return(msgspec.Struct, frozen=True):
    """Ask the adapter until it has answered."""

    host: str
    # Give the host back.
    green: bool


class EndBatch(msgspec.Struct, frozen=True):
    batch: int


class Stop(msgspec.Struct, frozen=True):
    why: str


class Finish(msgspec.Struct, frozen=True):
    pass


class Wait(msgspec.Struct, frozen=True):
    """`until`: the time when an action may follow without any event; None: never."""

    why: str
    until: float | None = None


Action = Drain | GiveUp | Work | Return | EndBatch | Stop | Finish | Wait


def following(state: State, now: float) -> list[Action]:
    """Return the next actions from a state."""
    if state.finished:
        return []
    actions: list[Action] = [*_list_returns(state), *_list_late(state, now)]
    if state.aborted:
        busy = bool(actions or state.jobs or any(host.stage in OUT for host in state.hosts.values()))
        return [*actions, *([] if busy else [Finish()])]
    if state.paused or state.stopped:
        return [*actions, Wait(f"paused {state.paused}" if state.paused else f"stopped: {state.stopped}")]
    if why := broken(state):
        return [*actions, Stop(why)]
    batch = state.batch
    if batch is None:
        busy = bool(actions or state.jobs or any(host.stage in OUT for host in state.hosts.values()))
        return [*actions, *([] if busy else [Finish()])]
    return [*actions, *_choose_batch(state, batch, now)]


def event_of(action: Action, state: State, at: float) -> Event | None:
    """Return the event to record before the action is carried out; None if it is recorded afterwards, or changes
    nothing."""
    match action:
        case Drain(hosts=hosts):
            return kinds.Draining(at=at, hosts=hosts)
        case GiveUp(host=host, message=message):
            return kinds.NotDrained(at=at, host=host, message=message)
        case Work(act=act, hosts=hosts):
            return begun(state, act, hosts, at)
        case EndBatch(batch=batch):
            return kinds.BatchOver(at=at, batch=batch)
        case Stop(why=why):
            return kinds.Stopped(at=at, why=why)
        case Finish():
            return kinds.Finished(at=at)
    return None


def record(actions: Iterable[Action], state: State, at: float) -> list[Event]:
    """Add to the state the events that are recorded before the actions are carried out, and return them."""
    recorded = []
    for action in actions:
        if (event := event_of(action, state, at)) is not None:
            recorded.append(event)
            state.add(event)
    return recorded


def begun(state: State, act: Act, hosts: tuple[str, ...], at: float) -> Event:
    """Return the event that begins the next job."""
    repairs = min(state.count_repairs_left(), len(hosts)) if act == "apply" else 0
    return kinds.Working(at=at, job=len(state.acts) + 1, act=act, hosts=hosts, repairs=repairs)


def broken(state: State) -> str:
    """Return the reason why nothing more may start; "" if it may."""
    plan, budget = state.plan, state.plan.policy.budget
    failed_in_all = []
    for batch in plan.batches:
        bad = [name for name, host in state.of(batch) if host.bad]
        failed = [name for name in bad if state.hosts[name].verdict == "failed"]
        failed_in_all += failed
        if not batch.number and bad:
            return f"the canary {names(bad)} {'is not green' if failed else _explain_wait(plan)}"
        if batch.number and len(failed) > number_of(budget.batch, len(batch.hosts)):
            return f"{batch.name}: {len(failed)} failed, budget.batch is {budget.batch}: {names(failed)}"
    if len(failed_in_all) > number_of(budget.whole, plan.total):
        limit = f"{plan.name_of('budget.whole')} is {budget.whole}"
        return f"{len(failed_in_all)} failed in all, {limit}: {names(failed_in_all)}"
    return ""


def _explain_wait(plan: Plan) -> str:
    """Return the reason why a host with a pending reboot proves nothing."""
    if plan.policy.reboot == "if-needed":
        return "still waits for a reboot, which is permitted"
    return f"waits for a reboot that is not permitted ({plan.name_of(REBOOT)} permits it)"


def _list_returns(state: State) -> Iterator[Action]:
    for name, host in state.hosts.items():
        if host.stage == "worked":
            yield Return(name, host.verdict == "green" or not host.touched)
        elif state.aborted and host.stage in ("draining", "ready"):
            yield Return(name, not host.touched)


def _list_late(state: State, now: float) -> Iterator[Action]:
    drain = state.plan.policy.drain
    for name, host in state.hosts.items() if drain and not state.aborted else ():
        if host.stage == "draining" and drain and now - host.since >= seconds(drain.timeout):
            yield GiveUp(name, f"not free after {drain.timeout}")


def _choose_batch(state: State, batch: Batch, now: float) -> list[Action]:
    waits = [*_list_closed(state.plan, now)]
    unapproved = (
        [*_list_unapproved(state, batch)] if any(host.stage == "waiting" for _, host in state.of(batch)) else []
    )
    actions: list[Action] = []
    if not waits:
        actions, waits = _choose_starts(state, () if unapproved else batch.hosts, now)
    if all(host.stage == "done" for _, host in state.of(batch)):
        slots = _Slots(state)
        slots.taken += Counter(slots.site(action.hosts) for action in actions if isinstance(action, Work))
        actions += _finish_soak(state, batch, now, slots)
    waits += unapproved
    if (
        not actions
        and not state.jobs
        and not any(host.stage in ("draining", "worked") for host in state.hosts.values())
    ):
        timed = [wait for wait in waits if wait.until is not None or wait.why.startswith(APPROVAL)]
        if not timed:
            return [Stop(waits[0].why if waits else f"{batch.name} cannot go on")]
    return [*actions, *waits]


APPROVAL, REBOOT = "waits for the approval of ", "reboot: if-needed"


def _list_unapproved(state: State, batch: Batch) -> Iterator[Wait]:
    for step, approval in state.plan.approvals(batch):
        given = state.approved.get(step, set()) & {*approval.by}
        if len(given) < approval.count:
            left, missing = [user for user in approval.by if user not in given], approval.count - len(given)
            who = ", ".join(left) if len(left) == missing else f"{missing} of {', '.join(left)}"
            yield Wait(f'{APPROVAL}"{step}" by {who}')


def _list_closed(plan: Plan, now: float) -> Iterator[Wait]:
    windows = plan.policy.windows
    if windows and plan.zone and not is_open(plan.spans, plan.zone, now, seconds(windows.margin)):
        yield Wait("outside the time windows", opens(plan.spans, plan.zone, now))


def _choose_starts(state: State, batch: Sequence[str], now: float) -> tuple[list[Action], list[Wait]]:
    """Return the actions that may begin now, and the waits: first for hosts that are already out, from any batch, then
    for others of this batch."""
    policy, slots = state.plan.policy, _Slots(state)
    pause = seconds(policy.retry.after)
    candidates = [(name, host) for name, host in state.hosts.items() if host.held or host.stage in OUT]
    candidates += [
        (name, host) for name in batch for host in [state.hosts[name]] if not (host.held or host.stage in OUT)
    ]
    candidates = [(name, host) for name, host in candidates if host.stage in ("waiting", "prepared", "ready")]
    again = {name: host.since + pause for name, host in candidates if host.tries and host.since + pause > now}
    waits = [Wait(f"{names(again)}: tried again", min(again.values()))] if again else []
    due = [(name, host) for name, host in candidates if name not in again]
    ready = [name for name, host in due if host.stage == "ready"]
    fresh = [(name, host) for name, host in due if host.stage == ("prepared" if policy.prepare else "waiting")]
    chosen, held_back = _choose_hosts(state, fresh)
    actions: list[Action] = []
    if policy.drain:
        actions += [Drain(tuple(chosen))] if chosen else []
    else:
        ready += chosen
    unprepared = [name for name, host in due if host.stage == "waiting"] if policy.prepare else []
    acts: tuple[tuple[Act, list[str]], ...] = (("apply", ready), ("prepare", unprepared))
    for act, host_names in acts:
        actions += slots.jobs(act, host_names)
    return actions, [*waits, *([held_back] if held_back else [])]


class _Slots:
    """Jobs that may begin now. No job has hosts of two sites, and each site has its own `limits.jobs`."""

    def __init__(self, state: State) -> None:
        self._plan = state.plan
        self.taken = Counter(self.site(job.hosts) for job in state.jobs.values())

    def site(self, hosts: Sequence[str]) -> str:
        return self._plan.sites.get(hosts[0], "")

    def jobs(self, act: Act, host_names: Iterable[str]) -> Iterator[Work]:
        limits = self._plan.policy.limits
        for site, hosts in self._plan.by_site(host_names).items():
            for start in range(0, len(hosts), limits.job_size):
                if self.taken[site] < limits.jobs:
                    self.taken[site] += 1
                    yield Work(act, tuple(hosts[start : start + limits.job_size]))


def _choose_hosts(state: State, fresh: list[tuple[str, Host]]) -> tuple[list[str], Wait | None]:
    """Return the hosts that may be taken out of service now, and the reason why others may not."""
    limits, domains = state.plan.policy.limits, state.plan.domains
    room = limits.at_once - sum(host.stage in OUT for host in state.hosts.values())
    out = Counter(domains[name] for name, host in state.hosts.items() if host.out)
    chosen: list[str] = []
    full = ""
    for name, host in fresh:
        if len(chosen) >= room:
            break
        domain = domains[name]
        if limits.per_domain is not None and not host.out and out[domain] >= limits.per_domain:
            full = full or domain
            continue
        out[domain] += not host.out
        chosen.append(name)
    if not full:
        return chosen, None
    bad = [name for name, host in state.hosts.items() if host.bad and domains[name] == full]
    because = f"{names(bad)} {'are' if len(bad) > 1 else 'is'} not green and" if bad else "of it"
    return chosen, Wait(f"{full}: {because} at most {limits.per_domain} may be out at once")


def _finish_soak(state: State, batch: Batch, now: float, slots: _Slots) -> list[Action]:
    """Act after the last host of a batch: wait, verify again, end it."""
    hosts = state.of(batch)
    if not batch.soak:
        return [EndBatch(batch.number)]
    under_way = {name for job in state.jobs.values() if job.act == "verify" for name in job.left}
    unproved = [
        (name, host) for name, host in hosts if host.verdict == "green" and not host.proved and name not in under_way
    ]
    if not unproved:
        return [] if under_way else [EndBatch(batch.number)]
    begun = max(host.ended for _, host in hosts)
    if now < begun + batch.soak:
        return [Wait(f"{batch.name} soaks", begun + batch.soak)]
    pause = seconds(state.plan.policy.retry.after)
    due = [name for name, host in unproved if not host.tries or host.since + pause <= now]
    if not due:
        return [Wait(f"{names(n for n, _ in unproved)}: verified again", min(h.since + pause for _, h in unproved))]
    return [*slots.jobs("verify", due)]
