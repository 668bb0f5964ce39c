"""The PCI tree above GPUs, NVSwitches and HCAs with the state of its links, and the sockets of NUMA nodes, from
sysfs."""

import re

import msgspec

from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host.pci import GONE
from gpuprov.rules.nccl_topology import ADDRESS

# Values in sysfs if PCIe reports no width (all bits of the field set): a function in a VM, a device that is gone.
UNKNOWN_WIDTHS = frozenset({63, 255})


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A PCIe link as reported by one of its ends: lanes, and GT/s per lane; 0 is unknown. `max_`: the maximum of this
    end."""

    width: int = 0
    speed: float = 0.0
    max_width: int = 0
    max_speed: float = 0.0


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A PCI function. `root` is its host bridge with what is above it, `bridges` the bridges on the way from there, in
    order.

    `numa_node` is -1 if the machine reports none. `virtual`: an SR-IOV function whose physical function this host sees,
    too. `rdma`: it has an RDMA device. `gone`: it does not answer any more, so that its configuration reads as ones.
    """

    address: str
    root: str
    bridges: tuple[str, ...] = ()
    identifier: str
    pci_class: str
    numa_node: int = -1
    link: Link = Link()
    virtual: bool = False
    rdma: bool = False
    gone: bool = False


class PciTree(msgspec.Struct, frozen=True, kw_only=True):
    """The functions by address, and the socket of each NUMA node that has CPUs (-1: not reported)."""

    functions: dict[str, Function] = {}
    sockets: dict[int, int] = {}


def parse(output: Output) -> PciTree:
    functions: dict[str, Function] = {}
    sockets: dict[int, int] = {}
    for line in output.text.splitlines():
        kind, *cells = line.split("|")
        if kind == "node" and cells[1]:
            sockets[int(cells[0])] = int(cells[2]) if is_whole(cells[2]) else -1
        elif kind == "function":
            function = _parse_function(cells)
            if function:
                functions[function.address] = function
    return PciTree(functions=functions, sockets=sockets)


def _parse_function(cells: list[str]) -> Function | None:
    """Parse a function; None for anything that is not on a PCI bus."""
    path, vendor, device, pci_class, numa, speed, width, max_speed, max_width, virtual, rdma, *more = cells
    parts = path.split("/")
    first = next(
        # /sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0
        (number for number, part in enumerate(parts) if re.fullmatch(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", part)),
        0,
    )
    way = [part for part in parts[first:] if ADDRESS.fullmatch(part)]
    if not first or not way:
        return None
    return Function(
        address=way[-1],
        root="/".join(parts[: first + 1]),
        bridges=tuple(way[:-1]),
        identifier=f"{vendor.removeprefix('0x')}:{device.removeprefix('0x')}",
        pci_class=pci_class.removeprefix("0x"),
        numa_node=int(numa) if is_whole(numa.lstrip("-")) else -1,
        link=Link(
            width=_parse_lanes(width),
            speed=_parse_rate(speed),
            max_width=_parse_lanes(max_width),
            max_speed=_parse_rate(max_speed),
        ),
        virtual=bool(virtual),
        rdma=bool(rdma),
        gone=GONE in more,
    )


def _parse_lanes(text: str) -> int:
    lanes = int(text) if is_whole(text) else 0
    return 0 if lanes in UNKNOWN_WIDTHS else lanes


def _parse_rate(text: str) -> float:
    """Parse `32.0 GT/s PCIe`, on older kernels `8 GT/s`; `Unknown` and `Unknown speed` are 0."""
    match = re.match(r"([0-9.]+) GT/s", text)
    return float(match[1]) if match else 0.0


# One fork for the whole bus: attributes are read by the shell itself. Only of a function without a width the vendor is
# read on the bus, which wakes it: one that does not answer even then has none. Bridges, NVIDIA's GPUs and NVSwitches,
# NVIDIA's network functions (15b3; except NVLink bridges without an RDMA device), and any other function with an RDMA
# device.
PCI = Probe(
    "topology_pci",
    r"""for p in /sys/devices/system/node/node[0-9]*; do
  [ -d "$p" ] || continue
  c='' s=''
  { read -r c <"$p/cpulist"; } 2>/dev/null
  { read -r s <"/sys/devices/system/cpu/cpu${c%%[,-]*}/topology/physical_package_id"; } 2>/dev/null
  echo "node|${p##*/node}|$c|$s"
done
readlink -f /sys/bus/pci/devices/* 2>/dev/null | while read -r p; do
  v='' c='' i='' f='' d=''
  { read -r v <"$p/vendor"; read -r c <"$p/class"; } 2>/dev/null
  [ -d "$p/infiniband" ] && d=rdma
  case $c:$v in
    0x0604*|0x03*:0x10de|0x0680*:0x10de|0x02*:0x15b3) ;;
    *) [ "$d" ] || continue ;;
  esac
  case $d$c in 0x02*) grep -qsa SW_MNG "$p/vpd" && continue ;; esac
  read -r i <"$p/device"
  [ -e "$p/physfn" ] && f=virtual
  e=''
  r="function|$p|$v|$i|$c"
  for a in numa_node current_link_speed current_link_width max_link_speed max_link_width; do
    x=''
    { read -r x <"$p/$a"; } 2>/dev/null
    r="$r|$x"
  done
  case $x$f in 63 | 255) case $(od -An -tx4 -N4 "$p/config" 2>/dev/null) in *ffffffff*) e='|gone' ;; esac ;; esac
  echo "$r|$f|$d$e"
done; true""",
    parse,
    "lspci -tv; lspci -vv | grep -E '^[0-9a-f]|LnkCap:|LnkSta:|NUMA node'; lscpu | grep NUMA",
    blank=r"node\|",
)
