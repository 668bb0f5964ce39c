"""Local NVMe disks of a host and what is on them: a reader that changes nothing, and the parser of its output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .program import group_cells

# UUIDs of the array and of the file system that gpuprov made here: lines `array UUID`, `filesystem UUID`,
# `disks COUNT`.
RECORD = "/var/lib/gpuprov/scratch"
# Bytes at the beginning and at the end of a disk that are read where nothing has a signature.
ENDS = 1 << 20
# Reads, in a shell where `mount` is the mount point, each NVMe disk: its users, its signatures, and where it has none
# whether its ends are zeros. wipefs -n without -a only lists: https://man7.org/linux/man-pages/man8/wipefs.8.html
READER = rf"""PATH=$PATH:/usr/sbin:/sbin r=/sys/class/block md=''
users() {{
  v=''; read -r v <"$r/$2/dev"
  [ -n "$v" ] && awk -v d="$v" -v n="$1" '$3 == d {{ print "mount|" n "|" $5 }}' /proc/self/mountinfo
  grep -qs "^/dev/$2[[:space:]]" /proc/swaps && echo "swap|$1"
}}
look() {{
  users "$1" "$1"
  for p in "$r/$1"/*/partition; do
    [ -e "$p" ] && p=${{p%/partition}} p=${{p##*/}} && echo "part|$1|$p" && users "$1" "$p"
  done
  for h in "$r/$1"/holders/*; do
    [ -e "$h" ] || continue
    h=${{h##*/}} l=''; read -r l 2>/dev/null <"$r/$h/dm/name"; echo "holder|$1|$h|$l"
    case $h in md*) case " $md " in *" $h "*) ;; *) md="$md $h" ;; esac ;; esac
  done
  d=/dev/$1
  [ -b "$d" ] || {{ echo "unreadable|$1|no $d"; return; }}
  s=$(LC_ALL=C wipefs -n -p "$d" 2>&1) || {{ echo "unreadable|$1|$(printf '%s\n' "$s" | tail -n 1 | tr '|' ' ')"
    return; }}
  [ -n "$s" ] && {{ printf '%s\n' "$s" | tr '|' ' ' | sed -n "s/^0x[0-9a-f]*,/signature|$1|/p"; return; }}
  n=0; read -r n <"$r/$1/size"
  for k in 0 $((n - {ENDS // 512})); do
    g=$(dd if="$d" bs=512 skip=$k count={ENDS // 512} 2>/dev/null | wc -c)
    [ "$g" -eq {ENDS} ] || {{ echo "unreadable|$1|a read of its first and last MiB fails"; return; }}
    g=$(dd if="$d" bs=512 skip=$k count={ENDS // 512} 2>/dev/null | tr -d '\000' | wc -c)
    [ "$g" -eq 0 ] || {{ echo "data|$1"; return; }}
  done
}}
for b in "$r"/nvme*n*; do
  [ -e "$b/size" ] && [ ! -e "$b/partition" ] && [ "$(cat "$b/hidden" 2>/dev/null)" != 1 ] || continue
  n=${{b##*/}} m='' s='' z=0
  read -r z <"$b/size"; read -r m <"$b/device/model"; read -r s <"$b/device/serial"
  t=$(cat "$b/device/transport" "$b"/device/nvme*/transport 2>/dev/null | sort -u | tr '\n' ' ')
  echo "disk|$n|$z|${{t% }}|$m|$s"
  look "$n"
done
for l in /dev/disk/by-id/*; do
  [ -L "$l" ] && t=$(readlink -f "$l") && case $t in /dev/nvme*) echo "link|${{t##*/}}|${{l##*/}}" ;; esac
done
for n in $md; do z=0; read -r z <"$r/$n/size"; echo "array|$n|$z"; look "$n"; done
systemd-detect-virt --container --quiet 2>/dev/null && echo 'contained|'
for t in mdadm mkfs.xfs mkfs.ext4; do command -v $t >/dev/null && echo "tool|$t"; done
[ -r {RECORD} ] && sed 's/^/own|/; s/ /|/' {RECORD}
if [ -n "$mount" ]; then
  a=$(awk -v w="$mount" '$5 == w {{ for (i = 7; i < NF && $i != "-"; i++); v = $3 "|" $(i + 1) }}
    END {{ print v }}' /proc/self/mountinfo)
  if [ -n "$a" ]; then
    n=$(readlink "/sys/dev/block/${{a%|*}}"); echo "at|${{n##*/}}|${{a#*|}}|$(stat -c %a "$mount")"
  elif [ -L "$mount" ]; then echo 'under|is a symbolic link'
  elif [ -e "$mount" ] && [ ! -d "$mount" ]; then echo 'under|is no folder'
  elif [ -n "$(ls -A "$mount" 2>/dev/null)" ]; then echo 'under|holds files, which a mount would hide'; fi
fi
echo 'read|'
"""


class Signature(NamedTuple):
    """A signature that libblkid finds on a device: an `xfs`, a `linux_raid_member`, a `gpt`."""

    kind: str
    uuid: str
    label: str

    def __str__(self) -> str:
        known = [word for word in (self.label and f'"{self.label}"', self.uuid) if word]
        return " ".join([self.kind, *known])


@dataclass(frozen=True)
class Device:
    """A disk, or an array on disks."""

    name: str
    size: int = 0
    transport: str = ""
    model: str = ""
    serial: str = ""
    links: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    # Devices on it, with the names of device mapper's.
    holders: tuple[tuple[str, str], ...] = ()
    mounts: tuple[str, ...] = ()
    swap: bool = False
    signatures: tuple[Signature, ...] = ()
    # No signature, and yet its first or last MiB is not all zeros.
    data: bool = False
    unreadable: str = ""

    @property
    def blank(self) -> bool:
        used = self.parts or self.holders or self.mounts or self.swap or self.signatures
        return not (used or self.data or self.unreadable)

    def __str__(self) -> str:
        known = ", ".join(filter(None, (format_size(self.size), self.model, self.serial)))
        return f"/dev/{self.name} ({known})"


class At(NamedTuple):
    """The file system that is mounted at the mount point."""

    device: str
    filesystem: str
    mode: str


@dataclass(frozen=True)
class State:
    """`own`: what the record says of gpuprov's array. `under`: why nothing may be mounted at the mount point."""

    disks: tuple[Device, ...] = ()
    arrays: tuple[Device, ...] = ()
    own: dict[str, str] = field(default_factory=dict)
    at: At | None = None
    under: str = ""
    contained: bool = False
    tools: tuple[str, ...] = ()


def format_size(size: int) -> str:
    value, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"


def parse(text: str) -> State:
    """Parse the reader's output. Raises ValueError if it ended early."""
    many = group_cells(text)
    if "read" not in many:
        raise ValueError("the list of disks is cut off")

    def of(kind: str, name: str) -> list[list[str]]:
        return [row[1:] for row in many.get(kind, []) if row[0] == name]

    def build(row: list[str]) -> Device:
        name, size, transport, model, serial = [*row, "", "", ""][:5]
        return Device(
            name,
            int(size) * 512,
            transport,
            model.strip(),
            serial.strip(),
            links=tuple(cells[0] for cells in of("link", name)),
            parts=tuple(cells[0] for cells in of("part", name)),
            holders=tuple((cells[0], cells[1]) for cells in of("holder", name)),
            mounts=tuple(cells[0] for cells in of("mount", name)),
            swap=bool(of("swap", name)),
            signatures=tuple(_parse_signature(cells[0]) for cells in of("signature", name)),
            data=bool(of("data", name)),
            unreadable=" ".join(cells[0] for cells in of("unreadable", name)),
        )

    mounted = many.get("at")
    return State(
        tuple(map(build, many.get("disk", []))),
        tuple(map(build, many.get("array", []))),
        {row[0]: row[1] for row in many.get("own", []) if len(row) == 2},
        At(*mounted[-1][:3]) if mounted else None,
        many.get("under", [[""]])[0][0],
        "contained" in many,
        tuple(row[0] for row in many.get("tool", [])),
    )


def _parse_signature(text: str) -> Signature:
    # libblkid encodes spaces and backslashes of a label, and no commas.
    uuid, _, more = text.partition(",")
    label, _, kind = more.rpartition(",")
    return Signature(kind, uuid, label)
