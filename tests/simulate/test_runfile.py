"""The stand-in for NVIDIA's .run file: its header, its check, its installer's options and order of work."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuprov.simulate.parts import nvml
from gpuprov.simulate.parts.base import File
from gpuprov.simulate.standins import driver as standins_driver
from gpuprov.simulate.standins import runfile as standins_runfile

ROLE = Path(__file__).parents[2] / "roles/nvidia_driver/files"
VERSION = "580.95.05"


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in standins_driver.PROGRAMS:
        (tmp_path / name).write_bytes(b"#!/bin/true\n")
    monkeypatch.setattr(standins_driver, "_extracted", lambda: tmp_path)
    monkeypatch.setattr(standins_driver, "_hollow", lambda _name: b"library")
    monkeypatch.setattr(standins_driver, "configuration_library", lambda: b"library")
    monkeypatch.setattr(nvml, "package_files", lambda version: {f"/x.{version}": File(b"nvml")})
    return standins_runfile.write(tmp_path / "runfile", VERSION)


def sh(*arguments: str | Path, cwd: Path | None = None) -> tuple[int, str]:
    done = subprocess.run(["sh", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def told_sum(file: Path) -> str:
    return file.with_name(f"{file.name}.sha256").read_text().split()[0]


def test_it_is_the_same_each_time_and_says_what_it_is(file: Path) -> None:
    assert standins_runfile.runfile(VERSION) == file.read_bytes()
    assert file.name == f"NVIDIA-Linux-x86_64-{VERSION}.run"
    assert b"gpuprov stand-in" in file.read_bytes()[:400]
    assert sh(file, "--check") == (0, "check sums are ok\n")
    status, text = sh(file, "--info")
    assert (status, VERSION in text) == (0, True)


def test_the_role_reads_its_version_and_takes_away_what_is_wrong(file: Path) -> None:
    assert sh(ROLE / "runfile.sh", file, told_sum(file)) == (0, f"{VERSION}\n")
    status, text = sh(ROLE / "runfile.sh", file, "0" * 64)
    assert status == 1
    assert "the spec says 000" in text
    assert not file.exists()
    assert sh(ROLE / "runfile.sh", file, "0" * 64)[0] == 3, "no file"


def test_a_damaged_file_fails_its_own_check(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    status, text = sh(file, "--check")
    assert status == 1
    assert "Error in check sums" in text
    mine = subprocess.run(["sha256sum", file], capture_output=True, text=True, check=True).stdout.split()[0]
    status, text = sh(ROLE / "runfile.sh", file, mine)
    assert status == 1
    assert "its own check says: Error in check sums" in text


def test_what_is_in_it(file: Path) -> None:
    assert sh(file, "-x", cwd=file.parent)[0] == 0
    folder = file.parent / f"NVIDIA-Linux-x86_64-{VERSION}"
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {
        "nvidia-installer",
        "bin/nvidia-smi",
        "kernel/dkms.conf",
        "kernel-open/dkms.conf",
        f"lib/libcuda.so.{VERSION}",
    } <= found
    assert f'PACKAGE_VERSION="{VERSION}"' in (folder / "kernel-open/dkms.conf").read_text()
    assert 'PACKAGE_NAME="nvidia"' in (folder / "kernel/dkms.conf").read_text()
    status, text = sh("-c", f"{folder}/nvidia-installer --no-such-option")
    assert status == 1
    assert "unrecognized option" in text
