"""What is kept of simulated machines: one folder each, with a record of how it was made."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpuprov.simulate import image, qemu
from gpuprov.simulate.description import Description
from gpuprov.simulate.host import decode

RECORD = "machine.json"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """Stored record of a machine."""

    description: Description
    # Its place in the fabric.
    number: int
    firmware: qemu.Firmware = "bios"
    volumes: tuple[tuple[str, str], ...] = ()


class Outline(msgspec.Struct, frozen=True):
    """What is read of a record, whichever version of gpuprov wrote it."""

    description: dict[str, object] = {}
    number: int = 0

    @property
    def distribution(self) -> str:
        return str(self.description.get("distribution", Description().distribution))


def find_base() -> Path:
    """Return the folder of all machines."""
    folder = image.cache_dir() / "machines"
    folder.mkdir(exist_ok=True)
    return folder


def find_folder(name: str) -> Path:
    """Return the folder of a machine, which may not exist."""
    return find_base() / name


def is_kept(name: str) -> bool:
    """Return whether there is such a machine, also one of another version of gpuprov."""
    return (find_folder(name) / RECORD).is_file()


def read(name: str) -> Kept | None:
    """Return the record; None if there is no such machine. Raises GpuprovError if another version of gpuprov wrote
    it."""
    return decode(name, (find_folder(name) / RECORD).read_bytes(), Kept) if is_kept(name) else None


def write(name: str, kept: Kept) -> None:
    """Write the record."""
    (find_folder(name) / RECORD).write_bytes(msgspec.json.encode(kept))


def list_outlines() -> dict[str, Outline]:
    """Return an outline of every machine, by name, also of those of other versions of gpuprov."""
    outlines = {}
    for record in sorted(find_base().glob(f"*/{RECORD}")):
        try:
            outlines[record.parent.name] = msgspec.json.decode(record.read_bytes(), type=Outline)
        except msgspec.DecodeError:
            outlines[record.parent.name] = Outline({"distribution": "unreadable"})
    return outlines
