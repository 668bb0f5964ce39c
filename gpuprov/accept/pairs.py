"""Tests between two hosts, round by round: servers up, clients through, servers down. What an exception leaves, the lock ends."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gpuprov.accept import scripts
from gpuprov.accept.commands import Unit, read, unit
from gpuprov.accept.lock import LOST, Lock
from gpuprov.accept.model import Host, Ran, Say
from gpuprov.accept.rails import paired, rails
from gpuprov.accept.schedule import Pair
from gpuprov.probe.acceptance import Measurement
from gpuprov.probe.acceptance.outputs import Unreadable, complaint, error_in


def units_of(host: Host, other: Host) -> list[Unit]:
    """Every test of a pair that both ask for, on every rail; bandwidth in both directions, the rest in one."""
    both = paired(rails(host), rails(other))
    found = []
    for test in (test for test in host.block.rdma.tests if test in other.block.rdma.tests):
        for mine, theirs in both:
            found.append(unit(test, host, other, mine, theirs))
            if test.endswith("_bw"):
                found.append(unit(test, other, host, theirs, mine))
    return found


def run_rounds(
    hosts: Mapping[str, Host], planned: Sequence[Sequence[Pair]], lock: Lock, timeout: float, say: Say
) -> Iterable[tuple[Unit, Measurement]]:
    """Run all rounds and yield each unit's measurement as it is there; a host that is lost is left out from then on."""
    for number, pairs in enumerate(planned, start=1):
        queues = [units_of(hosts[one], hosts[other]) for one, other in pairs]
        for turn in range(max((len(queue) for queue in queues), default=0)):
            batch = [queue[turn] for queue in queues if turn < len(queue)]
            say(
                f"round {number} of {len(planned)}: "
                + ", ".join(_shown(one) for one in batch[:4])
                + " ..." * (len(batch) > 4)
            )
            for one, found in _turn(batch, hosts, lock, timeout):
                yield one, msgspec.structs.replace(found, at=time.time())


def _shown(unit: Unit) -> str:
    return f"{unit.test} {unit.client} to {unit.server}"


def _turn(
    batch: Sequence[Unit], hosts: Mapping[str, Host], lock: Lock, timeout: float
) -> list[tuple[Unit, Measurement]]:
    found: list[tuple[Unit, Measurement]] = []
    ready: list[Unit] = []
    for one in batch:
        gone = next((hosts[name].lost for name in (one.client, one.server) if hosts[name].lost), "")
        if one.skipped or one.problem or gone:
            found.append((one, _nothing(one, problem=gone or one.problem, skipped="" if gone else one.skipped)))
        else:
            ready.append(one)
    limit = max((one.seconds for one in ready), default=0.0) + timeout
    ports: dict[str, int] = {}
    up: list[Unit] = []
    started = _phase(lock, hosts, {one.server: _serving(one, limit) for one in ready})
    for one in ready:
        ran = started[one.server]
        match = re.search(r"^port (\d+)$", ran.text, re.MULTILINE)
        if match and not ran.status and not ran.lost:
            ports[one.server] = int(match[1])
            up.append(one)
        else:
            found.append((one, _nothing(one, problem=f"its server on {one.server} did not come up: {_why(ran)}")))
    asked = _phase(lock, hosts, {one.client: _asking(one, ports[one.server], limit) for one in up})
    alive = [one.server for one in ready if not hosts[one.server].lost]
    stopped = _phase(lock, hosts, dict.fromkeys(alive, (scripts.STOP, 30.0)))
    return found + [(one, _measured(one, asked[one.client], stopped.get(one.server))) for one in up]


def _serving(unit: Unit, limit: float) -> tuple[str, float]:
    # It outlives its client, and is ended then: by the step that ends it, or by itself.
    return scripts.serve(unit.serve, listens=unit.listens, limit=limit + scripts.READY + 30), scripts.READY + 10.0


def _asking(unit: Unit, port: int, limit: float) -> tuple[str, float]:
    return scripts.ask(unit.ask, port=port, limit=limit), limit + 15


def _phase(lock: Lock, hosts: Mapping[str, Host], steps: Mapping[str, tuple[str, float]]) -> dict[str, Ran]:
    """Run a phase, and note the hosts that were lost in it."""
    if not steps:
        return {}
    ran = lock.phase(steps)
    for name, one in ran.items():
        if one.lost:
            hosts[name].lost = hosts[name].lost or one.lost.message
        elif one.status == LOST:
            hosts[name].lost = hosts[name].lost or "the lock of this acceptance is gone there: somebody took it over"
    return ran


def _measured(unit: Unit, ran: Ran, server: Ran | None) -> Measurement:
    if ran.lost or ran.status == LOST:
        return _nothing(unit, problem=_why(ran))
    try:
        found = read(unit, ran.text)
    except Unreadable as error:
        why = "it did not end in time" if ran.status in (scripts.TIMED_OUT, scripts.KILLED) else str(error)
        beside = error_in(server.text) if server and not server.lost else ""
        told = f"; its server: {beside}" if beside not in ("", why) else ""
        return _nothing(unit, problem=why + told)
    if ran.status:
        return _nothing(unit, problem=f"exit status {ran.status}: {complaint(ran.text)}")
    return found


def _nothing(unit: Unit, *, problem: str = "", skipped: str = "") -> Measurement:
    return Measurement(
        test=unit.test,
        peer=unit.server,
        device=unit.mine.device,
        peer_device=unit.theirs.device,
        problem=problem,
        skipped=skipped,
    )


def _why(ran: Ran) -> str:
    if ran.lost:
        return ran.lost.message
    if ran.status == LOST:
        return "the lock of this acceptance is gone there"
    return complaint(ran.text)
