"""Archives of installers, of people who mean root's files."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from gpuprov.host_code.archives import unpack
from gpuprov.host_code.failed import Failed
from tests.rows import run_each

DIRECTORY, LINK, HARD = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
Entry = tuple[str, bytes, str]


def packed(folder: Path, *entries: Entry) -> str:
    """An archive of these: name, type, and where a link leads, or what a file holds."""
    with tarfile.open(folder / "a.tar.gz", "w:gz") as archive:
        for name, kind, text in entries:
            member = tarfile.TarInfo(name)
            member.type, member.mode, member.uid = kind, 0o6777, 1000
            data = b""
            if kind == tarfile.REGTYPE:
                data = text.encode()
            else:
                member.linkname = text
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return str(folder / "a.tar.gz")


def file(name: str) -> Entry:
    return name, tarfile.REGTYPE, "x"


HOSTILE: dict[str, tuple[Entry, ...]] = {
    "up": (file("../x"),),
    "absolute": (file("/tmp/x"),),
    "a link out": (("a", LINK, "../x"), file("a")),
    "through a link to here": (("d", LINK, "."), ("x", LINK, "d/../y"), file("x")),
    "through one that comes later": (("x", LINK, "d/../y"), ("d", LINK, ".")),
    "a file in the place of a link": (("a", LINK, "b"), file("a")),
    "a folder in the place of a link": (("a", LINK, "b"), ("a", DIRECTORY, "")),
    "behind a link": (("b", DIRECTORY, ""), ("a", LINK, "b"), file("a/x")),
    "a hard link to what comes later": (("a", HARD, "b"), file("b")),
    "a link to nothing": (("a", LINK, ""), file("")),
    "a loop": (("a", HARD, "a"),),
    "a device": (("a", tarfile.CHRTYPE, ""),),
}


@run_each("name", HOSTILE)
def test_nothing_lies_or_leads_outside(tmp_path: Path, name: str) -> None:
    into = tmp_path / "home" / "into"
    into.mkdir(parents=True)
    with pytest.raises(Failed, match=r"holds|cannot be unpacked"):
        unpack(packed(tmp_path, *HOSTILE[name]), str(into))
    assert [path.name for path in into.parent.iterdir()] == ["into"]


def test_a_hard_link_to_a_link_touches_nothing_outside(tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    victim = tmp_path / "victim"
    victim.write_text("x")
    victim.chmod(0o600)
    with pytest.raises(Failed, match="a hard link to a link"):
        unpack(packed(tmp_path, ("d", LINK, "."), ("a", LINK, "d/../victim"), ("c", HARD, "a")), str(tmp_path / "into"))
    assert victim.stat().st_mode & 0o7777 == 0o600


def test_a_good_one(tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    entries = (("a", DIRECTORY, ""), ("a", DIRECTORY, ""), file("a/b"), ("a/c", LINK, "../a/b"), ("a/d", HARD, "a/b"))
    unpack(packed(tmp_path, *entries), str(tmp_path / "into"))
    found = {
        path.name: (path.lstat().st_mode & 0o7777, path.lstat().st_uid) for path in (tmp_path / "into/a").iterdir()
    }
    assert found["b"] == found["d"] == (0o755, 0)
    assert (tmp_path / "into/a/c").read_text() == "x"


@run_each("kind", ["gz", "bz2", "xz"])
def test_a_broken_one_is_told_in_one_line(tmp_path: Path, kind: str) -> None:
    text, archive = " ".join(map(str, range(9**5))).encode(), tmp_path / f"a.{kind}"
    with tarfile.open(str(archive), f"w:{kind}") as made:  # type: ignore[call-overload]
        entry = tarfile.TarInfo("a")
        entry.size = len(text)
        made.addfile(entry, io.BytesIO(text))
    whole = archive.read_bytes()
    half = len(whole) // 2
    for number, broken in enumerate((b"<html>", whole[:half], whole[:half] + b"\xff" * 999 + whole[half:])):
        archive.write_bytes(broken)
        (tmp_path / str(number)).mkdir()
        with pytest.raises(Failed) as told:
            unpack(str(archive), str(tmp_path / str(number)))
        assert "cannot be unpacked" in str(told.value), broken[:9]
        assert "\n" not in str(told.value)
