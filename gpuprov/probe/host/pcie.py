"""GPUs, HCAs and the bridges above them as configuration space and sysfs show them, and what sets them at boot."""

from __future__ import annotations

import msgspec

from gpuprov.probe.base import Output, Probe
from gpuprov.probe.host.systemd import GONE
from gpuprov.reading import is_whole, numbers

NODES = ("LoadState", "ActiveState", "UnitFileState")


class Interrupt(msgspec.Struct, frozen=True):
    """`cpus` is where it may be served."""

    number: int
    cpus: frozenset[int]


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, an HCA or a bridge above one. `above`: the addresses of the bridges, the root port first.

    `size`: bytes of configuration space that could be read, 0 where the function does not answer (all ones). `control`: DevCtl,
    `acs`: ACSCtl; None where there is no such capability. `domain`: the type of its IOMMU group (`DMA`, `DMA-FQ`, `identity`; empty
    if the kernel does not tell), `group` whether it has one. `virtual`: of SR-IOV, whose DevCtl is its physical function's.
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
    def readable(self) -> bool:
        """Whether more than the header could be read, which takes root."""
        return self.size > 64

    @property
    def read_request(self) -> int:
        """Bytes; 0 where it has no PCI Express capability."""
        return 0 if self.control is None else 128 << (self.control >> 12 & 7)

    @property
    def relaxed(self) -> bool:
        return bool((self.control or 0) & 0x0010)


class Pcie(msgspec.Struct, frozen=True, kw_only=True):
    """`functions` by address. `others`: ids of all NVIDIA and Mellanox functions. `config`: lines of gpuprov's configuration (None:
    no such file). `load`, `active`, `file`: of the boot unit. `log`: its last lines; `gone`: files of its
    command that are not there. `irqbalance`: its command line, if it runs
    (`balancer`); `balances`: it is installed. `setpci`: that is.
    `lockdown`: the kernel's mode (`none`, `integrity`). `topo`: the path of rdma_topo; `topo_check`: its exit status and what it
    says is wrong; `topo_grub`: `same`, `differs`, `absent`, or why it is not known;
    `topo_started`: whether the running kernel has the masks that it would write on its command line."""

    functions: dict[str, Function] = {}
    others: tuple[str, ...] = ()
    config: tuple[str, ...] | None = None
    load: str = "not-found"
    active: str = "inactive"
    file: str = ""
    log: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    irqbalance: str = ""
    balancer: bool = False
    balances: bool = False
    setpci: bool = False
    lockdown: str = ""
    vendor: str = ""
    topo: str = ""
    topo_status: int | None = None
    topo_wrong: tuple[str, ...] = ()
    topo_grub: str = ""
    topo_started: bool = False

    def of(self, kind: str) -> tuple[Function, ...]:
        """`gpu`, `hca` or `bridge`; virtual functions left out."""
        return tuple(one for one in self.functions.values() if one.kind == kind and not one.virtual)

    def path(self) -> tuple[Function, ...]:
        """GPUs, HCAs and all that is above them."""
        return tuple(one for one in self.functions.values() if not one.virtual)


def _number(text: str) -> int | None:
    return int(text) if is_whole(text) else None


def parse(output: Output) -> Pcie:
    many: dict[str, list[str]] = {}
    functions: dict[str, Function] = {}
    interrupts: dict[str, list[Interrupt]] = {}
    for line in output.text.splitlines():
        kind, _, rest = line.partition("|")
        if kind == "function":
            address, identifier, what, driver, node, cpus, above, group, domain, virtual, size, control, acs = (
                rest.split("|")
            )
            functions[address] = Function(
                address=address,
                identifier=identifier,
                kind=what,
                driver=driver,
                node=int(node) if node else -1,
                cpus=numbers(cpus),
                above=tuple(above.split()),
                group=bool(group),
                domain=domain,
                virtual=bool(virtual),
                size=int(size or 0),
                control=_number(control),
                acs=_number(acs),
            )
        elif kind == "irq":
            address, number, allowed = rest.split("|")
            interrupts.setdefault(address, []).append(Interrupt(int(number), numbers(allowed)))
        else:
            many.setdefault(kind, []).append(rest)
    for address, found in interrupts.items():
        functions[address] = msgspec.structs.replace(functions[address], interrupts=tuple(found))
    one = {name: values[-1] for name, values in many.items()}
    return Pcie(
        functions=functions,
        others=tuple(dict.fromkeys(many.get("other", ()))),
        config=tuple(line for line in many["config"] if line) if "config" in many else None,
        load=one.get(NODES[0]) or "not-found",
        active=one.get(NODES[1]) or "inactive",
        file=one.get(NODES[2], ""),
        log=tuple(many.get("log", ())),
        gone=tuple(many.get("gone", ())),
        irqbalance=one.get("irqbalance", ""),
        balancer="irqbalance" in one,
        balances="installed" in one,
        setpci="setpci" in one,
        lockdown=one.get("lockdown", ""),
        vendor=one.get("vendor", ""),
        topo=one.get("topo", ""),
        topo_status=_number(one.get("topo_status", "")),
        topo_wrong=tuple(many.get("topo_wrong", ())),
        topo_grub=one.get("topo_grub", ""),
        topo_started="topo_started" in one,
    )


# Both capability lists of PCI Express 7.5.1.1.11 and 7.6: standard ones from the byte at 0x34, extended ones from 0x100.
_AWK = """
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
PCIE = Probe(
    "pcie",
    f"""s=/sys/bus/pci/devices; all=' '
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
done | awk '{_AWK}'
c=/etc/gpuprov/pcie.conf u=gpuprov-pcie.service
[ -e $c ] && echo 'config|' && sed -n 's/^\\([a-z].*\\)/config|\\1/p' $c
systemctl show -p LoadState -p ActiveState -p UnitFileState $u 2>/dev/null | tr = '|'
{GONE}journalctl -q --no-pager -o cat -n 4 -u $u 2>/dev/null | sed 's/^/log|/'
for f in $(grep -lsx irqbalance /proc/[0-9]*/comm); do echo "irqbalance|$(tr '\\0' ' ' <"${{f%comm}}cmdline")"; done
[ -e /usr/sbin/irqbalance ] && echo 'installed|'
for f in setpci /usr/sbin/setpci /sbin/setpci; do command -v $f >/dev/null && echo 'setpci|' && break; done
sed -n 's/.*\\[\\(.*\\)\\].*/lockdown|\\1/p' /sys/kernel/security/lockdown 2>/dev/null
sed -n 's/^vendor_id[[:space:]]*: /vendor|/p;s/^CPU implementer.*/vendor|arm/p' /proc/cpuinfo | head -n 1
t=$(command -v rdma_topo || ls /usr/sbin/rdma_topo 2>/dev/null)
if [ -n "$t" ]; then
  echo "topo|$t"; r=$(timeout 20 "$t" check 2>&1); echo "topo_status|$?"
  echo "$r" | sed -n 's/^FAIL[[:space:]]*/topo_wrong|/p;s/^E: /topo_wrong|/p' | head -n 4
  g=/etc/default/grub.d/config-acs.cfg
  if w=$(timeout 20 "$t" write-grub-acs --dry-run 2>/dev/null); then
    y=absent; [ -e $g ] && y=differs && [ "$(sed /^#/d $g)" = "$(echo "$w" | sed /^#/d)" ] && y=same
    echo "topo_grub|$y"
    m=$(echo "$w" | sed -n 's/.*config_acs=[\\\\"]*\\([^\\\\"]*\\).*/\\1/p')
    [ -n "$m" ] && tr -d '"' </proc/cmdline | grep -qF "config_acs=$m" && echo 'topo_started|'
  fi
fi; true""",
    parse,
    "lspci -vvv | grep -E '^[0-9a-f]|DevCtl|MaxReadReq|ACSCtl'; systemctl status gpuprov-pcie",
    speaks=True,
)
"""What is above and in GPUs and HCAs. NVLink bridges (SW_MNG in their VPD) are no HCAs: gpuprov.probe.rdma.hcas."""
