"""Error counters of RDMA devices' ports over the last day, as the host has recorded them (`readings`)."""

import re
from datetime import datetime

import msgspec

from gpuprov.core.safe_parse import Unreadable, parse_typed_json
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host.readings import parse_time
from gpuprov.host_code.readings import COUNTERS, FOLDER

Counts = dict[str, int]


class Line(msgspec.Struct, frozen=True):
    """The counters at a time, as stored on the host: by DEVICE/PORT and name."""

    at: str
    ports: dict[str, Counts] = {}


class CounterReading(msgspec.Struct, frozen=True):
    """The counters of all ports at a time."""

    at: datetime
    ports: dict[str, Counts]


class CounterReadings(msgspec.Struct, frozen=True, kw_only=True):
    """`clock`: the host's time. `readings`: in the order of their times; without those of the future."""

    clock: datetime
    readings: tuple[CounterReading, ...] = ()


def parse(output: Output) -> CounterReadings:
    """Parse the host's time, and lines of JSON; lines that cannot be read are left out."""
    clock = re.search(r"^@clock (\S+)$", output.text, re.MULTILINE)
    if clock is None:
        raise ValueError("the host's clock is not told")
    now = parse_time(clock[1])
    readings = []
    for line in output.text.splitlines():
        try:
            entry = parse_typed_json(line, Line) if line.startswith("{") else None
            if entry and (at := parse_time(entry.at)) < now:
                readings.append(CounterReading(at, entry.ports))
        except (Unreadable, ValueError):
            continue
    return CounterReadings(clock=now, readings=tuple(sorted(readings, key=lambda reading: reading.at)))


COUNTER_READINGS = Probe(
    "counter_readings",
    f"""date -u '+@clock %Y-%m-%dT%H:%M:%SZ'
tail -n 200 {FOLDER}/{COUNTERS} 2>/dev/null | tr -d '\\000' | grep -a '^{{'; true""",
    parse,
    f"less {FOLDER}/{COUNTERS}",
    speaks=True,
    blank="@clock ",
    own=True,
)
