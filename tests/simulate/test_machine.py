"""Simulated machines: what needs no QEMU."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import disk, disk_files, image, local_disks, machine, machine_records, sources, tools
from gpuprov.simulate.description import Description, Gpus

MIRRORS = sources.Mirrors("http://mirror.example/debian", "http://mirror.example/debian-security")
PLAIN = Description(kind="machine")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return image.cache_dir()


def kept(name: str, number: int = 1) -> Path:
    folder = image.cache_dir() / "machines" / name
    folder.mkdir(parents=True)
    (folder / "machine.json").write_bytes(msgspec.json.encode(machine_records.Kept(description=PLAIN, number=number)))
    return folder


def test_the_key_of_a_disk_covers_what_is_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = disk.Recipe("debian12", MIRRORS)
    keys = {recipe.key, disk.Recipe("debian13", MIRRORS).key}
    for place, name, value in (
        (disk, "PACKAGES", (*disk.PACKAGES, "strace")),
        (disk, "LAYOUT", disk.LAYOUT[:1]),
        (disk_files, "PREPARE", disk_files.PREPARE + "true\n"),
        (disk_files, "FINISH", disk_files.FINISH + "true\n"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, value)
            keys.add(recipe.key)
    assert len(keys) == 6
    assert disk.Recipe("debian12", MIRRORS).key == recipe.key


def test_an_unknown_distribution_says_what_is_allowed() -> None:
    with pytest.raises(GpuprovError, match="debian12, debian13"):
        disk.Recipe("debian7", MIRRORS).command(Path("tree"))


@pytest.mark.parametrize("path", ["identity", "finish"])
def test_the_programs_on_the_disk_are_shell(path: str, tmp_path: Path) -> None:
    content = disk_files.files()[f"/usr/lib/gpuprov-sim/{path}"].content
    assert isinstance(content, bytes)
    assert b"@" not in content
    subprocess.run(["sh", "-n"], input=content, check=True)


def test_down_ends_only_the_process_that_names_its_folder(cache: Path) -> None:
    folder = kept("one")
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", str(folder / "pid")]) as stranger:
        (folder / "pid").write_text(str(stranger.pid))
        assert machine.down("one")
        assert stranger.poll() is None
        stranger.kill()
    assert not folder.exists()
    assert not machine.down("one")


def test_another_description_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "require", lambda _: None)
    kept("one")
    with pytest.raises(GpuprovError, match="one is up with another description"):
        machine.up("one", Description(kind="machine", gpu=Gpus(model="H100-SXM5-80GB")))
    with pytest.raises(GpuprovError, match='host name is "One"'):
        machine.up("One", PLAIN)


def test_a_disk_with_a_kernel_of_its_own_has_no_metapackage_that_brings_another() -> None:
    newest, older = disk.Recipe("debian12", MIRRORS), disk.Recipe("debian12", MIRRORS, "6.1.0-47-amd64")
    assert newest.base_key != older.base_key
    mine, plain = set(older.packages), set(newest.packages)
    assert mine - plain == {"linux-image-6.1.0-47-amd64", "linux-headers-6.1.0-47-amd64"}
    assert plain - mine == {"linux-image-amd64", "linux-headers-amd64"}


def test_the_partitions_lie_behind_each_other_with_room_for_grub(tmp_path: Path) -> None:
    raw = tmp_path / "disk.raw"
    disk._partition(raw)
    with raw.open("rb") as file:
        sector = file.read(512)
    assert sector[510:] == b"\x55\xaa"
    (boot_start, boot_size), (root_start, root_size) = (
        struct.unpack_from("<II", sector, 446 + 16 * number + 8) for number in (0, 1)
    )
    assert boot_start == 2048
    assert root_start == boot_start + boot_size
    assert raw.stat().st_size == 512 * (root_start + root_size)


def test_a_local_disk_that_was_taken_away_comes_back_blank(tmp_path: Path) -> None:
    arguments = local_disks.build_arguments(tmp_path, (16, 32))
    assert arguments[3] == "nvme,serial=gpuprov0,drive=nvme0"
    files = [local_disks.find_file(tmp_path, index) for index in (0, 1)]
    assert [file.stat().st_size for file in files] == [16 << 20, 32 << 20]
    for file in files:
        file.write_bytes(b"data")
    files[0].unlink()
    assert local_disks.build_arguments(tmp_path, (16, 32)) == arguments
    assert [file.stat().st_size for file in files] == [16 << 20, 4]


@pytest.mark.parametrize(
    ("content", "distribution"),
    [
        (
            '{"description": {"kind": "machine", "distribution": "debian13", "colour": "later"}, "number": 2}',
            "debian13",
        ),
        ('{"description": {"kind": "machine"}, "number": "two"}', "unreadable"),
        ('{"descr', "unreadable"),
    ],
)
def test_a_machine_of_another_version_is_listed_and_goes(content: str, distribution: str, cache: Path) -> None:
    kept("earlier")
    folder = kept("later")
    (folder / "machine.json").write_text(content)
    assert {row.name: (row.distribution, row.state) for row in machine.listing()} == {
        "earlier": ("debian12", "dead"),
        "later": (distribution, "dead"),
    }
    with pytest.raises(GpuprovError, match="later was made by another version of gpuprov") as caught:
        machine.describe("later")
    assert caught.value.fix == "gpuprov simulate down later"
    assert machine.down("later")
    assert not folder.exists()
