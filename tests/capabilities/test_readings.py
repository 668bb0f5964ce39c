"""readings: the timer is on with this version's program, and takes readings."""

from __future__ import annotations

import hashlib

import pytest

from gpuprov.capabilities.readings import Readings, export, files
from tests.capabilities.asking import Row, facts, judge
from tests.capabilities.readings_host import NEVER, PROGRAM, TIMER, told

ON, TAKEN = "readings.timer", "readings.taken"
APPLY = "gpuprov apply writes"
ROWS = [
    Row("as asked for", ON, None, {}, "pass", "hourly"),
    Row("nothing there", ON, None, {"readings": NEVER}, "fail", f"{PROGRAM} is absent", APPLY),
    Row("switched off", ON, None, {"readings": told(timer="disabled")}, "fail", f"{TIMER} is disabled", APPLY),
    Row("masked", ON, None, {"readings": told(timer="masked")}, "fail", f"{TIMER} is masked", APPLY),
    Row("another interval", ON, Readings(every="daily"), {}, "fail", f"/etc/systemd/system/{TIMER} is another", APPLY),
    Row(
        "another program",
        ON,
        None,
        {"readings": told().replace("@sum ", "@sum 0", 1)},
        "fail",
        f"{PROGRAM} is another",
        APPLY,
    ),
    Row("other days", ON, Readings(keep_days=30), {}, "fail", "another (keeps 90 days)", APPLY),
    Row("taken", TAKEN, None, {}, "pass", "the last one at 2026-11-24 11:05"),
    Row(
        "stopped",
        TAKEN,
        None,
        {"readings": told(active="inactive")},
        "fail",
        f"{TIMER} is inactive",
        f"systemctl start {TIMER}",
    ),
    Row("never", TAKEN, None, {"readings": told(last="")}, "fail", "no reading yet", "journalctl -u"),
    Row(
        "not for hours",
        TAKEN,
        None,
        {"readings": told("2026-11-24T09:00:00Z")},
        "fail",
        "at 2026-11-24 09:00",
        "journalctl -u",
    ),
    Row("was switched off", TAKEN, None, {"readings": told("2026-11-20T09:00:00Z", up=120)}, "pass", "2026-11-20"),
    Row(
        "daily is enough",
        TAKEN,
        Readings(every="daily"),
        {"readings": told("2026-11-23T01:00:00Z")},
        "pass",
        "2026-11-23",
    ),
    Row(
        "clock went back",
        TAKEN,
        None,
        {"readings": told("2027-01-01T00:00:00Z")},
        "fail",
        "of the future",
        "set the clock",
    ),
]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_readings(row: Row) -> None:
    judge(row)


@pytest.mark.parametrize("block", [Readings(), Readings(every="daily", keep_days=7)])
def test_export_reads_what_is_there(block: Readings) -> None:
    said = told()
    for mine, theirs in zip(files(Readings())[1].values(), files(block)[1].values(), strict=True):
        said = said.replace(hashlib.sha256(mine.encode()).hexdigest(), hashlib.sha256(theirs.encode()).hexdigest())
    assert export(facts(readings=said.replace(f"{PROGRAM} 90", f"{PROGRAM} {block.keep_days}"))) == block
    assert export(facts(readings=NEVER)) is None
