"""Firmware of boards that no program of the driver shows: network adapters and NVSwitches."""

import re

import msgspec

from gpuprov.facts.probes.base import Output, Probe

ADAPTER, NVSWITCH = "adapter", "nvswitch"
VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,39}")


class Firmware(msgspec.Struct, frozen=True, kw_only=True):
    """The firmware of one device. `board`: what devices must have in common to be compared; `names`: those by which a
    spec may declare its version; `version`: empty if it cannot be read."""

    kind: str
    board: str
    names: tuple[str, ...]
    address: str
    version: str


def parse(output: Output) -> tuple[Firmware, ...]:
    """Parse a row per device, each address once. Soft and cloud devices have neither a board id nor a type."""
    devices: dict[tuple[str, str], Firmware] = {}
    for line in output.text.splitlines():
        kind, *cells = line.split("|")
        if kind not in (ADAPTER, NVSWITCH) or len(cells) != 4:
            continue
        address, board, model, version = (cell.strip() for cell in cells)
        names = tuple(dict.fromkeys(filter(None, (board, model))))
        if names:
            name = f"{names[0]} ({names[1]})" if len(names) > 1 else names[0]
            known = version if VERSION.fullmatch(version) and version != "N/A" else ""
            device = Firmware(kind=kind, board=name, names=names, address=address, version=known)
            devices.setdefault((kind, address), device)
    return tuple(devices[key] for key in sorted(devices))


# No tool of MFT is needed: mlx5_ib's board_id (the PSID), hca_type and fw_ver
# (https://github.com/torvalds/linux/blob/master/Documentation/ABI/stable/sysfs-class-infiniband), and the nvidia
# module's own file of each NVSwitch before generation 4
# (https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/kernel-open/nvidia/procfs_nvswitch.c).
FIRMWARE = Probe(
    "board_firmware",
    r"""for d in /sys/class/infiniband/*; do
  [ -e "$d/device/vendor" ] && [ ! -e "$d/device/physfn" ] && [ ! -e "$d/parent" ] || continue
  a=$(readlink -f "$d/device") r="adapter|${a##*/}"
  for f in board_id hca_type fw_ver; do r="$r|$(head -n 1 "$d/$f" 2>/dev/null)"; done
  echo "$r"
done
for f in /proc/driver/nvidia-nvswitch/devices/*/information; do
  [ -e "$f" ] || continue
  a=${f%/*} a=${a##*/} p=/sys/bus/pci/devices/${a##*/}
  n=$(cat "$p/vendor" "$p/device" 2>/dev/null | tr -d '\n' | sed 's/^0x\(....\)0x/\1:/')
  echo "nvswitch|$a||$n|$(sed -n 's/^BIOS Version: *//p' "$f" | head -n 1)"
done""",
    parse,
    "grep . /sys/class/infiniband/*/board_id /sys/class/infiniband/*/fw_ver; "
    "grep . /proc/driver/nvidia-nvswitch/devices/*/information",
    blank=r"(adapter|nvswitch)\|",
)
