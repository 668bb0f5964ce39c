"""The device files by which programs use GPUs, and who may open them."""

import msgspec

from gpuprov.facts.probes.base import Output, Probe


class DeviceFile(msgspec.Struct, frozen=True):
    """A device file: its mode in octal, owner and group."""

    path: str
    mode: int
    owner: str


def parse(output: Output) -> tuple[DeviceFile, ...]:
    rows = (row.split("|") for row in output.rows().get("file", ()))
    return tuple(DeviceFile(path, int(mode, 8), owner) for mode, owner, path in rows)


DEVICE_FILES = Probe(
    "device_files",
    """for d in /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm; do
  [ -c "$d" ] && stat -L -c 'file|%a|%U:%G|%n' "$d"; done; true""",
    parse,
    "ls -l /dev/nvidia*",
)
