"""What a host is made of beside GPUs: CPUs, memory, swap, NVMe drives, Ethernet interfaces."""

from __future__ import annotations

import msgspec

from gpuprov.probe.base import Output, Probe
from gpuprov.reading import is_whole


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """`sockets`, and `cores` of all of them (0: the kernel does not tell); memory and swap in MiB; `interfaces` that are not loopback,
    by name, with their state (up, down, unknown)."""

    sockets: int = 0
    cores: int = 0
    memory: int = 0
    swap: int = 0
    nvme: int = 0
    interfaces: dict[str, str] = {}


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
  [ -r "$t/physical_package_id" ] && read -r p < "$t/physical_package_id" && read -r c < "$t/core_id" && echo "core|$p|$c"
done
while read -r k v _; do case $k in MemTotal:) echo "memory|$v" ;; SwapTotal:) echo "swap|$v" ;; esac; done < /proc/meminfo
n=0; for d in /sys/class/nvme/nvme*; do [ ! -e "$d" ] || n=$((n + 1)); done; echo "nvme|$n"
for i in /sys/class/net/*; do
  [ "${i##*/}" = lo ] || { [ -r "$i/operstate" ] && read -r s < "$i/operstate" && echo "interface|${i##*/}|$s"; }
done
true""",
    parse,
    "lscpu; free -m; ls /sys/class/nvme; ip -br link",
    speaks=True,
)
