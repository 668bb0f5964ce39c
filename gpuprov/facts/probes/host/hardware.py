"""Hardware of a host apart from GPUs: CPUs and their governors, memory, hugepages, swap, NVMe drives, Ethernet
interfaces, and firmware of boards that no program of the driver shows."""

import re

import msgspec

from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host import systemd
from gpuprov.facts.probes.host.systemd import UnitState
from gpuprov.host_code.at_boot import governor
from gpuprov.host_code.at_boot.governor import Policy


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """`sockets`, and `cores` of all of them (0: the kernel does not report them); memory and swap in MiB; `interfaces`
    that are not loopback, by name, with their state (up, down, unknown)."""

    sockets: int = 0
    cores: int = 0
    memory: int = 0
    swap: int = 0
    nvme: int = 0
    interfaces: dict[str, str] = {}


# systemd sets the limit of open files to 2^63 - 1; CephFS reports 2^64 - 1 free inodes (ceph_statfs in fs/ceph/super.c
# of Linux).
NUMBER = re.compile(r"[0-9]{1,20}")


class FileSystem(msgspec.Struct, frozen=True, kw_only=True):
    """A folder's file system."""

    path: str
    # Its type, if mounted at this very path.
    mounted: str = ""
    # It reported its free space within 5 s.
    answers: bool = False
    # `space`, `inodes`: percent free for non-root users (None: it has no such number).
    space: float | None = None
    inodes: float | None = None


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """`handles`: open files of the whole host, and their limit. `specified`: whether file systems were specified; in a
    capture none are."""

    handles: tuple[int, int] | None = None
    systems: tuple[FileSystem, ...] = ()
    specified: bool = False


def parse_files(output: Output) -> Files:
    handles: tuple[int, int] | None = None
    systems: dict[str, FileSystem] = {}
    requested = False
    for line in output.text.splitlines():
        kind, _, rest = line.partition("|")
        cells = rest.split("|")
        if kind == "handles" and len(cells) == 2 and is_whole(cells[0]) and NUMBER.fullmatch(cells[1]):
            handles = int(cells[0]), int(cells[1])
        elif kind == "system" and len(cells) >= 7:
            mounted, *numbers, path = cells[0], *cells[1:6], "|".join(cells[6:])
            systems[path] = _build_file_system(path, mounted, numbers)
        elif kind == "mount" and len(cells) >= 2:
            systems.setdefault("|".join(cells[1:]), FileSystem(path="|".join(cells[1:]), mounted=cells[0]))
        elif kind == "asked":
            requested = True
    return Files(handles=handles, systems=tuple(systems.values()), specified=requested or bool(systems))


def _build_file_system(path: str, mounted: str, numbers: list[str]) -> FileSystem:
    if not all(map(NUMBER.fullmatch, numbers)):
        return FileSystem(path=path, mounted=mounted)
    blocks, free, available, inodes, left = map(int, numbers)
    usable = blocks - free + available  # as df counts: what is kept for root is nobody's
    return FileSystem(
        path=path,
        mounted=mounted,
        answers=True,
        space=100 * available / usable if usable > 0 else None,
        inodes=100 * left / inodes if inodes > 0 and left <= inodes else None,
    )


def parse(output: Output) -> Hardware:
    cores: set[tuple[str, str]] = set()
    numbers = {"memory": 0, "swap": 0, "nvme": 0}
    interfaces: dict[str, str] = {}
    for line in output.text.splitlines():
        kind, _, rest = line.partition("|")
        cells = rest.split("|")
        if kind == "core" and len(cells) == 2 and all(map(is_whole, cells)):
            cores.add((cells[0], cells[1]))
        elif kind in numbers and is_whole(cells[0]):
            numbers[kind] = int(cells[0]) if kind == "nvme" else int(cells[0]) // 1024
        elif kind == "interface" and len(cells) == 2:
            interfaces[cells[0]] = cells[1]
    return Hardware(sockets=len({socket for socket, _ in cores}), cores=len(cores), interfaces=interfaces, **numbers)


HARDWARE = Probe(
    "hardware",
    """for t in /sys/devices/system/cpu/cpu[0-9]*/topology; do
  [ -r "$t/physical_package_id" ] && read -r p < "$t/physical_package_id" && read -r c < "$t/core_id" &&
    echo "core|$p|$c"
done
while read -r k v _; do case $k in MemTotal:) echo "memory|$v" ;; SwapTotal:) echo "swap|$v" ;; esac
  done < /proc/meminfo
n=0; for d in /sys/class/nvme/nvme*; do [ ! -e "$d" ] || n=$((n + 1)); done; echo "nvme|$n"
for i in /sys/class/net/*; do
  [ "${i##*/}" = lo ] || { [ -r "$i/operstate" ] && read -r s < "$i/operstate" && echo "interface|${i##*/}|$s"; }
done
true""",
    parse,
    "lscpu; free -m; ls /sys/class/nvme; ip -br link",
    speaks=True,
)
FILES = Probe(
    "file_systems",
    """set -- $(cat /proc/sys/fs/file-nr) && [ $# = 3 ] && echo "handles|$1|$3"
[ -z "${paths+set}" ] || echo 'asked|'
# All at a time: of a server that is away each would take its 5 s. What cannot even be killed keeps none of the others waiting.
[ -z "$paths" ] || printf '%s\\n' "$paths" | {
  while IFS= read -r p; do
    [ -n "$p" ] || continue
    # A mount point in /proc/self/mounts has its blanks as \\040; asking a server that is away may hang.
    m=$(P=$(printf %s "$p" | sed 's/ /\\\\040/g') awk '$2 == ENVIRON["P"] { t = $3 } END { print t }' /proc/self/mounts)
    printf '%s\\n' "mount|$m|$p"
    { n=$(timeout -s KILL 5 stat -f -c '%b|%f|%a|%c|%d' -- "$p") || n='||||'; printf '%s\\n' "system|$m|$n|$p"
      } 2>/dev/null &
  done
  echo all
  { sleep 7; echo late; } 2>/dev/null &
} | {
  n=0 all=
  until [ "$all" ] && [ $n -le 0 ]; do
    IFS= read -r l || break
    case $l in mount*) n=$((n + 1));; system*) n=$((n - 1));; all) all=1; continue;; late) break;; esac
    printf '%s\\n' "$l"
  done
}; true""",
    parse_files,
    "cat /proc/sys/fs/file-nr; df -h; df -i",
    asks=lambda host: {"paths": "\n".join(host.capabilities["health"].mounts)},
)


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


def parse_firmware(output: Output) -> tuple[Firmware, ...]:
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
    parse_firmware,
    "grep . /sys/class/infiniband/*/board_id /sys/class/infiniband/*/fw_ver; "
    "grep . /proc/driver/nvidia-nvswitch/devices/*/information",
    blank=r"(adapter|nvswitch)\|",
)


class Frequency(UnitState, frozen=True, kw_only=True):
    """CPU frequency."""

    policies: tuple[Policy, ...] = ()
    # The one that gpuprov's unit sets, empty without a unit.
    governor: str = ""
    # Other active units that set governors.
    rivals: tuple[str, ...] = ()


def parse_frequency(output: Output) -> Frequency:
    rows = output.rows()
    return Frequency(
        policies=governor.parse(output.text),
        governor=(rows.get("asked") or [""])[-1],
        **systemd.parse_state(rows),
        rivals=tuple(rows.get("rival", ())),
    )


def parse_hugepages(output: Output) -> dict[int, int]:
    pairs = (line.split() for line in output.text.splitlines())
    return {int(size): int(count) for size, count in pairs}


def parse_default(output: Output) -> int:
    return int(output.text)


FREQUENCY = Probe(
    "cpu_frequency",
    governor.READER
    + """u=gpuprov-cpu-governor.service
sed -n 's/^ExecStart=.* set \\([a-z]*\\)$/asked|\\1/p' /etc/systemd/system/$u 2>/dev/null
"""
    + systemd.STATE
    + """set -- tuned.service power-profiles-daemon.service cpufrequtils.service cpupower.service thermald.service
for s in $(systemctl is-active "$@" 2>/dev/null); do
  case $s in active | reloading) echo "rival|$1" ;; esac; shift
done; true""",
    parse_frequency,
    "head -v /sys/devices/system/cpu/cpufreq/policy*/scaling_governor; systemctl status gpuprov-cpu-governor",
    speaks=True,
    blank=systemd.BLANK,
)
# The number of hugepages by their size in KiB: https://docs.kernel.org/admin-guide/mm/hugetlbpage.html
HUGEPAGES = Probe(
    "hugepages",
    """for d in /sys/kernel/mm/hugepages/hugepages-*kB; do
  n=$(cat "$d/nr_hugepages") || continue
  s=${d##*hugepages-}; echo "${s%kB} $n"
done 2>/dev/null; true""",
    parse_hugepages,
    "head -v /sys/kernel/mm/hugepages/*/nr_hugepages",
)
# The size in KiB of the pages that vm.nr_hugepages counts.
# Hugepagesize:     524288 kB     (/proc/meminfo of an Arm server with pages of 512 MiB)
DEFAULT_HUGEPAGE = Probe(
    "default_hugepage",
    "sed -n 's/^Hugepagesize: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo",
    parse_default,
    "grep Hugepagesize /proc/meminfo",
    speaks=True,
)
