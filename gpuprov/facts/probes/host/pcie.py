"""GPUs, HCAs and the bridges above them in configuration space and sysfs, and the unit that configures them at boot."""

from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host import systemd
from gpuprov.facts.probes.host.system import ROOTS
from gpuprov.facts.probes.host.systemd import SetsAtBoot
from gpuprov.host_code.at_boot import pcie as onhost
from gpuprov.host_code.at_boot.pcie import Function


class Pcie(SetsAtBoot, frozen=True, kw_only=True):
    """`functions` by address."""

    functions: dict[str, Function] = {}
    # Ids of all NVIDIA and Mellanox functions.
    others: tuple[str, ...] = ()
    # Its command line, if it runs (`balancer`).
    irqbalance: str = ""
    balancer: bool = False
    # It is installed.
    balances: bool = False
    # setpci is installed.
    setpci: bool = False
    # The kernel's mode (`none`, `integrity`).
    lockdown: str = ""
    vendor: str = ""
    # The path of rdma_topo.
    topo: str = ""
    # `topo_status`, `topo_wrong`: the exit status of its check and the faults that it reports.
    topo_status: int | None = None
    topo_wrong: tuple[str, ...] = ()
    # `same`, `differs`, `absent`, or the reason why it is unknown.
    topo_grub: str = ""
    # Whether the running kernel's command line has the masks that rdma_topo would write.
    topo_started: bool = False

    def of(self, kind: str) -> tuple[Function, ...]:
        """Return the functions of a kind (`gpu`, `hca` or `bridge`), without virtual ones."""
        return tuple(function for function in self.functions.values() if function.kind == kind and not function.virtual)

    def path(self) -> tuple[Function, ...]:
        """Return GPUs, HCAs and all bridges above them."""
        return tuple(function for function in self.functions.values() if not function.virtual)


def _parse_number(text: str) -> int | None:
    return int(text) if is_whole(text) else None


def parse(output: Output) -> Pcie:
    many = output.rows()
    fields = {name: values[-1] for name, values in many.items()}
    return Pcie(
        functions=onhost.parse(output.text),
        others=tuple(dict.fromkeys(many.get("other", ()))),
        **systemd.parse(many),
        irqbalance=fields.get("irqbalance", ""),
        balancer="irqbalance" in fields,
        balances="installed" in fields,
        setpci="setpci" in fields,
        lockdown=fields.get("lockdown", ""),
        vendor=fields.get("vendor", ""),
        topo=fields.get("topo", ""),
        topo_status=_parse_number(fields.get("topo_status", "")),
        topo_wrong=tuple(many.get("topo_wrong", ())),
        topo_grub=fields.get("topo_grub", ""),
        topo_started="topo_started" in fields,
    )


# GPUs and HCAs, and the bridges above them.
# /sys/kernel/security/lockdown marks the mode in force: `none [integrity] confidentiality`.
PCIE = Probe(
    "pcie",
    f"""{onhost.READER}{systemd.build_script("gpuprov-pcie.service", onhost.CONFIG)}"""
    f"""{ROOTS}for f in $(roots irqbalance); do echo "irqbalance|$(tr '\\0' ' ' <"$f/cmdline")"; done
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
