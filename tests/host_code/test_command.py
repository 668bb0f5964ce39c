"""A command that was found to be needed: run, said, or tolerated to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host_code.modules import step


def test_it_is_run_and_in_check_mode_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "made here"
    planned = step(capsys, "command", check=True, argv=["touch", str(made)])
    assert (planned["changed"], planned["msg"]) == (True, f"would run: touch '{made}'")
    assert not made.exists()
    assert step(capsys, "command", argv=["touch", str(made)])["changed"]
    assert made.exists()
    assert not step(capsys, "command", argv=[])["changed"]


def test_a_failure_is_an_error_or_where_it_is_tolerated_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["sh", "-c", "echo In use by a client; exit 3"]
    failed = step(capsys, "command", argv=argv, fix="free it")
    assert failed["failed"]
    assert failed["msg"].endswith(": In use by a client. Fix: free it")
    went_on = step(capsys, "command", argv=argv, tolerate="reboot the host")
    assert (went_on["changed"], "failed" in went_on, "rc" in went_on) == (True, False, False), (
        "Ansible takes another rc for a failure"
    )
    assert went_on["warnings"] == ["sh -c 'echo In use by a client; exit 3': In use by a client; reboot the host"]
