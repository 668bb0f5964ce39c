"""Disks of simulated hosts' own: a container's root on an ext4 file system whose power can be cut, and which can be
full.

A cut stops the file system in one moment, as xfstests' `godown` does: what was not written is lost, nothing is flushed
any more. The host then boots from what the disk has, after ext4's journal was replayed.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

FREE = 4000
"""MiB that a host has for itself: apply wants 3,000 for a new driver, and refuses it otherwise. The file is sparse."""
# fs/ext4/ext4.h: EXT4_IOC_SHUTDOWN is _IOR('X', 125, __u32); 2 is EXT4_GOING_FLAGS_NOLOGFLUSH: its journal is not
# flushed either.
SHUTDOWN, NOLOGFLUSH = 0x8004587D, 2


def run(*words: str | Path) -> str:
    """What a command prints. Raises if it fails."""
    return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout


def master(tag: str, file: Path) -> Path:
    """A file with a file system that has what the image has."""
    if not file.exists():
        tree = run("podman", "image", "mount", tag).strip()
        try:
            size = int(run("du", "-s", "-x", "--block-size=1M", tree).split()[0])
            partial = file.with_suffix(".part")
            partial.unlink(missing_ok=True)
            run("mke2fs", "-q", "-t", "ext4", "-m", "0", "-d", tree, partial, f"{size * 5 // 4 + FREE}M")
            partial.rename(file)
        finally:
            run("podman", "image", "unmount", tag)
    return file


@dataclass(frozen=True)
class Disk:
    """A copy of a master, mounted in a folder beside it."""

    file: Path

    @property
    def root(self) -> Path:
        return self.file.with_suffix("")

    @classmethod
    def copied(cls, source: Path, file: Path) -> Disk:
        run("cp", "--sparse=always", "--reflink=auto", source, file)
        disk = cls(file)
        disk.root.mkdir()
        disk.mount()
        return disk

    def mount(self) -> None:
        run("mount", "-o", "loop,noatime", self.file, self.root)

    def cut(self) -> None:
        """Nothing reaches the disk from now on."""
        folder = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, SHUTDOWN, struct.pack("I", NOLOGFLUSH))
        finally:
            os.close(folder)

    def unmount(self, seconds: float = 240) -> None:
        """Once its host is gone: at the next mount the journal is replayed.

        A container that starts meanwhile has this mount, too, for a moment. As long as anybody has it, the next mount
        is the same.
        """
        over = time.monotonic() + seconds
        while subprocess.run(["umount", str(self.root)], check=False, capture_output=True).returncode:
            self._busy(over)
        while run("losetup", "--associated", self.file).strip():
            self._busy(over)

    def _busy(self, over: float) -> None:
        if time.monotonic() > over:
            raise OSError(f"{self.root} stays busy")
        time.sleep(0.3)

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.root)], check=False, capture_output=True)
        self.file.unlink(missing_ok=True)
        if not os.path.ismount(self.root):
            self.root.rmdir()
