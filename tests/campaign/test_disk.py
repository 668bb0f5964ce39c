"""A disk whose power is cut keeps what was flushed, and loses the rest."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuprov.host_code.files import settle
from tests.campaign.disk import Disk, run

pytestmark = [pytest.mark.install, pytest.mark.skipif(os.geteuid() != 0, reason="file systems are mounted by root")]


@pytest.fixture(name="disk")
def _disk(tmp_path: Path) -> Iterator[Disk]:
    source = tmp_path / "master.img"
    run("mke2fs", "-q", "-t", "ext4", "-m", "0", source, "32M")
    disk = Disk.copied(source, tmp_path / "host.img")
    yield disk
    disk.close()
    assert not disk.file.exists()
    assert not disk.root.exists()


def test_what_was_not_flushed_is_lost(disk: Disk) -> None:
    (disk.root / "kept").write_text("flushed")
    run("sync", "--file-system", disk.root)
    (disk.root / "kept").write_text("written over, in place or not, and not flushed")
    (disk.root / "lost").write_text("not flushed")
    disk.cut()
    with pytest.raises(OSError, match="Input/output error"):
        (disk.root / "late").write_text("after the cut")
    disk.unmount()
    disk.mount()
    assert not (disk.root / "lost").exists()
    assert not (disk.root / "late").exists()
    assert (disk.root / "kept").read_text() in ("flushed", "")


def test_a_disk_that_somebody_else_still_has_is_not_mounted_again(disk: Disk) -> None:
    """As a container that starts has it for a moment: the next mount would be the one whose power was cut."""
    with subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; read -r x"], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:  # fmt: skip
        assert other.stdout
        other.stdout.readline()
        disk.cut()
        with pytest.raises(OSError, match="stays busy"):
            disk.unmount(1)
        other.communicate("\n")
    while run("losetup", "--associated", disk.file).strip():
        time.sleep(0.1)
    disk.mount()
    (disk.root / "kept").write_text("x")


def test_what_apply_settles_outlives_a_power_cut(disk: Disk) -> None:
    (disk.root / "module.ko").write_bytes(b"x" * 5000)
    settle([str(disk.root)])
    (disk.root / "later.ko").write_bytes(b"x" * 5000)
    disk.cut()
    disk.unmount()
    disk.mount()
    assert (disk.root / "module.ko").read_bytes() == b"x" * 5000
    later = disk.root / "later.ko"
    assert not later.exists() or later.read_bytes() == b"", "this disk loses nothing: the test proves nothing"
