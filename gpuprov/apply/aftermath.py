"""Cleanup of hosts whose run did not end by itself: return the lock, remove temporary folders, and name what hangs."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from gpuprov.core import assets, safe_parse
from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.facts.collect.children import Job, run_all
from gpuprov.facts.collect.script import compose_one, split
from gpuprov.facts.collect.transport import Answer, job
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host import house
from gpuprov.host_code import process
from gpuprov.host_code.fence import Owner
from gpuprov.inventory.names import fold_names as names
from gpuprov.plan.events import Ledger
from gpuprov.plan.host_lock import command
from gpuprov.plan.read import Reading
from gpuprov.spec.model import RawHost

# Seconds that running processes on a host have to end before they are named.
WAIT = 10
# Seconds that the host then waits for them before it releases the lock anyway.
MOST = 600
# Seconds for one host, all hosts in parallel: an unreachable host costs no more.
LIMIT = 30.0
# Hosts at a time, by default.
WORKERS = 64


class Left(msgspec.Struct, frozen=True):
    """The state in which a host was left."""

    # Processes that the run started there and that have not ended.
    running: tuple[str, ...] = ()
    # The host keeps the lock because of them.
    held: bool = False
    # Why the lock may still be there.
    problem: str = ""

    def __str__(self) -> str:
        if self.running:
            until = f"; the lock goes when it ends, in {MOST // 60} minutes at the latest" if self.held else ""
            return f"still running there: {', '.join(self.running)}{until}"
        return (
            f"its lock may still be there ({self.problem}): the next apply from this machine takes it over"
            if self.problem
            else ""
        )


def leave(
    hosts: Sequence[RawHost],
    owner: Owner,
    *,
    wait: float = WAIT,
    limit: float = LIMIT,
    at_a_time: int = 0,
) -> dict[str, Left]:
    """Return the locks that `owner` (a run and its process) holds on these hosts, as far as they are reached in `limit`
    seconds."""
    by_host = {raw.name: Left(problem="not tried") for raw in hosts}
    clear = composed((assets.root() / "roles" / "host" / "files" / "clear.sh").read_text(encoding="utf-8"), limit)

    def jobs() -> Iterator[Job]:
        for raw in hosts:
            script = composed(command("leave", owner, raw.name, wait=wait, most=MOST), limit)
            try:
                yield job(raw, script, limit, _make_note_taker(by_host, raw.name))
                # Ansible's temporary folder is the login user's, and nobody else writes in it.
                yield job(_switch_to_login_user(raw), clear, limit, lambda _answer: None)
            except GpuprovError as error:
                by_host[raw.name] = Left(problem=error.message)

    run_all(jobs(), at_a_time or WORKERS)
    return by_host


def composed(text: str, limit: float) -> str:
    """Return the script that runs one piece of shell on a host."""
    return compose_one("leave", text, limit)


def _switch_to_login_user(raw: RawHost) -> RawHost:
    return msgspec.structs.replace(raw, connection=raw.connection | {"ansible_become": False})


def _make_note_taker(by_host: dict[str, Left], host: str) -> Callable[[Answer], None]:
    def done(answer: Answer) -> None:
        if isinstance(answer, UnreachableError):
            by_host[host] = Left(problem=getattr(answer, "reason", answer.message))
            return
        by_host[host] = _describe_left((split(answer) or {}).get("leave", Output("")))

    return done


def _describe_left(output: Output) -> Left:
    try:
        answer = safe_parse.parse_json(output.text)
    except ValueError:
        answer = None
    if not isinstance(answer, Mapping) or not isinstance(answer.get("running"), list):
        complaint = " ".join((output.error or output.text).split())[-200:]
        return Left(problem=complaint or f"exit status {output.status}")
    return Left(held=answer.get("held") is True, running=tuple(str(name)[:200] for name in answer["running"][:5]))


# Number of tasks that are named when a user interrupts.
NAMED = 5


def describe_interruption(ledger: Ledger) -> str:
    """Describe what is still running on the hosts, and how it will end."""
    running = sorted(ledger.running().items(), key=lambda pair: -len(pair[1]))
    listed = "".join(f"\n  {names(hosts)}: {task}" for task, hosts in running[:NAMED])
    listed += f"\n  and {len(running) - NAMED} more tasks" if len(running) > NAMED else ""
    ends = f"What has begun on a host ends by itself, and its lock goes then, in {MOST // 60} minutes at the latest"
    return (
        f"interrupted: Ansible is being ended{f'; running now:{listed}' if listed else ''}\n{ends}. Ctrl-C again "
        "does not wait"
    )


def give_back(hosts: Sequence[RawHost], readings: Mapping[str, Reading], own_process: Owner, at_a_time: int) -> None:
    """Return the locks as their runs would have done. An unreachable host keeps its lock until the lease ends."""
    of_owner: dict[str, tuple[Owner, list[RawHost]]] = {}
    for raw in hosts:
        owner = _find_dead_owner(readings[raw.name], own_process)
        if owner:
            of_owner.setdefault(str(owner), (owner, []))[1].append(raw)
    for owner, theirs in of_owner.values():
        leave(theirs, owner, at_a_time=at_a_time)


def _find_dead_owner(reading: Reading, own_process: Owner) -> Owner:
    """Return the holder of the lock if it was a process of this machine and has ended; otherwise nothing."""
    lock = reading.facts.known(house.LOCK)
    if lock is None or lock.damaged or not lock.run:
        return {}
    owner = msgspec.convert(msgspec.structs.asdict(lock), Owner)
    return owner if process.is_dead(owner, own_process) else {}
