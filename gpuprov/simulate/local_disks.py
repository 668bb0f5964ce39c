"""Local NVMe disks of a machine: sparse files that QEMU shows as NVMe devices, blank until the machine writes to
them."""

from collections.abc import Sequence
from pathlib import Path

SERIAL = "gpuprov"
# QEMU's own, in any of its versions: https://github.com/qemu/qemu/blob/master/hw/nvme/ctrl.c
MODEL = "QEMU NVMe Ctrl"


def build_arguments(folder: Path, sizes: Sequence[int]) -> list[str]:
    """Return QEMU's arguments for disks of these sizes in MiB; a file that is not there becomes a blank disk."""
    arguments = list[str]()
    for index, size in enumerate(sizes):
        file = find_file(folder, index)
        if not file.exists():
            with file.open("wb") as blank:
                blank.truncate(size << 20)
        escaped = str(file).replace(",", ",,")
        arguments += ["-drive", f"file={escaped},format=raw,if=none,id=nvme{index},cache=unsafe,discard=unmap"]
        arguments += ["-device", f"nvme,serial={SERIAL}{index},drive=nvme{index}"]
    return arguments


def find_file(folder: Path, index: int) -> Path:
    """Return the file of a disk. Without it, the machine has a blank one in its place once it is switched on again."""
    return folder / f"nvme-{index}.img"
