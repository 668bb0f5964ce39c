"""The status of a roll-out as data, as printed by `rollout status --json`."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Literal, get_args

import msgspec

from gpuprov.core.errors import Code, Outcome, choose_code, find_worst
from gpuprov.fleet.policy.events import ENDED
from gpuprov.fleet.policy.planned import Batch
from gpuprov.fleet.policy.state import Host, State
from gpuprov.spec.described import describe

FORMAT = 1
# left: open, and no process carries it out. ending: aborted, and something is still under way.
Standing = Literal["running", "left", "paused", "stopped", "ending", "finished", "aborted"]
Word = Literal[
    "green",
    "waits for a reboot",
    "failed",
    "working",
    "draining",
    "free",
    "prepared",
    "preparing",
    "waiting",
    "not done",
]
BatchState = Literal["over", "current", "waiting"]
WORDS: tuple[Word, ...] = get_args(Word)
# Outcomes of results after which a host is tried again later.
LEFT: dict[str, Outcome] = {"unreachable": "unreachable", "locked": "locked", "not-started": "locked"}
VERDICTS: dict[str, Word] = {"green": "green", "waits": "waits for a reboot", "failed": "failed"}


class HostStatus(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A host. `result`: the last result's state. `kept_out`: drained, and not given back. `repaired`: reset or rebooted
    to repair it. `untold`: why the host's own note about being out of service is out of date, which makes verify's
    result wrong on that point."""

    host: str
    batch: str
    domain: str = ""
    state: Word
    result: str = ""
    message: str = ""
    kept_out: bool = False
    repaired: bool = False
    untold: str = ""


class BatchStatus(msgspec.Struct, kw_only=True):
    """A batch: the number of its hosts in each state."""

    name: str
    state: BatchState
    hosts: dict[str, int]


class Status(msgspec.Struct, kw_only=True):
    """A roll-out. `repairs`: how many hosts it may repair. `exit_code`: the exit code of `rollout start`, as far as it
    is known now."""

    gpuprov_rollout_status: Annotated[int, describe("Version of this format")] = FORMAT
    id: str
    state: Standing
    why: str = ""
    fleet: Annotated[str, describe("Digest of the frozen fleet")] = ""
    by: str = ""
    begun: Annotated[str, describe("In UTC")] = ""
    waits: list[str] = []
    until: Annotated[str, describe("When it goes on by itself, in UTC; empty where nobody knows")] = ""
    batches: list[BatchStatus] = []
    hosts: list[HostStatus] = []
    repairs: Annotated[int, describe("Hosts that it may repair in all")] = 0
    results: Annotated[str, describe("The folder with the folders of results, for gpuprov fleet fold")] = ""
    exit_code: Code = 0


def moment(at: float) -> str:
    """Format a time in UTC, as in files."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def word(state: State, name: str) -> Word:
    """Return the word for a host's state."""
    host = state.hosts[name]
    if host.stage == "done":
        return VERDICTS.get(host.verdict, "not done")
    if host.stage == "waiting":
        return "not done" if state.finished else "waiting"
    words: dict[str, Word] = {"ready": "free", "worked": "working"}
    return words.get(host.stage) or host.stage  # type: ignore[return-value]


def standing(state: State, carried_out: bool) -> Standing:
    """Return the overall state of the roll-out."""
    if state.finished:
        return "aborted" if state.aborted else "finished"
    if state.aborted:
        return "ending"
    if state.stopped:
        return "stopped"
    if state.paused:
        return "paused"
    return "running" if carried_out else "left"


def choose_outcome(state: State) -> Outcome:
    """Return the outcome: failed where it was stopped or aborted, ok while it is under way, else that of the hosts. A
    host that waits for a reboot differs from its spec."""
    if state.stopped or state.aborted:
        return "failed"
    return find_worst(map(_judge, state.hosts.values()), "ok") if state.finished else "ok"


def _judge(host: Host) -> Outcome:
    if host.verdict == "failed" and host.result not in ENDED:
        return LEFT.get(host.result, "failed")
    return "ok" if host.verdict == "green" else "differs"


def status(
    rollout: str, state: State, *, carried_out: bool, domains: Mapping[str, str], details: Mapping[str, str]
) -> Status:
    """Return the status. `details`: what hosts are waiting for now."""
    return Status(
        id=rollout,
        state=standing(state, carried_out),
        why=state.stopped or state.aborted or state.paused,
        begun=moment(state.begun),
        batches=[_describe_batch(state, batch) for batch in state.plan.batches],
        hosts=[
            HostStatus(
                host=name,
                batch=batch.name,
                domain=domains[name],
                state=word(state, name),
                result=host.result,
                message=details.get(name, host.message),
                kept_out=host.held and state.plan.policy.drain is not None,
                repaired=host.repaired,
                untold=host.untold,
            )
            for batch in state.plan.batches
            for name, host in state.of(batch)
        ],
        repairs=state.plan.most_repairs,
        exit_code=choose_code([choose_outcome(state)]),
    )


def _describe_batch(state: State, batch: Batch) -> BatchStatus:
    counts = Counter(word(state, name) for name in batch.hosts)
    current = batch is state.batch and not state.finished
    over: BatchState = "over" if batch.number in state.over else "current" if current else "waiting"
    return BatchStatus(name=batch.name, state=over, hosts={label: counts[label] for label in WORDS if counts[label]})


def by_state(hosts: Iterable[HostStatus]) -> dict[str, list[HostStatus]]:
    """Group the hosts by state, in the order of WORDS."""
    groups: dict[str, list[HostStatus]] = {label: [] for label in WORDS}
    for host in hosts:
        groups[host.state].append(host)
    return {label: these for label, these in groups.items() if these}
