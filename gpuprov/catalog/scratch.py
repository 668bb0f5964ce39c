"""Models of clouds' NVMe disks, local and persistent ones."""

from functools import partial

from gpuprov.catalog.reader import Fact, File, load

UNIT = "gpuprov-scratch.service"


class Disk(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pattern of models."""

    key: str
    # Disks of the machine itself, which are empty after a stop.
    local: bool


class ScratchFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/scratch.yaml"""

    disks: tuple[Disk, ...]


read_scratch_file = partial(load, "scratch", ScratchFile)


def list_models(*, local: bool) -> tuple[str, ...]:
    """Return the patterns of local disks, or those of persistent ones."""
    return tuple(disk.key for disk in read_scratch_file().disks if disk.local == local)
