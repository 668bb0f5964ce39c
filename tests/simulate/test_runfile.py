"""The stand-in for NVIDIA's .run file: its header, its check, its installer's options and order of work."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code.driver import runfile
from gpuprov.host_code.driver.dkms import Failed
from gpuprov.simulate.standins import runfile as standins_runfile
from tests.host_code.modules import step

VERSION = "580.95.05"


@pytest.fixture
def file(without_programs: None, tmp_path: Path) -> Path:
    return standins_runfile.write(tmp_path / "runfile", VERSION)


def sh(*arguments: str | Path, cwd: Path | None = None) -> tuple[int, str]:
    done = subprocess.run(["sh", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def judged(file: Path, version: str = VERSION) -> str:
    """What the role says of the file, whose checksum has been compared (tests/host_code/test_fetched.py); empty if it
    takes it."""
    try:
        runfile.judge(str(file), "https://x/y.run", version)
    except Failed as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("rm {record}", ""),
        ("echo 'ERROR: modules are in use' >&2; exit 1", "ERROR: modules are in use"),
        ("true", "status 0"),
    ],
    ids=["removed", "it fails", "it leaves its record"],
)
def test_the_uninstaller_asks_nothing_and_leaves_no_record(
    script: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, program = tmp_path / "log", tmp_path / "nvidia-uninstall"
    record.write_text("1.0\n")
    program.write_text(f'#!/bin/sh\n[ "$*" = --silent ] || exit 9\n{script.format(record=record)}\n')
    program.chmod(0o755)
    monkeypatch.setattr(runfile, "RECORD", str(record))
    if not problem:
        runfile.remove(str(program), VERSION)
        return
    with pytest.raises(Failed, match=f"did not remove driver {VERSION}: {problem}. Fix: /var/log/nvidia-uninstall.log"):
        runfile.remove(str(program), VERSION)


def test_the_role_takes_the_file_of_the_spec(file: Path) -> None:
    assert judged(file) == ""
    assert file.exists()
    assert runfile.read_version(str(file)) == VERSION


def test_the_role_refuses_another_driver(file: Path, tmp_path: Path) -> None:
    said = judged(file, "570.1.1")
    assert f"it holds driver {VERSION}, and nvidia_driver.version is 570.1.1; nothing" in said
    bare = tmp_path / "bare"
    bare.write_text("exit 0\n")
    assert "it holds driver of unknown version, and" in judged(bare)


def test_a_damaged_file_fails_its_own_check(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    status, text = sh(file, "--check")
    assert status == 1
    assert "Error in check sums" in text
    said = judged(file)
    assert "it has the checksum of the spec, and its own check says: Error in check sums" in said


def test_the_installer_is_told_where_to_work_and_its_first_error_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.run"
    file.write_text(
        'echo "$TMPDIR $*" > "$TMPDIR/asked"; echo "  ERROR: no kernel source"; echo "ERROR: worse"; exit ${1#--}\n'
    )
    asked: dict[str, Any] = {"state": "installed", "path": str(file), "version": VERSION, "flavour": "open"}
    planned = step(capsys, "driver_runfile", check=True, **asked)
    assert (planned["changed"], planned["msg"]) == (True, f"{VERSION} (open) of a runfile")
    assert not (tmp_path / "asked").exists()
    assert step(capsys, "driver_runfile", **asked, options=["--0", "--dkms"])["changed"]
    assert (tmp_path / "asked").read_text() == f"{tmp_path} --0 --dkms\n"
    failed = step(capsys, "driver_runfile", **asked, options=["--3"])
    assert failed["msg"].startswith(
        f"NVIDIA's installer of {VERSION} failed: ERROR: no kernel source. Fix: /var/log/nvidia-installer.log"
    )
    file.write_text("exit 4\n")
    assert "failed: status 4. Fix: " in step(capsys, "driver_runfile", **asked)["msg"]
    judging = {**asked, "state": "judged", "of": "/here"}
    assert step(capsys, "driver_runfile", check=True, **judging)["changed"] is False
    file.write_text("exit 0\n")
    assert "it holds driver of unknown version" in step(capsys, "driver_runfile", **judging)["msg"]
