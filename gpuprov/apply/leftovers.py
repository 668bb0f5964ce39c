"""Locks that a killed run of this machine has left on hosts with nothing to do, where no other run would take them
over."""

from collections.abc import Mapping, Sequence

import msgspec

from gpuprov.apply.aftermath import leave
from gpuprov.facts.probes.host import house
from gpuprov.host_code import process
from gpuprov.host_code.fence import Owner
from gpuprov.plan.read import Reading
from gpuprov.spec.model import RawHost


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
