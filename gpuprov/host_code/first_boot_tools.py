"""Functions that first_boot, its judge and its bootloaders share: marks on the command line, atomic file writes,
programs."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Protocol, Sequence, TypedDict

ROOT = os.environ.get("GPUPROV_ROOT", "")
# The counter's states: the next boot starts the new state, for the first time; every boot starts the kept state.
ONCE, BACK = "once", "back"
# Words on the command line of the first boot: without `panic`, a kernel that panics and an initramfs that gives up
# would wait for ever.
FIRST = ("gpuprov.first", "panic=30")
# Word on the command line of the kept entry.
KEPT = "gpuprov.kept"


class Record(TypedDict, total=False):
    """The kept state, with the loader's notes (`kept`, `first`: texts of its entries; `site`: the site's own
    default)."""

    run: str
    boot_id: str
    kernel: str
    folder: str
    words: list[str]
    driver: str
    answers: bool
    panic: str
    off: bool
    tried: str
    stays: bool
    settled: bool
    found: str
    kept: str
    first: str
    site: str
    entries: str


class Loader(Protocol):
    """A bootloader that counts boots."""

    NAME: str

    def impossible(self) -> str:
        """Return the reason why this host cannot fall back by itself; "" if it can."""

    def odd(self, words: Sequence[str]) -> str:
        """Return the reason why an entry cannot have this command line; "" if it can."""

    def sources(self, kernel: str) -> dict[str, str]:
        """Return the files that the host was started from, by the names under which they are kept: the kernel, then
        initramfs."""

    def folder(self, kernel: str) -> str:
        """Return the folder in which kernel and initramfs are kept."""

    def prepare(self, known: Record, words: Sequence[str]) -> Record:
        """Prepare a counted boot, with this command line for the kept state; return the loader's notes for the
        record."""

    def again(self, known: Record) -> Record:
        """Do the same if only the site's own default is to be tried once more."""

    def arm(self, known: Record, *, once: bool) -> None:
        """Count: start the new state once, and then, or otherwise at once, the kept one."""

    def counted(self) -> str:
        """Return ONCE or BACK; "" if the site's own default starts."""

    def readable(self) -> bool:
        """Return whether `counted` can give an answer: its record may be on a file system that does not mount."""

    def forget(self, known: Record) -> None:
        """Start the site's own default again."""

    def drop(self, known: Record) -> None:
        """Remove the kept state."""

    def kernels(self) -> list[str]:
        """List the releases of the kernels that it starts."""

    def words_of(self, line: Sequence[str]) -> list[str]:
        """Return a running kernel's command line without the bootloader's words."""


def find_newest(kernels: Sequence[str]) -> str:
    return max(kernels, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], default="")


def read_text(path: str) -> str:
    try:
        with open(ROOT + path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().strip()
    except OSError:
        return ""


def write(path: str, text: str, mode: int | None = None) -> None:
    """Write a whole file, flushed to disk before this returns: a kernel may panic next."""
    # FAT has no modes.
    os.makedirs(os.path.dirname(path), exist_ok=True)
    scratch = path + ".gpuprov-new"
    with open(scratch, "w", encoding="utf-8", errors="surrogateescape") as file:
        if mode is not None:
            os.chmod(scratch, mode)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)


def run(words: Sequence[str], limit: float = 600) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=limit,
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(words, 127, "", f"{words[0]} is not there")


def capture_output(words: Sequence[str]) -> str:
    ran = run(words)
    return ran.stdout.strip() if ran.returncode == 0 else ""


def call(words: Sequence[str]) -> None:
    ran = run(words)
    if ran.returncode:
        raise OSError(f"{' '.join(words)} failed: {' '.join(ran.stderr.split())[-300:]}")


def is_contained() -> bool:
    return run(["systemd-detect-virt", "--container", "--quiet"]).returncode == 0
