"""A roll-out as text: a line for each event, and its status. Pure functions."""

from collections import Counter
from collections.abc import Iterable, Iterator

from gpuprov.core.sanitize import counted, hanging
from gpuprov.fleet.policy import events as kinds
from gpuprov.fleet.policy.decide import APPROVAL
from gpuprov.fleet.policy.events import Event
from gpuprov.fleet.policy.state import State
from gpuprov.inventory.names import fold_names as names
from gpuprov.rollout.status import VERDICTS, HostStatus, Status, by_state

ACTS = {"prepare": "preparing", "apply": "applying to", "verify": "verifying again"}
# States of hosts that are counted, but not listed by name.
QUIET = ("green", "waiting", "not done")


def line(event: Event, state: State) -> str:
    """Return the line for an event; "" if it is of no interest to a reader."""
    match event:
        case kinds.Started(by=by):
            return f"begun by {by}: {count(len(state.hosts))}, {counted(len(state.plan.batches), 'batch')}"
        case kinds.Approved(step=step, by=by):
            return f'"{step}" approved by {by}'
        case kinds.Paused(by=by, why=why):
            return f"paused by {by}" + (f": {why}" if why else "")
        case kinds.Resumed(by=by, retry=retry, forgive=forgive):
            more = (
                "; hosts that failed are done again"
                if retry
                else "; hosts that failed count no more"
                if forgive
                else ""
            )
            return f"resumed by {by}{more}"
        case kinds.Aborted(by=by, why=why):
            return f"aborted by {by}" + (f": {why}" if why else "") + "; what is under way comes to its end"
        case kinds.Stopped(why=why):
            return f"stopped: {why}"
        case kinds.BatchOver(batch=number):
            batch = next(batch for batch in state.plan.batches if batch.number == number)
            counts = Counter(VERDICTS.get(host.verdict, "not done") for _, host in state.of(batch))
            return f"{batch.name} is over: " + ", ".join(f"{number} {word}" for word, number in counts.items())
        case kinds.Finished():
            return "aborted: nothing is under way any more" if state.aborted else "finished"
    return _format_hosts(event, state)


def _format_hosts(event: Event, state: State) -> str:
    match event:
        case kinds.Draining(hosts=hosts):
            return f"draining {names(hosts)}"
        case kinds.Drained(hosts=hosts, untold=untold):
            return f"free: {names(hosts)}" + (f"; {_describe_unrecorded(hosts, untold)}" if untold else "")
        case kinds.NotDrained(host=host, message=message):
            return f"{host}: {message}"
        case kinds.Returned(hosts=hosts, message=message, untold=untold):
            lines = [f"{names(hosts)}: {message}"] if message else []
            return "; ".join([*lines, *([_describe_unrecorded(hosts, untold)] if untold else [])])
        case kinds.Working(act=act, hosts=hosts):
            return f"{ACTS[act]} {names(hosts)}"
        case kinds.Done(hosts=ends):
            grouped: dict[tuple[str, str], list[str]] = {}
            repaired = [end.host for end in ends if end.repair == "done"]
            for end in ends:
                last = end.verdict == "again" and state.hosts[end.host].verdict == "failed"  # no try is left
                verdict = "failed" if last else end.verdict
                grouped.setdefault((VERDICTS.get(verdict, "tried again"), end.message), []).append(end.host)
            lines = [f"repaired: {names(repaired)}"] if repaired else []
            lines += [f"{names(hosts)}: {word}" + (f": {why}" if why else "") for (word, why), hosts in grouped.items()]
            return "\n".join(lines)
        case kinds.JobOver(message=message):
            return f"a process ended without all results: {message}" if message else ""
    return ""


def _describe_unrecorded(hosts: Iterable[str], why: str) -> str:
    """Describe hosts that could not note that they are out of service, or back in service."""
    return f"what verify says of {names(hosts)} does not know of it: no note could be left there ({why})"


def awaited(wait: str) -> str:
    """Return the step that waits for approval; "" if it waits for something else."""
    begins, behind = f'{APPROVAL}"', '" by '  # what a policy calls a step may have either in it
    return wait.removeprefix(begins).rpartition(behind)[0] if wait.startswith(begins) else ""


def count(number: int, thing: str = "host") -> str:
    """`1 host`, `1,000 hosts`."""
    return f"{number:,} {thing}{'s' if number != 1 else ''}"


def as_text(status: Status, width: int = 80) -> str:
    """Format the status of a roll-out in lines of this width."""
    return "\n".join(part for line in _list_lines(status) for part in hanging(line, width))


def _list_lines(status: Status) -> Iterator[str]:
    over = sum(batch.state == "over" for batch in status.batches)
    why = f" {status.why}" if status.state == "paused" else f": {status.why}" if status.why else ""
    yield f"{status.id}: {status.state}{why}"
    by = f" by {status.by}" if status.by else ""
    yield (
        f"  {count(len(status.hosts))}, {over} of {counted(len(status.batches), 'batch')} over; begun "
        f"{status.begun}{by}"
    )
    yield from _format_batches(status)
    for word, hosts in by_state(status.hosts).items():
        if word not in QUIET:
            yield from _group_named(word, hosts)
    if repaired := [host.host for host in status.hosts if host.repaired]:
        yield f"repaired: {names(repaired)} ({len(repaired)} of {status.repairs})"
    unknown: dict[str, list[str]] = {}
    for host in status.hosts:
        if host.untold:
            unknown.setdefault(host.untold, []).append(host.host)
    yield from (_describe_unrecorded(hosts, why) for why, hosts in unknown.items())
    for wait in status.waits:
        yield f"now: {wait}" + (f", until {status.until}" if status.until else "")
    if advice := _format_advice(status):
        yield advice


def _format_batches(status: Status) -> Iterator[str]:
    alike: list[tuple[str, list[str]]] = []
    for batch in status.batches:
        summary = f"{batch.state:<8}" + ", ".join(f"{number} {word}" for word, number in batch.hosts.items())
        if alike and alike[-1][0] == summary and alike[-1][1][0] != "canary":
            alike[-1][1].append(batch.name)
        else:
            alike.append((summary, [batch.name]))
    named = [
        (f"{those[0]} to {those[-1].rpartition(' ')[2]}" if those[1:] else those[0], text) for text, those in alike
    ]
    room = max((len(name) for name, _ in named), default=0)
    yield from (f"  {name:<{room}}  {text}" for name, text in named)


def _group_named(word: str, hosts: Iterable[HostStatus]) -> Iterator[str]:
    """Yield lines about hosts, those with the same text grouped."""
    grouped: dict[tuple[str, bool], list[str]] = {}
    for host in hosts:
        grouped.setdefault((host.message, host.kept_out and word in ("failed", "waits for a reboot")), []).append(
            host.host
        )
    for (message, kept_out), those in grouped.items():
        many = f" ({count(len(those))})" if len(those) > 1 else ""
        yield (
            f"{word}: {names(those)}{many}"
            + (f": {message}" if message else "")
            + ("; kept out of service" if kept_out else "")
        )


def _format_advice(status: Status) -> str:
    if status.state == "left":
        return f"fix: no process carries it out: gpuprov rollout resume {status.id}"
    if step := next(filter(None, map(awaited, status.waits)), ""):
        return f'fix: gpuprov rollout approve {status.id} "{step}"'
    if status.state == "paused":
        return f"fix: gpuprov rollout resume {status.id} continues"
    if status.state == "stopped":
        return f"fix: gpuprov rollout resume {status.id} --retry does again what failed, --forgive leaves it; or abort"
    return ""
