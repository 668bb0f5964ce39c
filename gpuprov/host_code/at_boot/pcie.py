"""ACS, maximum read request, relaxed ordering and interrupt affinity of GPUs and HCAs: their reader, their differences,
and the program that sets them. `pcie apply` sets differing values with setpci (interrupts in /proc/irq), and reads them
back.

Its configuration has lines `SETTING VALUE`. Nothing of this outlives a reboot or a reset of the function.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterable, Iterator, Mapping, NamedTuple, Sequence

from .program import Refused, is_contained, main, read, read_rows, run, tell, write

CONFIG = "/etc/gpuprov/pcie.conf"
# https://github.com/torvalds/linux/blob/master/include/uapi/linux/pci_regs.h
RELAXED, REQUEST = 0x0010, 0x7000
UNREADABLE = "unreadable"
# Bytes of configuration space that users other than root may read.
HEADER_ONLY = 64
# Maximum number of CPUs in a list.
MOST = 1 << 16

# Both capability lists of PCI Express 7.5.1.1.11 and 7.6: standard ones from the byte at 0x34, extended ones from
# 0x100.
AWK = """
function w(at) { return b[at + 1] + 256 * b[at + 2] }
function flush() {
  if (head == "") return
  control = acs = ""
  if (b[1] == 255 && b[2] == 255) n = 0
  if (n >= 256 && int(b[7] / 16) % 2) {
    at = b[53] - b[53] % 4
    for (t = 0; at >= 64 && t < 48; t++) {
      if (b[at + 1] == 16) control = w(at + 8)
      at = b[at + 2] - b[at + 2] % 4
    }
  }
  if (n >= 4096) {
    at = 256
    for (t = 0; at >= 256 && t < 960; t++) {
      if (w(at) == 65535 || w(at) == 0) break
      if (w(at) == 13) acs = w(at + 6)
      at = int(w(at + 2) / 16); at -= at % 4
    }
  }
  print head n + 0 "|" control "|" acs
  head = ""; n = 0
}
/^ *[0-9]/ { for (i = 1; i <= NF; i++) b[++n] = $i + 0; next }
{ flush() }
/^function/ { head = $0; next }
{ print }
END { flush() }"""
# Lines `function|...` of GPUs, HCAs and the bridges above them, `irq|...` of HCAs, `other|ID` of each NVIDIA and
# Mellanox function. NVLink bridges, which have SW_MNG in their VPD, are not HCAs.
READER = f"""s=/sys/bus/pci/devices; all=' '
row() {{
  d=$s/$1 v='' i='' m='' n='' l='' g='' t='' f=''
  read -r v <"$d/vendor"; read -r i <"$d/device"; read -r n <"$d/numa_node" 2>/dev/null; read -r l <"$d/local_cpulist" 2>/dev/null
  [ -L "$d/driver" ] && m=$(readlink "$d/driver") && m=${{m##*/}}
  [ -L "$d/iommu_group" ] && g=$(readlink -f "$d/iommu_group") && read -r t <"$g/type" 2>/dev/null
  [ -L "$d/physfn" ] && f=virtual
  echo "function|$1|${{v#0x}}:${{i#0x}}|$2|$m|$n|$l|$3|${{g##*/}}|$t|$f|"
  od -An -v -tu1 -w64 -N4096 "$d/config"
}} 2>/dev/null
for p in $s/*; do
  a=${{p##*/}} k='' c='' v='' i=''
  read -r v <"$p/vendor" 2>/dev/null || continue
  read -r c <"$p/class"
  case $v in 0x10de|0x15b3) read -r i <"$p/device"; echo "other|${{v#0x}}:${{i#0x}}" ;; esac
  case $v$c in 0x10de0x03*) k=gpu ;; esac
  if [ -d "$p/infiniband" ]; then tr -d '\\0' <"$p/vpd" 2>/dev/null | grep -qa SW_MNG || k=hca; fi
  [ -n "$k" ] || continue
  u=$(readlink -f "$p"); u=${{u#*/pci*/}}; u=${{u%"$a"}}; o=''
  for b in $(echo "$u" | tr / ' '); do case $b in [0-9a-f]*:*:*.[0-7]) o="$o $b" ;; esac; done
  row "$a" $k "${{o# }}"
  q=''
  for b in $o; do
    case $all in *" $b "*) ;; *) all="$all$b "; row "$b" bridge "${{q# }}" ;; esac
    q="$q $b"
  done
  [ $k = hca ] && for x in "$p"/msi_irqs/*; do
    x=${{x##*/}} y=''
    read -r y </proc/irq/$x/smp_affinity_list || continue
    echo "irq|$a|$x|$y"
  done 2>/dev/null
done | awk '{AWK}'
"""


class Interrupt(NamedTuple):
    """`cpus`: the CPUs that may serve it."""

    number: int
    cpus: frozenset[int]


@dataclass(frozen=True)
class Function:
    """A GPU, an HCA or a bridge above one. `above`: the addresses of the bridges, the root port first.

    `size`: bytes of configuration space that could be read, 0 if the function does not answer (all ones): it fell off
    the bus, or sleeps. `control`: DevCtl, `acs`: ACSCtl; None if there is no such capability. `domain`: the type of its
    IOMMU group (`DMA`, `DMA-FQ`, `identity`; empty if the kernel does not report it), `group` whether it has one.
    `virtual`: of SR-IOV, whose DevCtl is its physical function's.
    """

    address: str
    identifier: str
    kind: str
    driver: str = ""
    node: int = -1
    cpus: frozenset[int] = frozenset()
    above: tuple[str, ...] = ()
    group: bool = False
    domain: str = ""
    virtual: bool = False
    size: int = 0
    control: int | None = None
    acs: int | None = None
    interrupts: tuple[Interrupt, ...] = ()

    @property
    def silent(self) -> bool:
        return self.size == 0

    @property
    def readable(self) -> bool:
        """Return whether more than the header could be read, which takes root."""
        return self.size > HEADER_ONLY

    @property
    def read_request(self) -> int:
        """The value in bytes; 0 without a PCI Express capability."""
        return 0 if self.control is None else 128 << (self.control >> 12 & 7)

    @property
    def relaxed(self) -> bool:
        return bool((self.control or 0) & RELAXED)


class Difference(NamedTuple):
    """The actual and the desired value of a function. `change`: the expression for setpci; "" for an interrupt."""

    address: str
    setting: str
    actual: str
    value: str
    change: str = ""

    def __str__(self) -> str:
        return f"{self.address} {self.setting} {self.actual} -> {self.value}"


def parse(text: str) -> dict[str, Function]:
    """Parse the reader's output into functions by address."""
    functions: dict[str, Function] = {}
    for line in text.splitlines():
        kind, *cells = line.split("|")
        if kind == "function":
            address, identifier, what, driver, node, cpus, above, group, domain, virtual, size, control, acs = cells
            functions[address] = Function(
                address=address,
                identifier=identifier,
                kind=what,
                driver=driver,
                node=int(node) if node else -1,
                cpus=parse_ranges(cpus),
                above=tuple(above.split()),
                group=bool(group),
                domain=domain,
                virtual=bool(virtual),
                size=int(size or 0),
                control=int(control) if control else None,
                acs=int(acs) if acs else None,
            )
        elif kind == "irq":
            address, number, allowed = cells
            dev = functions[address]
            interrupts = (*dev.interrupts, Interrupt(int(number), parse_ranges(allowed)))
            functions[address] = replace(dev, interrupts=interrupts)
    return functions


def list_differences(functions: Sequence[Function], desired: Mapping[str, str]) -> Iterator[Difference]:
    """Yield the differences from the requested values. Raises Refused if there is nothing that could have them."""
    gpus, hcas = ([dev for dev in functions if dev.kind == kind] for kind in ("gpu", "hca"))
    if ("max_read_request" in desired or "affinity" in desired) and not hcas:
        raise Refused("there is no HCA: the driver of RDMA devices is not loaded, or there are none")
    if not functions or ("gpu_max_read_request" in desired and not gpus):
        raise Refused(f"there is no {'GPU' if functions else 'GPU and no HCA'} on the PCI bus")
    if desired.get("acs") == "disabled":
        yield from (compare_value(dev, "acs", "0000") for dev in map(read_function, functions) if dev.silent or dev.acs)
    for several, size in ((gpus, "gpu_max_read_request"), (hcas, "max_read_request")):
        yield from compare_control(several, int(desired.get(size, 0)), desired.get("relaxed_ordering", ""))
    if desired.get("affinity") == "local":
        yield from compare_affinity(hcas)


def compare_control(functions: Iterable[Function], size: int, ordering: str) -> Iterator[Difference]:
    for dev in map(read_function, functions) if size or ordering else ():
        if dev.control is None and not dev.silent:
            continue
        desired = {"max_read_request": str(size or ""), "relaxed_ordering": ordering}
        each = [compare_value(dev, setting, value) for setting, value in desired.items() if value]
        yield from (difference for difference in each if difference.actual != difference.value)


def compare_value(dev: Function, setting: str, value: str) -> Difference:
    """Compare one register of a function with a value, which it may have."""
    if setting == "acs":
        actual, change = f"{dev.acs or 0:04x}", f"ECAP_ACS+6.w={value}"
    elif setting == "max_read_request":
        actual = str(dev.read_request)
        change = f"CAP_EXP+8.w={(int(value) // 128).bit_length() - 1 << 12:04x}:{REQUEST:04x}"
    else:
        actual = "enabled" if dev.relaxed else "disabled"
        change = f"CAP_EXP+8.w={RELAXED if value == 'enabled' else 0:04x}:{RELAXED:04x}"
    return Difference(dev.address, setting, UNREADABLE if dev.silent else actual, value, change)


def compare_affinity(functions: Iterable[Function]) -> Iterator[Difference]:
    for dev in functions:
        for number, cpus in dev.interrupts:
            if cpus and dev.cpus and not cpus <= dev.cpus:
                yield Difference(dev.address, f"irq {number}", format_ranges(cpus), format_ranges(dev.cpus))


def read_function(dev: Function) -> Function:
    if not dev.readable and not dev.silent:
        raise Refused(f"the configuration space of {dev.address} cannot be read (root can)")
    return dev


def format_ranges(cpus: Iterable[int]) -> str:
    """Format numbers as the kernel lists them: `0-3,8`."""
    groups: list[list[int]] = []
    for number in sorted(cpus):
        if groups and number == groups[-1][-1] + 1:
            groups[-1][1:] = [number]
        else:
            groups.append([number])
    return ",".join("-".join(str(end) for end in part) for part in groups)


def parse_ranges(listed: str) -> frozenset[int]:
    """Parse `0-3,8` to numbers."""
    ends = [part.strip().partition("-") for part in listed.split(",")]
    spans = [range(int(first), int(last or first) + 1) for first, _, last in ends if "0" <= first[:1] <= "9"]
    if sum(span.stop - span.start for span in spans) > MOST:
        raise ValueError(f"{listed[:60]} means too many CPUs")
    return frozenset(number for span in spans for number in span)


def set_here(functions: Iterable[Function], *, container: bool) -> list[Function]:
    """Return the functions that this host sets: virtual ones belong to their physical function, and in a container,
    interrupts belong to the machine."""
    own_functions = [dev for dev in functions if not dev.virtual]
    return [replace(dev, interrupts=()) for dev in own_functions] if container else own_functions


def read_settings() -> dict[str, str]:
    """Return the configuration as a dictionary."""
    config_rows = read_rows(CONFIG)
    if not config_rows or any(len(row) != 2 for row in config_rows):
        raise Refused(f"{CONFIG} has {'lines that are not settings' if config_rows else 'no settings'}")
    return dict(config_rows)


def put(diff: Difference) -> str:
    """Set one value; return the error, or ""."""
    if diff.change:
        return " ".join(run("setpci", "-s", diff.address, diff.change).stdout.split())
    return write(f"/proc/irq/{diff.setting[4:]}/smp_affinity_list", diff.value)


def apply(_: int) -> None:
    desired, container = read_settings(), is_contained()

    def differing() -> dict[tuple[str, str], Difference]:
        functions = set_here(parse(read(READER)).values(), container=container)
        return {(item.address, item.setting): item for item in list_differences(functions, desired)}

    pending = differing()
    complaints = {place: put(change) for place, change in pending.items()}
    remaining = differing()
    for place, diff in pending.items():
        if place not in remaining:
            tell(str(diff))
    problems = []
    for place, diff in remaining.items():
        why = f" ({complaints[place]})" if complaints.get(place) else ""
        problems.append(f"{diff.address} {diff.setting} stays {diff.actual}, expected {diff.value}{why}")
    if problems:
        raise Refused("; ".join(problems[:4]) + (f" and {len(problems) - 4} more" if problems[4:] else ""))


if __name__ == "__main__":
    main("pcie", {"apply": apply}, "")
