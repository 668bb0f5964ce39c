"""Hardware of a host apart from GPUs: CPUs, memory, swap, NVMe drives, Ethernet interfaces."""

import re

import msgspec

from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Output, Probe


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
