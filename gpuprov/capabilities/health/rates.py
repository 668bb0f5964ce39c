"""How fast the error counters of RDMA devices' ports grow, by the host's own readings."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import inf

from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.health.fragment import Ctx
from gpuprov.capabilities.health.links import CABLE, counting_ports
from gpuprov.catalog.health import get_limit
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.gpus.health_links import PORT_ERRORS, PortErrors
from gpuprov.facts.probes.kernel.kernel_log import seconds
from gpuprov.facts.probes.rdma import DEVICES
from gpuprov.facts.probes.rdma.link_flaps import COUNTER_READINGS, CounterReading, CounterReadings
from gpuprov.host_code.readings import COUNTED

# What is looked back at, and the least time that a rate is measured over.
DAY, SHORTEST = timedelta(hours=24), timedelta(minutes=30)
HOUR = timedelta(hours=1)
Point = tuple[datetime, int]


@check(
    "health.link_error_rates",
    COUNTER_READINGS,
    PORT_ERRORS,
    DEVICES,
    fields=("since", "link_error_rates"),
    evidence=COUNTER_READINGS.evidence,
)
def link_error_rates(ctx: Ctx) -> Outcome:
    """No error counter of an RDMA device's port grew faster than its limit at any time within the last 24 hours, this
    boot and since `since`, by the readings that the host takes of itself (`readings`)."""
    if ctx.fragment.link_error_rates == "any":
        return not_asked("link_error_rates: any")
    ports = [port for port in counting_ports(ctx) if port.link]
    if not ports:
        return not_asked("no RDMA device counts errors")
    known = ctx.facts.get(COUNTER_READINGS)
    begin = find_begin(known, ctx.fragment.since)
    recent = [reading for reading in known.readings if reading.at >= begin]
    if not recent or known.clock - recent[0].at < SHORTEST:
        return not_asked("the host has no readings of its counters yet; `readings: {}` takes them")
    expected = "errors of links within their limits"
    if bad := [words for port in ports for words in find_fast(port, recent, known.clock)]:
        return fail(expected, "; ".join(bad), f"{CABLE}; then health --since TIME")
    return ok(f"{counted(len(ports), 'port')}, over {(known.clock - recent[0].at) / HOUR:.1f} h", expected)


def find_begin(known: CounterReadings, since: str) -> datetime:
    """Return from when on counters are judged; a boot sets them to zero."""
    day, begin = known.clock - DAY, seconds(since, inf)
    if begin.startswith("-"):
        return max(day, known.clock - timedelta(seconds=int(begin[1:])))
    return max(day, datetime.fromtimestamp(int(begin[1:]), UTC)) if begin else day


def find_fast(port: PortErrors, recent: Sequence[CounterReading], clock: datetime) -> Iterator[str]:
    """Yield the counters of a port that grew too fast, in words: at their fastest."""
    key = f"{port.device}/{port.port}"
    for name in COUNTED:
        kept = [(reading.at, reading.ports.get(key, {}).get(name)) for reading in recent]
        points = [(at, value) for at, value in kept if value is not None]
        points.append((clock, port.errors.get(name, 0)))
        limit = get_limit(name)
        growth, span, end = find_fastest(points)
        if span and growth / (span / HOUR) > limit:
            most = f"at most {limit:g} an hour" if limit else "none is normal"
            yield f"{port.name}: {name} +{growth} in {span / HOUR:.1f} h until {end:%Y-%m-%d %H:%M} UTC ({most})"


def find_fastest(points: Sequence[Point]) -> tuple[int, timedelta, datetime]:
    """Find the span of at least SHORTEST in which a counter grew fastest: the growth, the span, its end. A boot or a
    reload of the driver sets it to zero: what was before is past. The span is 0 where the points are too close."""
    falls = [n for n, ((_, before), (_, after)) in enumerate(pairwise(points), 1) if after < before]
    points = points[falls[-1] :] if falls else points
    fastest, result = -1.0, (0, timedelta(), points[-1][0])
    for first, (begin, _) in enumerate(points):
        last = next((n for n in range(first + 1, len(points)) if points[n][0] - begin >= SHORTEST), None)
        if last is None:
            break
        span, growth = points[last][0] - begin, points[last][1] - points[first][1]
        if growth / (span / HOUR) > fastest:
            fastest, result = growth / (span / HOUR), (growth, span, points[last][0])
    return result


CHECKS = (link_error_rates,)
