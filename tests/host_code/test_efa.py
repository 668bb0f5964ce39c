"""AWS's installer through its module: when it has to run, what is refused before anything of it is run, and the driver
afterwards."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.host_code.modules import on_host, step

NAME = "aws-efa-installer/efa_installer.sh"
INSTALLER = 'echo "$@" > "$SEEN"; echo "$DEBIAN_FRONTEND" >> "$SEEN"; test -f ./beside'
Ask = Callable[..., dict[str, Any]]


def archive(path: Path, *more: tarfile.TarInfo, text: str = INSTALLER, name: str = NAME) -> str:
    """Made at that path; its SHA-256."""
    with tarfile.open(path, "w:gz") as packed:
        for entry, body in ((name, text), ("aws-efa-installer/beside", "")):
            told = tarfile.TarInfo(entry)
            told.size = len(body)
            packed.addfile(told, io.BytesIO(body.encode()))
        for one in more:
            packed.addfile(one)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the stand-in of the installer was given; the record lies below tmp_path, too."""
    monkeypatch.setattr(on_host("efa"), "RECORD", str(tmp_path / "state" / "efa.json"))
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    return tmp_path / "seen"


@pytest.fixture
def ask(seen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    def asked(sha256: str, **more: Any) -> dict[str, Any]:
        given = {"archive": str(tmp_path / "a.tar.gz"), "sha256": sha256, **more}
        return step(capsys, "efa", state="installed", **given)

    return asked


def test_it_runs_once_for_an_archive_and_its_options(tmp_path: Path, seen: Path, ask: Ask) -> None:
    sha256 = archive(tmp_path / "a.tar.gz")
    first = ask(sha256)
    assert (first["changed"], first["due"]) == (True, "gpuprov has run no installer here")
    assert seen.read_text().splitlines() == ["-y --no-verify --skip-limit-conf --skip-mpi", "noninteractive"]
    seen.unlink()
    assert ask(sha256)["changed"] is False
    assert not seen.exists()
    again = ask(sha256, kmod=False, plugin=False, mpi="openmpi5")
    assert again["due"] == "it ran with -y --no-verify --skip-limit-conf --skip-mpi"
    assert (
        seen.read_text().splitlines()[0] == "-y --no-verify --skip-limit-conf --skip-kmod --skip-plugin --mpi=openmpi5"
    )


def test_check_mode_needs_no_archive_and_runs_nothing(seen: Path, ask: Ask) -> None:
    assert ask("0" * 64, check=True)["changed"] is True
    assert not seen.exists()


def test_a_wrong_checksum_is_refused_before_anything_is_unpacked(tmp_path: Path, seen: Path, ask: Ask) -> None:
    archive(tmp_path / "a.tar.gz")
    told = ask("0" * 64)
    assert told["failed"]
    assert "and the spec says 000" in told["msg"]
    assert not seen.exists()
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (entry("../outside"), "holds ../outside, which is not unpacked"),
        (entry("/etc/outside"), "holds /etc/outside, which is not unpacked"),
        (entry("aws-efa-installer/device", tarfile.CHRTYPE), "holds aws-efa-installer/device, which is not unpacked"),
        (entry("aws-efa-installer/x", tarfile.LNKTYPE, "/etc/passwd"),
         "holds aws-efa-installer/x, which is not unpacked"),
        (entry("aws-efa-installer/x", tarfile.SYMTYPE, "/etc"), "holds a link out of it: aws-efa-installer/x"),
        (entry("aws-efa-installer/x", tarfile.SYMTYPE, "a/../../.."), "holds a link out of it: aws-efa-installer/x"),
    ],
)  # fmt: skip
def test_an_archive_that_reaches_out_of_its_folder(
    tmp_path: Path, seen: Path, ask: Ask, bad: tarfile.TarInfo, message: str
) -> None:
    assert message in ask(archive(tmp_path / "a.tar.gz", bad))["msg"]
    assert not seen.exists()


def test_what_is_no_installer(tmp_path: Path, ask: Ask) -> None:
    assert "it is not an EFA installer" in ask(archive(tmp_path / "a.tar.gz", name="other/install.sh"))["msg"]
    (tmp_path / "a.tar.gz").write_bytes(b"<html>not found")
    assert "cannot be unpacked" in ask(hashlib.sha256(b"<html>not found").hexdigest())["msg"]


def test_an_installer_that_fails_is_not_noted(tmp_path: Path, ask: Ask) -> None:
    told = ask(archive(tmp_path / "a.tar.gz", text="echo one; echo 'Error: no headers' >&2; exit 3"))
    assert told["msg"].endswith("efa_installer.sh ended with 3: one | Error: no headers")
    assert not (tmp_path / "state").exists()


def test_records_that_are_none() -> None:
    due = on_host("efa").explain_installation
    for text in ("", "{", "[]", '"x"', "{}", json.dumps({"options": []})):
        assert due(text, "a", []) == "gpuprov has run no installer here"
    assert due(json.dumps({"sha256": "a", "options": None}), "a", ["-y"]) == "it ran with no options"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Programs that note how they are called, and what is loaded: a build, or the kernel's OWN, which has neither
    mark."""
    efa = on_host("efa")

    def made(loaded: str, disk: str = "NEW", **fails: int) -> Path:
        folder, log = tmp_path / "bin", tmp_path / "log"
        folder.mkdir(exist_ok=True)
        told = f'case "$2" in efa) echo /lib/efa.ko ;; srcversion) echo {disk} ;; version) echo 3.1.0g ;; esac'
        for name in ("modinfo", "modprobe", "rmmod"):
            say = told if name == "modinfo" else f'echo {name} "$@" >> {log}; echo "{name}: no"'
            (folder / name).write_text(f"#!/bin/sh\n{say}\nexit {fails.get(name, 0)}\n")
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setattr(efa, "MODULE", str(tmp_path / "module"))
        monkeypatch.setattr(on_host("reasons"), "FOLDER", str(tmp_path / "reasons"))
        if loaded:
            (tmp_path / "module").mkdir()
        if loaded not in ("", "OWN"):
            (tmp_path / "module" / "srcversion").write_text(f"{loaded}\n")
            (tmp_path / "module" / "version").write_text("3.1.0g\n")
        return log

    return made


def settled(capsys: pytest.CaptureFixture[str], **more: Any) -> dict[str, Any]:
    return step(capsys, "efa", state="loaded", **more)


def test_a_driver_is_loaded(kernel: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    log = kernel("")
    assert settled(capsys, check=True)["changed"] is True
    assert not log.exists()
    assert settled(capsys)["changed"] is True
    assert log.read_text() == "modprobe efa\n"


def test_the_one_on_disk_is_left_alone(kernel: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    log = kernel("NEW")
    assert settled(capsys)["changed"] is False
    assert not log.exists()


def test_another_build_is_replaced_where_nobody_uses_it(
    kernel: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    log = kernel("OLD")
    assert settled(capsys)["changed"] is True
    assert log.read_text() == "rmmod efa\nmodprobe efa\n"


@pytest.mark.parametrize("disk", ["NEW", ""], ids=["by its srcversion", "by its version alone"])
def test_the_kernels_own_is_replaced_by_the_one_on_disk(
    kernel: Callable[..., Path], capsys: pytest.CaptureFixture[str], disk: str
) -> None:
    log = kernel("OWN", disk)
    assert settled(capsys)["changed"] is True
    assert log.read_text() == "rmmod efa\nmodprobe efa\n"


def test_what_is_loaded_stays_where_nothing_is_on_disk(
    kernel: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    log = kernel("OWN", modinfo=1)
    assert settled(capsys)["changed"] is False
    assert not log.exists()


def test_a_build_in_use_waits_for_a_reboot(kernel: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    log = kernel("OLD", rmmod=1)
    told = settled(capsys)
    assert (told["changed"], told["reboot"]) == (False, "another build of efa is loaded, and in use")
    assert on_host("reasons").read_reasons() == {"rdma": told["reboot"]}
    assert log.read_text() == "rmmod efa\n"


def test_a_driver_that_does_not_load(kernel: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    kernel("", modprobe=1)
    assert settled(capsys)["msg"] == "modprobe efa: modprobe: no"
