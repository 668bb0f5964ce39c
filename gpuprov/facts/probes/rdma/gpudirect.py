"""GPUDirect RDMA on a host: the peer memory API that each kernel's modules were built against, loaded modules, kernel
messages; and gdrcopy."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host.family import by_family
from gpuprov.facts.probes.host.systemd import UnitState
from gpuprov.facts.probes.software import rpm
from gpuprov.facts.probes.software.packages import PACKAGE_LISTS, build_packages_script, parse_index, parse_packages
from gpuprov.host_code import kernel_lines

# unknown: the module is compressed, and the host has no program to unpack it.
Answer = Literal["yes", "no", "unknown"]


class PeerModule(msgspec.Struct, frozen=True, kw_only=True):
    """A peer memory module on disk."""

    path: str
    version: str = ""
    # Whether it uses ib_register_peer_memory_client: built without OFED it does not, and always answers "Invalid
    # argument".
    symbols: Answer = "unknown"
    # Of that symbol, if the kernel checks symbol versions.
    checksum: str = ""
    parameters: tuple[str, ...] = ()


class KernelState(msgspec.Struct, frozen=True, kw_only=True):
    """One installed kernel. `nvidia`: version of its NVIDIA module, `open`: of the open flavour.

    `core`, `core_exports`: the ib_core that modprobe would load for it, and whether that has peer memory. `uverbs`:
    whether its ib_uverbs supports dma-buf. `options`: kernel options that are set; None if the configuration is
    missing. `symvers`: the file in which a build would find the symbols, `checksum` their checksum in it; both empty if
    there is none. `dkms`: NAME/VERSION of the driver in DKMS's tree that can rebuild its modules. `rebuild`: the reason
    to rebuild its peer module.
    """

    release: str
    bootable: bool = False
    nvidia: str = ""
    open: bool = False
    modules: dict[str, PeerModule] = {}
    core: str = ""
    core_exports: Answer = "no"
    uverbs: Answer = "no"
    options: frozenset[str] | None = None
    symvers: str = ""
    checksum: str = ""
    dkms: str = ""
    rebuild: dict[str, str] = {}


class Gpudirect(msgspec.Struct, frozen=True, kw_only=True):
    """`loaded`: use counts of peer modules, ib_core, nvidia. `holders`: the modules that use ib_core. `exported`:
    whether the running kernel has peer memory now. `parameters`: of the loaded nvidia_peermem. `units` by name.
    `starts`: the module that the boot unit loads. `log`: the kernel's lines about peer memory. `ofed`: OFED's version,
    or "yes"."""

    kernels: tuple[KernelState, ...] = ()
    running: str = ""
    loaded: dict[str, int] = {}
    holders: tuple[str, ...] = ()
    exported: bool = False
    parameters: dict[str, str] = {}
    units: dict[str, UnitState] = {}
    starts: str = ""
    log: tuple[str, ...] = ()
    ofed: str = ""

    def targets(self) -> tuple[KernelState, ...]:
        """The bootable kernels; in a container, which has none, those with headers."""
        return tuple(kernel for kernel in self.kernels if kernel.bootable) or self.kernels


def parse(output: Output) -> Gpudirect:
    rows = output.cells()
    single = {kind: many[0][0] for kind, many in rows.items()}
    kernels = [_build_kernel(cells[0], cells[1] == "1", rows) for cells in rows.get("kernel", [])]
    return Gpudirect(
        kernels=tuple(
            sorted(kernels, key=lambda kernel: [int(number) for number in re.findall(r"\d+", kernel.release)])
        ),
        running=single.get("running", ""),
        loaded={name: int(count) if is_whole(count) else 0 for name, count in rows.get("loaded", [])},
        holders=tuple(name for name in single.get("holders", "").split(",") if name.strip("-")),
        exported="exported" in single,
        parameters={cells[0]: cells[1] for cells in rows.get("parameter", [])},
        units={
            name: UnitState(load=load or "not-found", active=active or "inactive", file=file)
            for name, load, active, file in rows.get("unit", [])
        },
        starts=single.get("starts", ""),
        log=tuple(
            kernel_lines.list_messages(("|".join(cells) for cells in rows.get("log", [])), kernel_lines.PEER_MEMORY)
        ),
        ofed=single.get("ofed", ""),
    )


def _build_kernel(release: str, bootable: bool, rows: dict[str, list[list[str]]]) -> KernelState:
    def select_rows(kind: str) -> list[list[str]]:
        return [cells[1:] for cells in rows.get(kind, []) if cells[0] == release]

    nvidia, core = (select_rows("nvidia") or [["", ""]])[0], (select_rows("core") or [["", "no"]])[0]
    symvers, options = (select_rows("symvers") or [["", ""]])[0], select_rows("config")
    return KernelState(
        release=release,
        bootable=bootable,
        nvidia=nvidia[0],
        open="GPL" in nvidia[1],
        modules={
            name: PeerModule(
                path=path,
                version=version,
                symbols=_parse_answer(symbols),
                checksum=checksum,
                parameters=tuple(taken.split()),
            )
            for name, path, version, symbols, checksum, taken in select_rows("module")
        },
        core=core[0],
        core_exports=_parse_answer(core[1]),
        uverbs=_parse_answer((select_rows("uverbs") or [["no"]])[0][0]),
        options=frozenset(cells[0] for cells in options if cells[0]) if options else None,
        symvers=symvers[0],
        checksum=symvers[1],
        dkms=(select_rows("dkms") or [[""]])[0][0],
        rebuild={cells[0]: cells[1] for cells in select_rows("rebuild")},
    )


def _parse_answer(text: str) -> Answer:
    return "yes" if text == "yes" else "no" if text == "no" else "unknown"


# A name that a module uses or exports stands in its string table, so the (unpacked) file has it; `__ksymtab_NAME` is an
# export.
_SCRIPT = r"""s=ib_register_peer_memory_client
has() {
  case $2 in *.xz) c=xzcat ;; *.zst) c=zstdcat ;; *.gz) c=zcat ;; *) c=cat ;; esac
  command -v $c >/dev/null 2>&1 || { echo unknown; return; }
  if $c "$2" 2>/dev/null | grep -aqF "$1"; then echo yes; else echo no; fi
}
a=$(uname -m)
for d in /lib/modules/*; do
  k=${d##*/} b=0 h=0
  [ -e "/boot/vmlinuz-$k" ] && b=1
  [ -e "$d/build/Makefile" ] && h=1
  [ $b$h = 00 ] && continue
  echo "kernel|$k|$b"
  for m in nvidia-current nvidia-current-open nvidia; do
    v=$(modinfo -k "$k" -F version $m 2>/dev/null) && echo "nvidia|$k|$v|$(modinfo -k "$k" -F license $m)" && break
  done
  f='' x='' g=''
  for f in "$d/build/Module.symvers" /usr/src/ofa_kernel/$a/$k/Module.symvers /usr/src/ofa_kernel/$k/Module.symvers \
    /usr/src/ofa_kernel/default/Module.symvers /var/lib/dkms/mlnx-ofed-kernel/*/build/Module.symvers; do
    [ -f "$f" ] || continue
    x=$(awk -v s=$s '$2 == s && /EXPORT_SYMBOL/ { c = $1 } $2 == "ib_unregister_peer_memory_client" && /EXPORT_SYMBOL/ { u = 1 }
      END { if (c && u) print c }' "$f")
    [ -n "$x" ] && echo "symvers|$k|$f|$x" && break
  done
  i=$(modinfo -k "$k" -n ib_core 2>/dev/null); e=no
  case $i in
    /*) e=$(has __ksymtab_$s "$i") ;;
    ?*) case $f in "$d"/*) [ -n "$x" ] && e=yes ;; esac ;;
  esac
  echo "core|$k|$i|$e"
  u=$(modinfo -k "$k" -n ib_uverbs 2>/dev/null)
  case $u in /*) u=$(has __ksymtab_ib_umem_dmabuf_get "$u") ;; ?*) u=unknown ;; *) u=no ;; esac
  echo "uverbs|$k|$u"
  for m in nvidia-current-peermem nvidia-current-open-peermem nvidia-peermem nv_peer_mem; do
    n=$(modinfo -k "$k" -n $m 2>/dev/null)
    [ -f "$n" ] || continue
    if [ $m = nv_peer_mem ]; then p=$m; elif [ -z "$g" ]; then p=nvidia_peermem g=1; else continue; fi
    y=$(has $s "$n")
    if [ "$y" = unknown ]; then modinfo -F depends "$n" 2>/dev/null | grep -qw ib_core && y=yes; fi
    z=$(modprobe --dump-modversions "$n" 2>/dev/null | awk -v s=$s '$2 == s { print $1 }')
    t=$(modinfo -F parm "$n" 2>/dev/null | sed 's/:.*//' | tr '\n' ' ')
    echo "module|$k|$p|$n|$(modinfo -F version "$n" 2>/dev/null)|$y|$z|$t"
    if [ "$y" = no ] && [ -n "$x" ]; then echo "rebuild|$k|$p|it was built before OFED, without peer memory"
    elif [ -n "$z" ] && [ -n "$x" ] && [ $(($z)) != $(($x)) ]; then
      case $f in /usr/src/ofa_kernel/default/*|/var/*) ;; *) echo "rebuild|$k|$p|it was built against another OFED" ;; esac
    fi
    [ $p = nvidia_peermem ] && for q in /var/lib/dkms/*/*/"$k"/*/module/nvidia*peermem.ko*; do
      [ -f "$q" ] && q=${q#/var/lib/dkms/} && echo "dkms|$k|${q%%/"$k"/*}" && break
    done
  done
  for c in /boot/config-$k $d/config $d/build/.config; do
    [ -f "$c" ] || continue
    echo "config|$k|"
    sed -n "s/^\(CONFIG_DMA_SHARED_BUFFER\|CONFIG_INFINIBAND_ON_DEMAND_PAGING\|CONFIG_PCI_P2PDMA\)=[ym]/config|$k|\1/p" "$c"
    break
  done
done
echo "running|$(uname -r)"
awk '$1 == "nvidia_peermem" || $1 == "nv_peer_mem" || $1 == "ib_core" || $1 == "nvidia" { print "loaded|" $1 "|" $3 }
  $1 == "ib_core" { print "holders|" $4 }' /proc/modules 2>/dev/null
grep -qm1 " $s\b" /proc/kallsyms 2>/dev/null && echo 'exported|yes'
for n in peerdirect_support persistent_api_support; do
  [ -r /sys/module/nvidia_peermem/parameters/$n ] && echo "parameter|$n|$(cat /sys/module/nvidia_peermem/parameters/$n)"
done
for n in gpuprov-gpudirect openibd; do
  v=$(systemctl show -p LoadState $n.service 2>/dev/null | sed -n 's/^LoadState=//p')
  [ -n "$v" ] || continue
  [ "$v" = loaded ] || { echo "unit|$n.service|$v||"; continue; }
  echo "unit|$n.service|$v|$(systemctl is-active $n.service)|$(systemctl is-enabled $n.service 2>/dev/null | tail -n 1)"
done
sed -n 's/^ExecStart=.*modprobe \([a-z_]*\)$/starts|\1/p' /etc/systemd/system/gpuprov-gpudirect.service 2>/dev/null
{ journalctl -k -b -q --no-pager -o short-unix 2>/dev/null || dmesg 2>/dev/null; } | @FILTER@ | tail -n 12 |
  sed 's/^/log|/'
o=$(ofed_info -n 2>/dev/null); [ -z "$o" ] && [ -d /usr/src/ofa_kernel ] && o=yes
[ -n "$o" ] && echo "ofed|$o"
true""".replace("@FILTER@", kernel_lines.make_filter(kernel_lines.PEER_MEMORY))
# The kernels' modules and the API that they were built against; loaded modules, and kernel messages.
GPUDIRECT = Probe(
    "gpudirect",
    _SCRIPT,
    parse,
    "modinfo nvidia-peermem; nm FILE | grep ib_register; lsmod | grep ib_core; journalctl -k | grep peermem",
    speaks=True,
)


class Gdrcopy(msgspec.Struct, frozen=True, kw_only=True):
    """`kernels`: by release, the version of gdrdrv on disk for it, empty if none. `node`: major number and mode of
    /dev/gdrdrv ("237 666"), empty without one; `major`: the number that the kernel gave the module."""

    kernels: dict[str, str] = {}
    loaded: bool = False
    major: str = ""
    node: str = ""


def parse_gdrcopy(output: Output) -> Gdrcopy:
    rows = output.rows()
    single = {kind: values[-1].strip() for kind, values in rows.items()}
    return Gdrcopy(
        kernels={release: version for release, _, version in (line.partition("|") for line in rows.get("kernel", ()))},
        loaded="loaded" in single,
        major=single.get("major", ""),
        node=single.get("node", ""),
    )


NAMES = ("gdrcopy", "gdrcopy-kmod", "gdrcopy-tests", "gdrdrv-dkms", "libgdrapi")
PACKAGES = Probe(
    "gdrcopy_packages",
    build_packages_script("'gdrcopy*' gdrdrv-dkms libgdrapi", "gdrcopy.*"),
    parse_packages,
    "dpkg -l 'gdrcopy*' gdrdrv-dkms libgdrapi; rpm -qa 'gdrcopy*'",
    blank=PACKAGE_LISTS,
)
# Offered versions of gdrcopy's packages.
INDEX = Probe(
    "gdrcopy_index",
    by_family(
        f"apt-cache madison {' '.join(NAMES)} 2>/dev/null; true",
        rpm.search("gdrcopy", "gdrcopy-kmod"),
        "true",
    ),
    parse_index,
    "apt-cache madison gdrdrv-dkms libgdrapi; dnf -C repoquery gdrcopy gdrcopy-kmod",
)
# /proc/devices: `509 gdrdrv`. Its node (https://github.com/NVIDIA/gdrcopy/issues/278):
#     crw-rw-rw- 1 root root 242, 0 Sep 26 01:26 /dev/gdrdrv
GDRCOPY = Probe(
    "gdrcopy",
    r"""for d in /lib/modules/*; do
  k=${d##*/}
  [ -e "/boot/vmlinuz-$k" ] || [ -e "$d/build/Makefile" ] || continue
  f=$(modinfo -k "$k" -n gdrdrv 2>/dev/null) || { echo "kernel|$k|"; continue; }
  v=$(modinfo -F version "$f" 2>/dev/null)
  echo "kernel|$k|${v:-built}"
done
[ -d /sys/module/gdrdrv ] && echo 'loaded|'
awk '$2 == "gdrdrv" { print "major|" $1 }' /proc/devices
[ -c /dev/gdrdrv ] && echo "node|$((0x$(stat -c %t /dev/gdrdrv))) $(stat -c %a /dev/gdrdrv)"
true""",
    parse_gdrcopy,
    "modinfo gdrdrv; ls -l /dev/gdrdrv; grep gdrdrv /proc/devices",
)
