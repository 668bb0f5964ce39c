"""Alibaba's eRDMA on a host: the driver of each kernel, the loaded module, modprobe's options, the MTU, and
conflicts."""

import msgspec

from gpuprov.core.safe_parse import parse_numbers
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host import systemd
from gpuprov.facts.probes.host.systemd import SetsAtBoot
from gpuprov.facts.probes.kernel.initramfs import INITRAMFS
from gpuprov.facts.probes.software.packages import PACKAGE_LISTS, build_packages_script, parse_packages
from gpuprov.host_code.at_boot import erdma_state as state
from gpuprov.host_code.at_boot.erdma_state import Pair


class ErdmaKernel(msgspec.Struct, frozen=True, kw_only=True):
    """The erdma module of an installed kernel."""

    release: str
    # The running kernel; in a container, which has no kernel of its own, the newest.
    running: bool
    headers: bool
    # Empty for none.
    path: str = ""
    # The names that it accepts.
    parameters: tuple[str, ...] = ()
    # It was built with MAD, which compat mode's connection management needs.
    mad: bool = False

    @property
    def vendor(self) -> bool:
        """True for Alibaba's driver: the kernel's own has no parameters."""
        return "compat_mode" in self.parameters


class Erdma(SetsAtBoot, frozen=True, kw_only=True):
    """`functions`: PCI functions of eRDMA with the driver that each is bound to. `parameters`: of the loaded module.

    `stale`: another build than on disk is loaded. `options`: modprobe's options for the module, the last value of each.
    `files`: lines about it in modprobe.d, by file. `vendor_file`: /etc/modprobe.d/erdma.conf, the driver package's,
    exists. `users`: processes that hold a device: (pid, name). `holders`: modules that use it. `listening`: TCP ports.
    `ephemeral`, `reserved`: ip_local_port_range, ip_local_reserved_ports. `ofed`: OFED's folder with Module.symvers.
    `core`: the path of ib_core. `lacks`: the OFED symbol that erdma needs and no module of that kernel has.
    `registered`: dkms status. `record`: SHA-256 of the installer that gpuprov ran, and its mode. `packages`: installed
    RDMA packages. `eadm`: output of `eadm ver`, None without eadm.
    """

    kernels: tuple[ErdmaKernel, ...] = ()
    functions: tuple[tuple[str, str], ...] = ()
    loaded: bool = False
    stale: bool = False
    parameters: dict[str, str] = {}
    options: dict[str, str] = {}
    files: tuple[tuple[str, str], ...] = ()
    vendor_file: bool = False
    softdep: bool = False
    vendor_softdep: bool = False
    at_boot: bool = False
    pairs: tuple[Pair, ...] = ()
    users: tuple[tuple[str, str], ...] = ()
    holders: tuple[str, ...] = ()
    listening: frozenset[int] = frozenset()
    ephemeral: tuple[int, int] = (32768, 60999)
    reserved: frozenset[int] = frozenset()
    ofed: str = ""
    core: str = ""
    lacks: bool = False
    registered: tuple[str, ...] = ()
    eadm: str | None = None
    record: str = ""
    packages: frozenset[str] = frozenset()

    @property
    def onhost(self) -> state.State:
        """The state in the form of the program at boot."""
        return state.State(
            self.functions, self.loaded, self.stale, self.parameters, self.pairs, self.users, self.holders
        )

    @property
    def running(self) -> ErdmaKernel | None:
        """The running kernel."""
        return next((kernel for kernel in self.kernels if kernel.running), None)


def parse(output: Output) -> Erdma:
    many = output.cells()

    def read_last(kind: str) -> str:
        return "|".join(many.get(kind, [[""]])[-1]).strip()

    options: dict[str, str] = {}
    for cells in many.get("option", ()):
        pairs = (word.partition("=") for word in "|".join(cells).split())
        options |= {name: value for name, _, value in pairs}
    first, _, last = read_last("ephemeral").partition(" ")
    return Erdma(
        kernels=tuple(
            ErdmaKernel(
                release=cells[0],
                running=cells[1] == "1",
                headers=cells[2] == "1",
                path=cells[3],
                parameters=tuple(cells[4].split()),
                mad=cells[5] == "1",
            )
            for cells in many.get("kernel", ())
        ),
        **vars(state.parse(output.text)),
        options=options,
        files=tuple((cells[0], "|".join(cells[1:])) for cells in many.get("file", ())),
        vendor_file="vendor" in many,
        softdep="softdep" in many,
        vendor_softdep="vendor-softdep" in many,
        at_boot="boot" in many,
        listening=frozenset(int(cells[0]) for cells in many.get("tcp", ())),
        ephemeral=(int(first or 32768), int(last or 60999)),
        reserved=parse_numbers(read_last("reserved")),
        ofed=read_last("ofed"),
        core=read_last("core"),
        lacks="lacks" in many,
        registered=tuple("|".join(cells) for cells in many.get("dkms", ())),
        eadm=read_last("eadm") if "eadm" in many else None,
        record=read_last("record"),
        packages=frozenset(cells[0] for cells in many.get("package", ()) if cells[-1] == "installed"),
        **systemd.parse(output.rows()),
    )


SCRIPT = (
    state.READER
    + r"""j=''; for d in /lib/modules/*; do [ -e "/boot/vmlinuz-${d##*/}" ] && j=1; done
for d in /lib/modules/*; do
  k=${d##*/} b=0 h=0 m=0 a=0
  [ -e "/boot/vmlinuz-$k" ] && b=1
  [ -e "$d/build/Makefile" ] && h=1
  case $j$b$h in 100 | 101 | 00) [ "$k" = "$r" ] || continue ;; esac
  [ "$k" = "$r" ] && m=1
  p=$(modinfo -k "$k" -n erdma 2>/dev/null)
  [ -n "$p" ] && modinfo -k "$k" -F description erdma 2>/dev/null | grep -q 'Soft RDMA transport' && a=1
  n=$(modinfo -k "$k" -F parm erdma 2>/dev/null | cut -d: -f1)
  echo "kernel|$k|$m|$h|$p|$(echo $n)|$a"
done
modprobe -c 2>/dev/null | sed -n 's/^options erdma /option|/p; s/^softdep erdma pre:.*ib_uverbs.*/softdep|/p'
for f in /etc/modprobe.d/*.conf /run/modprobe.d/*.conf /usr/local/lib/modprobe.d/*.conf /lib/modprobe.d/*.conf; do
  [ -f "$f" ] && sed -n "s#^[[:space:]]*\(options[[:space:]]\{1,\}erdma[[:space:]].*\)#file|$f|\1#p" "$f"
done
[ -f /etc/modprobe.d/erdma.conf ] && echo 'vendor|'
grep -qs '^[[:space:]]*softdep[[:space:]]\{1,\}erdma[[:space:]].*ib_uverbs' /etc/modprobe.d/erdma.conf &&
  echo 'vendor-softdep|'
grep -qsx 'erdma[[:space:]]*' /etc/modules-load.d/*.conf /usr/lib/modules-load.d/*.conf && echo 'boot|'
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" { n = split($2, p, ":"); print p[n] }' | sort -u |
  while read -r p; do echo "tcp|$((0x$p))"; done
echo "ephemeral|$(tr '\t' ' ' < /proc/sys/net/ipv4/ip_local_port_range)"
echo "reserved|$(cat /proc/sys/net/ipv4/ip_local_reserved_ports 2>/dev/null)"
for f in "/usr/src/ofa_kernel/$r" /usr/src/ofa_kernel/default; do [ -e "$f/Module.symvers" ] && echo "ofed|$f" &&
  break; done
echo "core|$(modinfo -k "$r" -n ib_core 2>/dev/null)"
p=$(modinfo -k "$r" -n erdma 2>/dev/null)
case $p in *.xz) c='xz -dc' ;; *.zst) c='zstd -dcq' ;; *.gz) c='gzip -dc' ;; *) c=cat ;; esac
[ -f "$p" ] && $c "$p" 2>/dev/null | grep -qa ib_umem_get_peer &&
  ! grep -qs 'symbol:ib_umem_get_peer ' "/lib/modules/$r/modules.symbols" && echo 'lacks|'
[ -d /var/lib/dkms/erdma ] && dkms status 2>/dev/null | sed -n 's/^erdma[,/].*/dkms|&/p'
command -v eadm >/dev/null && echo "eadm|$(timeout 5 eadm ver 2>&1 | head -n 1 | tr -d '\r')"
[ -f /var/lib/gpuprov/erdma-installer ] && echo "record|$(cat /var/lib/gpuprov/erdma-installer)"
dpkg-query -W -f 'package|${Package}|${db:Status-Status}\n' '*rdma*' '*ibverbs*' '*ibumad*' 2>/dev/null ||
  rpm -qa --qf 'package|%{NAME}|installed\n' '*rdma*' '*ibverbs*' '*ibumad*' 2>/dev/null
"""
    + systemd.build_script("gpuprov-erdma.service", "/etc/gpuprov/erdma.conf")
    + "true"
)
ERDMA = Probe(
    "erdma",
    SCRIPT,
    parse,
    "modinfo erdma; grep -r . /sys/module/erdma/parameters; modprobe -c | grep erdma; systemctl status gpuprov-erdma",
    speaks=True,
)
# Installed packages among those that the driver's build needs, by name.
BUILD = Probe(
    "erdma_build",
    build_packages_script(
        "debhelper autotools-dev dkms libnl-3-dev libnl-route-3-dev cmake 'linux-headers-*'",
        r"gcc-c\+\+|dkms|cmake|kernel-devel.*",
    ),
    parse_packages,
    "dpkg -l debhelper autotools-dev dkms cmake 'libnl-*-dev'; rpm -q gcc-c++ dkms cmake",
    blank=PACKAGE_LISTS,
)
# Each initramfs, on hosts with gpuprov's eRDMA settings: whether it contains erdma, and gpuprov's options for it.
IMAGES = Probe(
    "erdma_initramfs",
    "if [ -e /etc/gpuprov/erdma.conf ]; then\n"
    + INITRAMFS.script.replace("(nouveau|nova[-_]core|nova[-_]drm|nvidia[^/]*)", "erdma").replace(
        "modprobe.d/gpuprov.conf", "modprobe.d/gpuprov-erdma.conf"
    )
    + "\nfi\ntrue",
    INITRAMFS.parse,
    "lsinitramfs /boot/initrd.img-$(uname -r) | grep erdma; lsinitrd /boot/initramfs-$(uname -r).img | grep erdma",
)
