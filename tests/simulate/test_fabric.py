"""The stand-in fabric manager starts, refuses and dies as the real one does."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from gpuprov.simulate.parts import fabric

SWITCH = "nvswitch\t0\t0001:c0:00.0\t10de:22a3\t10de:22a3\t068000\t0\tNVSwitch\t-\t-\n"
LOADED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Thu Jan  1 00:00:00 UTC 1970\n"


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program as a module, with all its paths in tmp_path, and a host on which it can start."""
    program = tmp_path / "nv-fabricmanager"
    file = fabric.fabric_manager_files("535.261.03")["/usr/bin/nv-fabricmanager"]
    assert isinstance(file.content, bytes)
    program.write_bytes(file.content)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    specification = importlib.util.spec_from_loader("fm", SourceFileLoader("fm", str(program)))
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    for name in ("DEVICES", "LOADED", "STATE", "FAULT", "PID"):
        monkeypatch.setattr(module, name, tmp_path / name)
    (tmp_path / "DEVICES").write_text(SWITCH)
    (tmp_path / "LOADED").write_text(LOADED.format("535.261.03"))
    return module


def test_it_refuses_another_driver(daemon: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "LOADED").write_text(LOADED.format("535.309.01"))
    assert daemon.problem() == (
        "fabric manager NVIDIA GPU driver interface version 535.261.03 don't match with driver version 535.309.01. "
        "Please update with matching NVIDIA driver package."
    )


def test_it_refuses_without_switch_or_driver(daemon: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "DEVICES").write_text("gpu" + SWITCH.removeprefix("nvswitch"))
    assert "NV_WARN_NOTHING_TO_DO" in daemon.problem()
    (tmp_path / "LOADED").unlink()
    assert "not loaded" in daemon.problem()


def test_dead_with_the_state_latched(daemon: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, config = tmp_path / "log", tmp_path / "cfg"
    config.write_text(f"# comment\nDAEMONIZE=0\nLOG_FILE_NAME={log}\n")
    (tmp_path / "FAULT").touch()
    monkeypatch.setattr(daemon.syslog, "syslog", lambda _text: None)
    monkeypatch.setattr(daemon.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["nv-fabricmanager", "-c", str(config)])
    assert daemon.main() == 1
    assert (tmp_path / "STATE").read_text() == "Completed\n"
    assert "Connected to 1 node." in log.read_text()
