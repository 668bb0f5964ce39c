"""Tests between two hosts, in rounds in which no host is in two: start servers, run clients, stop servers. After an
exception the lock ends what still runs."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gpuprov.accept import scripts
from gpuprov.accept.commands import Unit, make_unit, read_measurement
from gpuprov.accept.lock import LOST, Lock
from gpuprov.accept.model import GROUP, Host, Pairing, Ran, Say
from gpuprov.accept.rails import list_rails, pair_rails
from gpuprov.facts.probes.acceptance import Measurement
from gpuprov.facts.probes.acceptance.outputs import Unreadable, complaint, error_in

Pair = tuple[str, str]


def plan_rounds(hosts: Sequence[str], pairing: Pairing = "auto") -> list[list[Pair]]:
    """Plan rounds of pairs; within a round every host is in one pair at most. Fewer than two hosts make no round.

    all: every pair once, by the circle method, n - 1 rounds (n if n is odd). ring: each host with the next, in two
    rounds, or three if n is odd. auto: all up to GROUP hosts.
    """
    names = list(hosts)
    if len(names) < 2:
        return []
    if pairing == "ring" or (pairing == "auto" and len(names) > GROUP):
        return _pair_ring(names)
    return _pair_all(names)


def split_rounds(planned: Sequence[Sequence[Pair]], at_a_time: int) -> list[list[Pair]]:
    """Split the rounds so that at most `at_a_time` servers, or clients, are started at once: a server ends if it waits
    too long."""
    return [list(pairs[start : start + at_a_time]) for pairs in planned for start in range(0, len(pairs), at_a_time)]


def _pair_all(names: list[str]) -> list[list[Pair]]:
    """Pair all hosts."""
    # https://en.wikipedia.org/wiki/Round-robin_tournament#Circle_method
    circle: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    half = len(circle) // 2
    result = []
    for _ in range(len(circle) - 1):
        matched = zip(circle[:half], reversed(circle[half:]), strict=True)
        result.append([(first, other) for first, other in matched if first is not None and other is not None])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return result


def _pair_ring(names: list[str]) -> list[list[Pair]]:
    if len(names) == 2:
        return [[(names[0], names[1])]]
    edges = [(name, names[(number + 1) % len(names)]) for number, name in enumerate(names)]
    last = [edges.pop()] if len(names) % 2 else []
    return [part for part in (edges[0::2], edges[1::2], last) if part]


def list_units(host: Host, other: Host) -> list[Unit]:
    """List every test of a pair that both specs include, on every rail; bandwidth in both directions, the rest in
    one."""
    both = pair_rails(list_rails(host), list_rails(other))
    units = []
    for test in (test for test in host.block.rdma.tests if test in other.block.rdma.tests):
        for client_rail, server_rail in both:
            units.append(make_unit(test, host, other, client_rail, server_rail))
            if test.endswith("_bw"):
                units.append(make_unit(test, other, host, server_rail, client_rail))
    return units


def run_rounds(
    hosts: Mapping[str, Host], planned: Sequence[Sequence[Pair]], lock: Lock, timeout: float, say: Say
) -> Iterable[tuple[Unit, Measurement]]:
    """Run all rounds and yield each unit's measurement as soon as it is available; a host that is lost is left out from
    then on."""
    for number, pairs in enumerate(planned, start=1):
        queues = [list_units(hosts[host], hosts[other]) for host, other in pairs]
        for turn in range(max((len(queue) for queue in queues), default=0)):
            batch = [queue[turn] for queue in queues if turn < len(queue)]
            say(
                f"round {number} of {len(planned)}: "
                + ", ".join(_label(unit) for unit in batch[:4])
                + " ..." * (len(batch) > 4)
            )
            for unit, measurement in _run_batch(batch, hosts, lock, timeout):
                yield unit, msgspec.structs.replace(measurement, at=time.time())


def _label(unit: Unit) -> str:
    return f"{unit.test} {unit.client} to {unit.server}"


def _run_batch(
    batch: Sequence[Unit], hosts: Mapping[str, Host], lock: Lock, timeout: float
) -> list[tuple[Unit, Measurement]]:
    measured: list[tuple[Unit, Measurement]] = []
    ready: list[Unit] = []
    for unit in batch:
        gone = next((hosts[name].lost for name in (unit.client, unit.server) if hosts[name].lost), "")
        if unit.skipped or unit.problem or gone:
            measured.append(
                (
                    unit,
                    _make_empty_measurement(unit, problem=gone or unit.problem, skipped="" if gone else unit.skipped),
                )
            )
        else:
            ready.append(unit)
    limit = max((unit.seconds for unit in ready), default=0.0) + timeout
    ports: dict[str, int] = {}
    up: list[Unit] = []
    started = _run_phase(lock, hosts, {unit.server: _make_server_step(unit, limit) for unit in ready})
    for unit in ready:
        ran = started[unit.server]
        match = re.search(r"^port (\d+)$", ran.text, re.MULTILINE)
        if match and not ran.status and not ran.lost:
            ports[unit.server] = int(match[1])
            up.append(unit)
        else:
            measured.append(
                (
                    unit,
                    _make_empty_measurement(
                        unit, problem=f"its server on {unit.server} did not come up: {_explain_failure(ran)}"
                    ),
                )
            )
    answered = _run_phase(lock, hosts, {unit.client: _make_client_step(unit, ports[unit.server], limit) for unit in up})
    alive = [unit.server for unit in ready if not hosts[unit.server].lost]
    stopped = _run_phase(lock, hosts, dict.fromkeys(alive, (scripts.STOP, 30.0)))
    return measured + [(unit, _measure(unit, answered[unit.client], stopped.get(unit.server))) for unit in up]


def _make_server_step(unit: Unit, limit: float) -> tuple[str, float]:
    # It outlives its client, and is ended then: by the step that ends it, or by itself.
    return scripts.serve(unit.serve, listens=unit.listens, limit=limit + scripts.READY + 30), scripts.READY + 10.0


def _make_client_step(unit: Unit, port: int, limit: float) -> tuple[str, float]:
    return scripts.ask(unit.ask, port=port, limit=limit), limit + 15


def _run_phase(lock: Lock, hosts: Mapping[str, Host], steps: Mapping[str, tuple[str, float]]) -> dict[str, Ran]:
    """Run a phase, and note the hosts that were lost in it."""
    if not steps:
        return {}
    ran = lock.phase(steps)
    for name, result in ran.items():
        if result.lost:
            hosts[name].lost = hosts[name].lost or result.lost.message
        elif result.status == LOST:
            hosts[name].lost = (
                hosts[name].lost or "the lock of this acceptance is gone on the host: somebody took it over"
            )
    return ran


def _measure(unit: Unit, ran: Ran, server: Ran | None) -> Measurement:
    if ran.lost or ran.status == LOST:
        return _make_empty_measurement(unit, problem=_explain_failure(ran))
    try:
        measurement = read_measurement(unit, ran.text)
    except Unreadable as error:
        why = "it did not end in time" if ran.status in (scripts.TIMED_OUT, scripts.KILLED) else str(error)
        beside = error_in(server.text) if server and not server.lost else ""
        server_error = f"; its server: {beside}" if beside not in ("", why) else ""
        return _make_empty_measurement(unit, problem=why + server_error)
    if ran.status:
        return _make_empty_measurement(unit, problem=f"exit status {ran.status}: {complaint(ran.text)}")
    return measurement


def _make_empty_measurement(unit: Unit, *, problem: str = "", skipped: str = "") -> Measurement:
    return Measurement(
        test=unit.test,
        peer=unit.server,
        device=unit.client_rail.device,
        peer_device=unit.server_rail.device,
        problem=problem,
        skipped=skipped,
    )


def _explain_failure(ran: Ran) -> str:
    if ran.lost:
        return ran.lost.message
    if ran.status == LOST:
        return "the lock of this acceptance is gone on the host"
    return complaint(ran.text)
