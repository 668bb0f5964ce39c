"""Files kept between runs help and never harm: damaged, another user's or unwritable ones are ignored."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuprov.catalog import reader
from gpuprov.catalog.gpus import GpusFile
from gpuprov.core import disk_cache


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gpuprov" / "room"


def test_what_was_written_is_read(own_cache: Path) -> None:
    disk_cache.write("room", "name", b"body")
    assert disk_cache.read("room", "name") == b"body"
    assert (own_cache / "name").stat().st_mode & 0o777 == 0o600


def test_a_damaged_file_is_not_there(own_cache: Path) -> None:
    disk_cache.write("room", "name", b"body")
    data = (own_cache / "name").read_bytes()
    (own_cache / "name").write_bytes(data[:-1] + b"x")
    assert disk_cache.read("room", "name") is None


def test_a_file_that_others_can_write_and_a_link_are_not_there(own_cache: Path) -> None:
    disk_cache.write("room", "name", b"body")
    (own_cache / "name").chmod(0o666)
    assert disk_cache.read("room", "name") is None
    disk_cache.write("room", "other", b"body")
    (own_cache / "link").symlink_to(own_cache / "other")
    assert disk_cache.read("room", "link") is None


def test_the_oldest_go(own_cache: Path) -> None:
    for number in range(disk_cache.KEPT + 3):
        disk_cache.write("room", f"n{number}", b"")
        os.utime(own_cache / f"n{number}", (number, number))
    disk_cache.write("room", "last", b"")
    assert len(list(own_cache.iterdir())) == disk_cache.KEPT
    assert disk_cache.read("room", "n0") is None


def test_an_unwritable_folder_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    disk_cache.write("room", "name", b"body")
    assert disk_cache.read("room", "name") is None


def test_the_catalogue_is_the_same_from_the_file_and_from_what_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_loaded", {})
    fresh = reader.load("gpus", GpusFile)
    monkeypatch.setattr(reader, "_loaded", {})
    monkeypatch.setattr(reader, "read_yaml", lambda *_: pytest.fail("the kept data was not used"))
    assert reader.load("gpus", GpusFile) == fresh


def test_no_file_of_the_catalogue_pushes_out_another() -> None:
    """Reproduced: 42 files of which 32 were kept, so a command that reads them all parsed them anew each time."""
    files = list((Path(reader.__file__).parent / "data").glob("*.yaml"))
    assert 2 * len(files) <= reader.KEPT


@pytest.mark.parametrize("home", ["relative", "/nowhere/at/all"])
def test_without_a_home_nothing_is_kept_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str) -> None:
    """A relative home would put files into whatever folder the command was started in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relative").mkdir()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", home)
    disk_cache.write("room", "name", b"body")
    assert disk_cache.read("room", "name") is None
    assert disk_cache.folder("room") == Path(os.devnull) / ".cache/gpuprov/room"
    assert list((tmp_path / "relative").iterdir()) == []
