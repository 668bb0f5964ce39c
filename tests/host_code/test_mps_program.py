"""The module of MPS: it installs its own code as the program of the units, and makes the daemons what is wanted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.capabilities.mps_programs import config
from tests.here import program as stand_in
from tests.host_code.modules import on_host, step


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without a driver, whose systemctl notes what it is told."""
    program, daemon = on_host("mps_program"), on_host("mps.daemon")
    monkeypatch.setattr(program, "FOLDER", str(tmp_path / "lib/mps"))
    monkeypatch.setattr(on_host("mps.devices"), "LIBRARY", "libnvidia-ml.so.0")
    monkeypatch.setattr(daemon, "WANTS", str(tmp_path / "wants"))
    stand_in(tmp_path, "systemctl", 'echo "$*" >> "$STATE/told"\n[ "$1" != show ] || echo ActiveState=inactive\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("STATE", str(tmp_path))
    return tmp_path


def told(place: Path) -> list[str]:
    file = place / "told"
    return file.read_text().splitlines() if file.exists() else []


def test_the_program_is_whole(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned = step(capsys, "mps", check=True, state="installed")
    assert planned["changed"] is True
    assert not (place / "lib").exists()
    assert step(capsys, "mps", state="installed")["changed"] is True
    assert step(capsys, "mps", state="installed")["changed"] is False
    assert told(place) == ["daemon-reload"] * 2, "units of a run that failed are read, too"
    assert "daemons" not in planned["msg"]
    command = [
        sys.executable,
        "-B",
        "-I",
        "-c",
        f"import sys; sys.path.insert(0, {str(place / 'lib')!r}); import mps.__main__",
    ]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""
    command = [sys.executable, "-B", "-m", "mps", "present", "host"]
    ran_so = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(place / "lib")}
    )
    assert (ran_so.returncode, "mps.json" in ran_so.stderr) == (1, True), ran_so.stderr


def test_without_a_driver_units_wait_for_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked: dict[str, Any] = {"state": "running", "wanted": config("gpu", count=1)}
    planned = step(capsys, "mps", check=True, **asked)
    assert planned["changed"] is True
    assert (
        "gpuprov-mps@gpu0.service: enabled; the MPS daemons start when the driver is loaded: no libnvidia-ml"
        in planned["msg"]
    )
    assert not [line for line in told(place) if line.startswith("enable")]
    assert step(capsys, "mps", **asked)["later"].startswith("no libnvidia-ml.so.0")
    assert "enable gpuprov-mps@gpu0.service" in told(place)


@pytest.mark.parametrize(("check", "coming", "fails"), [(False, True, True), (True, False, True), (True, True, False)])
def test_what_cannot_be(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    check: bool,
    coming: bool,
    fails: bool,
) -> None:
    """In check mode driver and MIG devices are not yet what this run makes of them."""
    program = on_host("mps.program")

    def refuse(_config: object, _change: bool, _ages: object) -> None:
        raise program.Problem("mps: scope: gpu has GPU 0, which is in MIG mode")

    monkeypatch.setattr(program, "settle", refuse)
    done = step(capsys, "mps", check=check, state="running", wanted=config("gpu"), coming=coming)
    assert bool(done.get("failed")) is fails
    assert "GPU 0, which is in MIG mode" in done["msg"]
    assert done["changed"] is not fails if "changed" in done else fails


def test_a_gpu_that_does_not_take_its_mode_is_a_warning(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = on_host("mps.program")

    def settle(_config: object, _change: bool, _ages: object) -> tuple[list[str], str]:
        sys.stderr.write("GPU 0: compute mode: nvmlDeviceSetComputeMode: Insufficient Permissions\n")
        return [], ""

    monkeypatch.setattr(program, "settle", settle)
    done = step(capsys, "mps", check=True, state="running", wanted=config("gpu"))
    assert done["warnings"] == ["GPU 0: compute mode: nvmlDeviceSetComputeMode: Insufficient Permissions"]
    assert json.dumps(done)
