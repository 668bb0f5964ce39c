"""The log of a run whose disk is full: nothing is begun without one, and what has begun is not cut off."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuprov.apply.log import Log
from gpuprov.core.errors import GpuprovError


def full(log: Log) -> None:
    """From now on every write to the log fails with ENOSPC."""
    handle = os.open("/dev/full", os.O_WRONLY)
    os.dup2(handle, log._file.fileno())
    os.close(handle)


def test_a_disk_that_is_full_later_does_not_cut_a_run_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Log(tmp_path, "friday") as log:
        log.write("gpuprov apply")
        full(log)
        for number in range(3):
            log.write(f"line {number}")
    assert log.path.read_text() == "gpuprov apply\n"
    told = f"warning: the log {log.path} ends here: No space left on device; the run goes on without it\n"
    assert capsys.readouterr().err == told


def test_a_disk_that_is_full_before_refuses_the_run(tmp_path: Path) -> None:
    with Log(tmp_path, "friday") as log:
        full(log)
        with pytest.raises(GpuprovError, match="No space left on device") as told:
            log.write("gpuprov apply")
    assert told.value.fix == "name another folder: --log-dir"
