"""Counters that a host has recorded, as they are read."""

from __future__ import annotations

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.rdma.link_flaps import parse_counters
from tests.rows import run_each

CLOCK = "@clock 2026-11-30T09:00:00Z\n"
EARLIER = '{"at": "2026-11-30T08:00:00Z", "ports": {"mlx5_0/1": {"symbol_error": 3}}}\n'


def test_readings_are_in_the_order_of_their_times_and_none_is_of_the_future() -> None:
    oldest = EARLIER.replace("T08", "T07")
    read = parse_counters(Output(CLOCK + EARLIER + oldest + EARLIER.replace("T08", "T10")))
    assert [reading.at.hour for reading in read.readings] == [7, 8]
    assert read.readings[0].ports == {"mlx5_0/1": {"symbol_error": 3}}


@run_each("line", ["{", '{"at": 7}', '{"at": "now", "ports": {}}', '{"at": "", "ports": {"a": "b"}}', "[]"])
def test_a_line_that_cannot_be_read_is_left_out(line: str) -> None:
    assert len(parse_counters(Output(f"{CLOCK}{line}\n{EARLIER}")).readings) == 1


def test_without_a_clock_nothing_is_known() -> None:
    with pytest.raises(ValueError, match="clock"):
        parse_counters(Output(EARLIER))
