"""Archives of others: nothing in them is run, leaves its folder, fills the memory, or hangs the reader."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import tarfile
import time
from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import archives
from gpuprov.facts.captures import read
from tests.facts.captures import reports
from tests.rows import run_each


def refused(path: Path, why: str) -> None:
    with pytest.raises(GpuprovError, match=why) as caught:
        read(path)
    assert caught.value.exit_code == 2
    assert str(path) in caught.value.message


@pytest.mark.install
@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: object) -> None:
    monkeypatch.setattr(archives, "TOTAL", 4 << 20)
    monkeypatch.setattr(archives, "MEMBER", 2 << 20)
    path = tmp_path / "report.log"
    path.write_bytes(pack(bytes(8 << 20)))  # type: ignore[operator]
    refused(path, "larger than [24] MiB")
    members: dict[str, str | bytes] = {
        "x/nvidia-bug-report_gpu017.log.gz": b"\0" * (3 << 20),
        "x/nvidia-bug-report_gpu018.log": reports.bug_report(),
    }
    path.write_bytes(reports.tarball(members))
    assert [(record.host, record.fault) for record in read(path)] == [("gpu017", "larger than 2 MiB"), ("gpu018", "")]
    path.write_bytes(reports.tarball({"unwanted": bytes(8 << 20)}))
    refused(path, "unpacked it is larger than 4 MiB")


@pytest.mark.install
def test_an_xz_header_that_asks_for_all_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.xz"
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 29}]
    path.write_bytes(lzma.compress(b"x" * 1000, filters=filters))
    refused(path, "damaged: .*[Mm]emory")


def member(name: str, kind: bytes, link: str = "") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, link
        archive.addfile(entry)
    return file.getvalue()


def test_a_header_that_fills_the_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo("sos_commands/kernel/dmesg")
        entry.pax_headers = {"comment": "x" * (2 << 20)}
        archive.addfile(entry)
    refused(path, "damaged: a header of")
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("sos_commands/" + "x" * (2 << 20)))
    refused(path, "damaged: a header of")


@run_each("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_only_regular_members_are_read(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "report.tar"
    path.write_bytes(member("sos_commands/kernel/dmesg", kind, "/etc/shadow"))
    refused(path, "holds no record of a host")


def test_no_name_leaves_the_archive(tmp_path: Path) -> None:
    names = ("../sos_commands/kernel/dmesg", "a/../../etc/os-release", "/etc/os-release", "sos_commands/host/hostname")
    path = tmp_path / "report.tar"
    path.write_bytes(reports.tarball(dict.fromkeys(names, "gpu017"), "w"))
    inside = {name for name, _ in archives.list_members(path, lambda _name: True)}
    assert inside == {"etc/os-release", "sos_commands/host/hostname"}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.tar"]


def test_a_folder_is_read_without_links_pipes_and_what_they_lead_to(tmp_path: Path) -> None:
    folder = tmp_path / "sosreport"
    (folder / "sos_commands" / "kernel").mkdir(parents=True)
    (folder / "sos_commands" / "host").mkdir()
    (folder / "sos_commands" / "host" / "hostname").write_text("gpu017\n")
    secret = tmp_path / "secret"
    secret.write_text("NVRM: Xid (PCI:0000:10:1c): 79, secret")
    (folder / "sos_commands" / "kernel" / "dmesg").symlink_to(secret)
    (folder / "sos_commands" / "logs").symlink_to(tmp_path)
    os.mkfifo(folder / "sos_commands" / "kernel" / "lsmod")
    (folder / "loop").symlink_to(folder)
    (record,) = read(folder)
    assert "secret" not in record.text
    assert "loaded_modules" not in record.outputs


def test_more_files_than_a_report_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MEMBERS", 10)
    path = tmp_path / "report.tar"
    path.write_bytes(reports.tarball({str(number): "" for number in range(11)}, "w"))
    refused(path, "more than 10 files in it")


def test_damage_is_one_clear_error_and_what_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "report"
    whole = gzip.compress(reports.bug_report().encode(), mtime=0)
    path.write_bytes(whole[:40] + b"\xff" * 40 + whole[80:])
    refused(path, "cannot be read: damaged")
    path.write_bytes(whole[: len(whole) - 200])
    (record,) = read(path)
    assert record.host == "gpu017"
    assert "End of NVIDIA" in record.cut
    for junk in (b"", b"\0" * 600, b"\x1f\x8b", b"plain words\n", os.urandom(2000)):
        path.write_bytes(junk)
        refused(path, "cannot be read|holds no record")
    archive = reports.tarball({"sos_commands/host/hostname": "x" * 2000}, "w")
    path.write_bytes(archive[:1000])
    refused(path, "it was cut off before the first record in it")


def test_pipes_and_devices_are_refused_at_once(tmp_path: Path) -> None:
    pipe, kernel = tmp_path / "pipe", tmp_path / "kernel"
    os.mkfifo(pipe)
    kernel.symlink_to("/proc/kmsg")
    refused(pipe, "is a pipe, and no record")
    refused(Path("/dev/zero"), "is a device, and no record")
    for path in (kernel, Path("/proc/kmsg"), Path("/proc"), Path("/sys/class")):
        refused(path, f"{path} is a file of the running kernel, and no record")


def sized(path: Path, size: int, name: str, *, form: int = tarfile.PAX_FORMAT, wanted: bool = True) -> Path:
    """A small archive with a member that claims so many bytes, and another one after it."""
    with tarfile.open(path, "w", format=form) as file:
        entry = tarfile.TarInfo(name)
        if form == tarfile.PAX_FORMAT:
            entry.size, entry.pax_headers = 100, {"size": str(size)}
        else:
            entry.size = size
        file.addfile(entry, io.BytesIO(b"x" * 100) if form == tarfile.PAX_FORMAT else None)
    return path


@pytest.mark.parametrize("name", ["sosreport-gpu1-2026/sos_commands/kernel/dmesg", "sosreport-gpu1-2026/not/wanted"])
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT], ids=["pax", "base-256"])
@pytest.mark.parametrize("power", [31, 50, 62, 70])
@pytest.mark.parametrize("packed", [False, True])
def test_a_size_that_no_archive_has_is_not_waited_for(
    tmp_path: Path, name: str, form: int, power: int, packed: bool
) -> None:
    path = sized(tmp_path / "a.tar", 1 << power, name, form=form)
    if packed:
        path = tmp_path / "a.tar.gz"
        path.write_bytes(gzip.compress((tmp_path / "a.tar").read_bytes()))
    began = time.monotonic()
    refused(path, "unpacked it is larger than 1024 MiB")
    assert time.monotonic() - began < 5


@run_each("size", ["-1", "-512", "-1024", "9" * 5000, "x", ""])
def test_a_size_that_is_none_is_damage(tmp_path: Path, size: str) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as file:
        entry = tarfile.TarInfo("sosreport-gpu1-2026/x")
        entry.size, entry.pax_headers = 100, {"size": size}
        file.addfile(entry, io.BytesIO(b"x" * 100))
    began = time.monotonic()
    refused(path, "damaged|no record|larger")
    assert time.monotonic() - began < 5


SPARSE = {"major": "1", "minor": "0", "name": "sosreport-gpu1-2026/x", "realsize": str(1 << 50)}


@run_each("headers", [SPARSE, {"map": "0,1", "size": str(1 << 50)}], ids=["1.0", "0.1"])
def test_a_sparse_file_is_not_read(tmp_path: Path, headers: dict[str, str]) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as file:
        entry = tarfile.TarInfo("sosreport-gpu1-2026/x")
        entry.size = 512
        entry.pax_headers = {f"GNU.sparse.{name}": value for name, value in headers.items()}
        file.addfile(entry, io.BytesIO(b"0\n".ljust(512, b"\0")))
    refused(path, "sparse|no record|larger")


@run_each("records", [b"2 " * 200_000 + b"=", b"9 a=b\n", b"5 a=\n5 a=x", b"0 a=b\n", b"6 " + b"a" * 5000 + b"=\n"])
def test_an_extended_header_that_is_none_is_damage(tmp_path: Path, records: bytes) -> None:
    """Records that overlap had tarfile copy the rest of the header for each."""
    head = tarfile.TarInfo("x")
    head.type, head.size = tarfile.XHDTYPE, len(records)
    data = head.tobuf(tarfile.USTAR_FORMAT) + records.ljust(-(-len(records) // 512) * 512, b"\0")
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(data + tarfile.TarInfo("y").tobuf(tarfile.USTAR_FORMAT) + bytes(1024)))
    began = time.monotonic()
    refused(path, "damaged: an extended header that is none")
    assert time.monotonic() - began < 2
