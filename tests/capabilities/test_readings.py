"""readings: the timer is on with this version's program, and takes readings."""

from __future__ import annotations

import hashlib
import json

import pytest

from gpuprov.capabilities.readings import Readings, export, files
from gpuprov.host_code.files import PYTHON
from tests.capabilities.asking import Row, facts, judge
from tests.capabilities.contents_host import INTERPRETER, Also, unit
from tests.capabilities.readings_host import NEVER, PROGRAM, SERVICE, TIMER, told
from tests.rows import run_each

FILES, ENABLED, ACTIVE, TAKEN = "readings.files", "readings.enabled", "readings.active", "readings.taken"
APPLY = "gpuprov apply"
APPLIED = json.dumps({"capabilities": {"readings": {"digest": "x"}}})


def other(block: Readings) -> Also:
    """A host to which another block was applied."""
    programs, units = files(block)
    sums = [
        f"sum|{hashlib.sha256(text.replace(PYTHON, INTERPRETER).encode()).hexdigest()}  {path}\n"
        for path, text in {**programs, **units}.items()
    ]
    return Also("".join(sums))


ROWS = [
    Row("as asked for", FILES, None, {"receipt": APPLIED}, "pass", "3 files"),
    Row("another interval", FILES, None, {"contents": other(Readings(every="daily"))}, "fail",
        f"{TIMER}: another text", APPLY),
    Row("other days", FILES, None, {"contents": other(Readings(keep_days=30))}, "fail", f"{SERVICE}: another text",
        APPLY),
    Row("at each boot", ENABLED, None, {}, "pass", f"{TIMER} enabled"),
    Row("nothing there", ENABLED, None, {"contents": unit(TIMER, "inactive", "")}, "fail", f"{TIMER} is not-found",
        APPLY),
    Row("switched off", ENABLED, None, {"contents": unit(TIMER, "active", "disabled")}, "fail", f"{TIMER} is disabled",
        f"systemctl enable --now {TIMER}"),
    Row("masked", ENABLED, None, {"contents": unit(TIMER, "inactive", "masked")}, "fail", f"{TIMER} is masked",
        f"systemctl unmask {TIMER}"),
    Row("it runs", ACTIVE, None, {}, "pass", f"{TIMER} active"),
    Row("stopped", ACTIVE, None, {"contents": unit(TIMER, "inactive", "enabled")}, "fail", f"{TIMER} is inactive",
        "gpuprov apply", change=f"service {TIMER}: inactive -> active"),
    Row("taken", TAKEN, None, {}, "pass", "the last one at 2026-11-24 11:05"),
    Row("never", TAKEN, None, {"readings": told(last="")}, "fail", "no reading yet", "journalctl -u"),
    Row("not for hours", TAKEN, None, {"readings": told("2026-11-24T09:00:00Z")}, "fail", "at 2026-11-24 09:00",
        "journalctl -u"),
    Row("was switched off", TAKEN, None, {"readings": told("2026-11-20T09:00:00Z", up=120)}, "pass", "2026-11-20"),
    Row("daily is enough", TAKEN, Readings(every="daily"), {"readings": told("2026-11-23T01:00:00Z")}, "pass",
        "2026-11-23"),
    Row("clock went back", TAKEN, None, {"readings": told("2027-01-01T00:00:00Z")}, "fail", "dated in the future",
        "set the clock"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_readings(row: Row) -> None:
    judge(row)


@run_each("block", [Readings(), Readings(every="daily", keep_days=7)])
def test_export_reads_what_is_there(block: Readings) -> None:
    said = told()
    for mine, theirs in zip(files(Readings())[1].values(), files(block)[1].values(), strict=True):
        said = said.replace(hashlib.sha256(mine.encode()).hexdigest(), hashlib.sha256(theirs.encode()).hexdigest())
    assert export(facts(readings=said.replace(f"{PROGRAM} 90", f"{PROGRAM} {block.keep_days}"))) == block
    assert export(facts(readings=NEVER)) is None
