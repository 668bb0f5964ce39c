"""What a host noted of itself, read back."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host.readings import READINGS, parse
from gpuprov.host_code.readings import CHANGES, FOLDER
from tests.capabilities.readings_host import told
from tests.rows import run_each

LINE = {
    "from": "2026-11-24T09:00:00Z",
    "to": "2026-11-24T10:00:00Z",
    "changed": {
        "file:/etc/modprobe.d/x.conf": ["aa", "bb", 1_795_512_000, 1000],
        "file:/etc/modprobe.d/y.conf": ["aa", ""],
        "kernel": ["6.1.0-37-amd64", "6.1.0-38-amd64"],
        "package:a:b": ["1", "2"],
    },
}


def test_changes() -> None:
    found = parse(Output(told("2026-11-24T11:05:00Z", 900000, "enabled", "active", LINE)))
    assert [(one.kind, one.name, one.before, one.after) for one in found.noted] == [
        ("file", "/etc/modprobe.d/x.conf", "aa", "bb"),
        ("file", "/etc/modprobe.d/y.conf", "aa", ""),
        ("kernel", "kernel", "6.1.0-37-amd64", "6.1.0-38-amd64"),
        ("package", "a:b", "1", "2"),
    ]
    assert (found.noted[0].at, found.noted[0].owner) == (datetime.fromtimestamp(1_795_512_000, UTC), 1000)
    assert (found.noted[1].at, found.noted[1].end) == (None, datetime(2026, 11, 24, 10, tzinfo=UTC))


@run_each(
    "line", ["{", '{"to": 5}', '{"to": "x", "from": "y"}', '{"from": "2026-11-24T09:00:00Z", "to": "²", "changed": {}}']
)
def test_a_line_that_cannot_be_read_is_told(line: str) -> None:
    assert "cannot be read" in parse(Output(told("2026-11-24T11:05:00Z", 5, "enabled", "active", line, LINE))).lost


@run_each("stamp", [10**300, -1, "x", True])
def test_a_time_that_is_none(stamp: object) -> None:
    line = {**LINE, "changed": {"file:/x": ["a", "b", stamp, "root"]}}
    parse(Output(told("2026-11-24T11:05:00Z", 5, "enabled", "active", line)))


def test_the_script_reads_changes_with_the_zeros_of_a_hard_reset(tmp_path: Path) -> None:
    (tmp_path / CHANGES).write_bytes(b"\0" * 64 + json.dumps(LINE).encode() + b"\n")
    script = READINGS.script.replace(FOLDER, str(tmp_path))
    ran = subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True)
    assert len(parse(Output(ran.stdout)).noted) == 4
