"""A running control daemon, by a stand-in: what it is asked and told."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.host_code.mps.control import Control, Restart
from gpuprov.host_code.mps.devices import Problem
from gpuprov.host_code.mps.environments import build_client_environments
from tests.capabilities.mps_host import A
from tests.capabilities.mps_programs import folder, running

__all__ = ["folder"]


def test_limits_are_set_and_set_again(folder: Path) -> None:
    control = running(folder, percentage=50, memory={"all": "8G", "3b:00.0": "1500M"}, priority="1")
    assert control.settle(change=False) == [
        "default_active_thread_percentage: 100.0 -> 50.0",
        "default_client_priority: 0 -> 1",
        "default_device_pinned_mem_limit 0: none -> 8G",
        "default_device_pinned_mem_limit 1: none -> 1G",
    ]
    assert len(control.settle()) == 4
    assert control.settle() == []
    (folder / "pipe/percentage").write_text("100.0\n")
    assert control.settle() == ["default_active_thread_percentage: 100.0 -> 50.0"]


def test_servers_that_run_are_told_too(folder: Path) -> None:
    (folder / "pipe/servers").write_text("800\n")
    control = running(folder, A, percentage=50, memory={"0": "8G"})
    assert {"active_thread_percentage 800: 100.0 -> 50.0", "device_pinned_mem_limit 800 0: none -> 8G"} < set(
        control.settle()
    )
    assert control.settle() == []
    assert control.clients() == ["900", "901"]


def test_a_limit_that_no_command_takes_away(folder: Path) -> None:
    (folder / "pipe/memory0").write_text("8G\n")
    with pytest.raises(Restart, match="memory limit of device 0"):
        running(folder, A).settle()


def test_a_command_without_effect(folder: Path) -> None:
    (folder / "pipe/stubborn").touch()
    with pytest.raises(Problem, match="set_default_active_thread_percentage 50 had no effect"):
        running(folder, A, percentage=50).settle()


def test_a_daemon_that_hangs_or_is_gone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Control.run, "__defaults__", (0.2,))
    (folder / "pipe/hangs").touch()
    with pytest.raises(Problem, match="does not answer within 0 s: systemctl restart gpuprov-mps@gpu0"):
        running(folder).servers()
    (folder / "pipe/hangs").unlink()
    (folder / "pipe/up").unlink()
    with pytest.raises(Problem, match="Cannot find MPS control daemon"):
        running(folder).wait(0.0)


def test_partitions(folder: Path) -> None:
    control = running(folder, A, partitions=[4, 2])
    made = [f"SM partition of {chunks} chunks on {A}: made" for chunks in (4, 2)]
    assert control.partition(change=False) == made
    assert control.partition() == made
    assert control.partition() == []
    assert control.partitions() == {A: [(4, f"{A}/Dx4"), (2, f"{A}/Dx2")]}
    one = control.daemon
    found = build_client_environments(one, control.config, control)
    assert found["gpu0-1"]["CUDA_MPS_SM_PARTITION"] == f"{A}/Dx2"
    with pytest.raises(Problem, match="no SM partition of 9 chunks on"):
        running(folder, A, partitions=[4, 2, 9]).partition()
