"""Zip archives as records: read like a tar archive, within the same limits; what cannot be read says why."""

import io
import stat
import zipfile
from pathlib import Path

import pytest

from gpuprov.core.safe_parse import Unreadable, archives
from tests.rows import run_each

LOG = b"[    1.0] NVRM: Xid (PCI:0000:13:00): 79, pid=1, GPU has fallen off the bus.\n"


def write(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def members(path: Path) -> dict[str, object]:
    read = dict(archives.list_members(path, lambda name: True))
    return {name: data if isinstance(data, bytes) else str(data) for name, data in read.items()}


@run_each("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_files_are_read_by_their_names(method: int, tmp_path: Path) -> None:
    path = write(tmp_path / "case.zip", {"case/": b"", "case/dmesg.txt": LOG, "../up": b"x", "/abs": b"y"}, method)
    assert archives.is_archive(path)
    assert members(path) == {"case/dmesg.txt": LOG, "abs": b"y"}
    assert list(archives.list_members(path, lambda name: name == "abs")) == [("abs", b"y")]


def test_links_lead_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("passwd")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("dmesg", LOG)
    assert members(path) == {"dmesg": LOG}


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "bomb.zip", {"a": bytes(3 << 20), "b": LOG, "c": bytes(1 << 20)})
    monkeypatch.setattr(archives, "MEMBER", 2 << 20)
    assert members(path) == {"a": "larger than 2 MiB", "b": LOG, "c": bytes(1 << 20)}
    monkeypatch.setattr(archives, "TOTAL", 1 << 20)
    with pytest.raises(Unreadable, match="unpacked it is larger than 1 MiB"):
        members(path)
    monkeypatch.setattr(archives, "MEMBERS", 2)
    with pytest.raises(Unreadable, match="more than 2 files"):
        members(path)


def test_a_size_that_is_a_lie_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "lie.zip", {"a": bytes(3 << 20)})
    data = path.read_bytes().replace((3 << 20).to_bytes(4, "little"), (5).to_bytes(4, "little"))
    path.write_bytes(data)
    monkeypatch.setattr(archives, "MEMBER", 1 << 20)
    assert len(str(members(path)["a"])) < 60


def test_what_is_damaged_encrypted_or_unknown_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.zip", {"dmesg": LOG * 50}, zipfile.ZIP_STORED)
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    with pytest.raises(Unreadable, match="breaks off"):
        members(path)
    path.write_bytes(whole.replace(b"Xid", b"xID"))
    assert "damaged: Bad CRC-32" in str(members(path)["dmesg"])
    encrypted = bytearray(whole)
    for start in (encrypted.index(b"PK\x03\x04") + 6, encrypted.index(b"PK\x01\x02") + 8):
        encrypted[start] |= 1
    path.write_bytes(encrypted)
    assert members(path) == {"dmesg": "encrypted with a password: unpack it first"}
    path = write(tmp_path / "b.zip", {"dmesg": LOG}, zipfile.ZIP_LZMA)
    assert "unzip it first" in str(members(path)["dmesg"])


def test_a_zip_archive_in_a_stream_says_what_to_do(tmp_path: Path) -> None:
    data = write(tmp_path / "a.zip", {"dmesg": LOG}).read_bytes()
    with pytest.raises(Unreadable, match="name its file with --from, or unzip it first"):
        archives.unpack_stream(io.BytesIO(data))
