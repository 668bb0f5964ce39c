"""A disk whose power is cut keeps what was flushed, and loses the rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

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
