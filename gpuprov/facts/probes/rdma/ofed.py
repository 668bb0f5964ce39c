"""DOCA-OFED on a host: its release, its kernel modules for each kernel and in memory, openibd, and conflicts."""

import re

import msgspec

from gpuprov.catalog.rdma.ofed import CONFIG, PIN, PLACE
from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host import systemd
from gpuprov.facts.probes.host.family import by_family
from gpuprov.facts.probes.host.systemd import UnitState
from gpuprov.facts.probes.software import rpm
from gpuprov.facts.probes.software.packages import PACKAGE_LISTS, build_packages_script, parse_index, parse_packages

DKMS = ("mlnx-ofed-kernel", "iser", "isert", "srp")
STORAGE = ("ib_iser", "ib_isert", "ib_srp", "ib_srpt", "nvme_rdma", "nvmet_rdma", "rpcrdma", "xprtrdma", "svcrdma")
PEERS = ("nvidia_peermem", "nv_peer_mem")
CORE = ("ib_core", "mlx5_core", "mlx5_ib")
DEBS = ("doca-ofed", "mlnx-ofed-kernel-dkms", "mlnx-ofed-kernel-utils")
RPMS = ("doca-ofed", "mlnx-ofa_kernel-dkms", "mlnx-ofa_kernel")
# Other vendors' modules that use ib_core, and so must be rebuilt when it is replaced.
OTHERS = ("erdma", "nvidia_fs", "ko2iblnd")


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A module in memory, and the file that modprobe would load for the running kernel. Checksum and version are empty
    if the module has none."""

    name: str
    checksum: str = ""
    version: str = ""
    file: str = ""
    file_checksum: str = ""
    file_version: str = ""

    @property
    def of_ofed(self) -> bool:
        """True if the file is OFED's, and the loaded module came from it."""
        return of_ofed(self.file) and (self.checksum, self.version) == (self.file_checksum, self.file_version)


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """An installed kernel: module files by name, DKMS modules built for it (`builds`: with their versions), and other
    vendors' modules that are older than OFED's ib_core."""

    release: str
    bootable: bool = False
    # Modules can be built for it.
    headers: bool = False
    files: dict[str, str] = {}
    built: tuple[str, ...] = ()
    builds: tuple[tuple[str, str], ...] = ()
    older: tuple[str, ...] = ()


class Ofed(UnitState, frozen=True, kw_only=True):
    """The installation. `info` is the output of `ofed_info -s`, without the colon. `dkms`: versions of OFED's modules
    that DKMS knows, by name; `trees`: each of them, as (name, version).

    The unit is openibd.service; `skipped`: modules that it refused to load at its last start, as not OFED's.
    `settings`: of openib.conf (None: no such file). `busy`: modules that use ib_core and are in use, with their use
    counts. `clients`: programs that have an RDMA device open. `uplink`: the interface of the default route, if
    mlx5_core drives it, or a bond, bridge or VLAN above such an interface; `talks`: such interfaces with their
    established TCP connections. `mft_open`: CUDA repositories of dnf that also offer mft. `dkms_pinned`: apt excludes
    DOCA's dkms. `fetched`: names of doca-host packages that gpuprov has installed, `sources`: files of DOCA's package
    sources.
    """

    info: str = ""
    running: str = ""
    loaded: tuple[Loaded, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    dkms: dict[str, str] = {}
    trees: tuple[tuple[str, str], ...] = ()
    skipped: tuple[str, ...] = ()
    settings: dict[str, str] | None = None
    busy: dict[str, int] = {}
    clients: tuple[str, ...] = ()
    uplink: str = ""
    talks: dict[str, int] = {}
    mft_open: tuple[str, ...] = ()
    dkms_pinned: bool = False
    fetched: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def release(self) -> str:
        """`25.10-1.7.1` of `OFED-internal-25.10-1.7.1` and of `MLNX_OFED_LINUX-24.10-2.1.8.0`; empty if unknown."""
        return release(self.info)

    def targets(self) -> tuple[Kernel, ...]:
        """The bootable kernels; in a container, which has none, those that modules are built for."""
        return tuple(kernel for kernel in self.kernels if kernel.bootable) or self.kernels

    def unbuilt(self) -> list[tuple[str, str, str]]:
        """List modules that DKMS has not built for a kernel with headers: (kernel, name, version), in build order."""
        able = [kernel for kernel in self.targets() if kernel.headers]
        return [(kernel.release, *tree) for kernel in able for tree in self.trees if tree not in kernel.builds]


def release(text: str) -> str:
    """Parse OFED's release in the output of ofed_info (`5.8-1.1.2.1`), or in the version of its kernel package:
    `25.10.OFED.25.10.1.7.1.1-1`."""
    # `ofed_info -s`:
    #     MLNX_OFED_LINUX-5.8-1.1.2.1:
    #     OFED-internal-25.10-1.7.1:
    if match := re.search(r"OFED[A-Za-z_-]*-(\d{1,2}\.\d{1,2}(?:-[\d.]*\d)?)", text):
        return match[1]
    match = re.search(r"OFED\.(\d{1,2}\.\d{1,2})((?:\.\d+)*)", text)
    return f"{match[1]}{'-' if match[2] else ''}{match[2].removeprefix('.')}" if match else ""


def of_ofed(file: str) -> bool:
    """Return whether a module's file is not from the kernel package: it lies in updates/, extra/ or weak-updates/."""
    # /lib/modules/7.0.12-zen1-1-zen/updates/dkms/nvidia.ko.zst
    match = re.search(r"/lib/modules/[^/]+/([^/]+)/", file)
    return bool(match) and match[1] != "kernel" if match else False


def parse(output: Output) -> Ofed:
    rows = output.cells()
    single = {kind: many[-1][0] for kind, many in rows.items()}
    conf = [cells[0].partition("=") for cells in rows.get("setting", [])]
    return Ofed(
        info=single.get("info", "").strip().rstrip(":"),
        running=single.get("running", ""),
        loaded=tuple(
            Loaded(**dict(zip(Loaded.__struct_fields__, cells, strict=True))) for cells in rows.get("loaded", [])
        ),
        kernels=tuple(_build_kernel(cells[0], cells[1] == "1", rows) for cells in rows.get("kernel", [])),
        dkms=dict(cells for cells in rows.get("dkms", []) if len(cells) == 2),
        trees=tuple((cells[0], cells[1]) for cells in rows.get("dkms", []) if len(cells) == 2),
        **systemd.parse_state(output.rows()),
        skipped=tuple(dict.fromkeys(cells[0] for cells in rows.get("skipped", []))),
        settings={key: value.strip('"') for key, _, value in conf} if "config" in rows else None,
        busy={name: int(count) for name, count in rows.get("busy", []) if is_whole(count)},
        clients=tuple(dict.fromkeys(cells[0] for cells in rows.get("client", []))),
        uplink=single.get("uplink", ""),
        talks={name: int(count) for name, count in rows.get("talks", []) if is_whole(count)},
        mft_open=tuple(cells[0] for cells in rows.get("mft", [])),
        dkms_pinned="pinned" in rows,
        fetched=tuple(cells[0] for cells in rows.get("fetched", [])),
        sources=tuple(cells[0] for cells in rows.get("source", [])),
    )


def _build_kernel(name: str, bootable: bool, rows: dict[str, list[list[str]]]) -> Kernel:
    def select_rows(kind: str) -> list[list[str]]:
        return [cells[1:] for cells in rows.get(kind, []) if cells[0] == name]

    return Kernel(
        release=name,
        bootable=bootable,
        headers=[name] in rows.get("headers", []),
        files={cells[0]: cells[1] for cells in select_rows("file")},
        built=tuple(dict.fromkeys(cells[0] for cells in select_rows("built"))),
        builds=tuple((cells[0], cells[1]) for cells in select_rows("built") if len(cells) == 2),
        older=tuple(cells[0] for cells in select_rows("older")),
    )


PACKAGES = Probe(
    "ofed_packages",
    build_packages_script(
        "'doca-ofed*' 'doca-host*' 'mlnx-ofed-kernel-*' mlnx-tools ofed-scripts iser-dkms isert-dkms srp-dkms "
        "rdma-core mft",
        "doca-ofed.*|doca-host.*|mlnx-ofa_kernel.*|mlnx-tools|ofed-scripts|(kmod-)?(iser|isert|srp)(-dkms)?|"
        "rdma-core|mft",
    ),
    parse_packages,
    "dpkg -l 'doca-*' 'mlnx-*'; rpm -qa 'doca-*' 'mlnx-*'; dnf versionlock list",
    blank=PACKAGE_LISTS,
)
# Offered versions of OFED's packages, on a host that should have it.
INDEX = Probe(
    "ofed_index",
    '[ "${stack:-}" = doca-ofed ] || exit 0\n'
    + by_family(f"apt-cache madison {' '.join(DEBS)} 2>/dev/null; true", rpm.search(*RPMS), "true"),
    parse_index,
    f"apt-cache madison {DEBS[0]}; dnf -C repoquery --showduplicates {RPMS[0]}",
    asks=lambda host: {"stack": host.capabilities["rdma"].own_stack},
)
# openibd's message for a module that is not OFED's, and FORCE_MODE: https://github.com/stackhpc/ansible-role-ofed
OFED = Probe(
    "ofed",
    rf"""conf={CONFIG} pin={PIN} place={PLACE}
core='{" ".join(CORE)}' known='{" ".join(DKMS)}' users='{" ".join((*PEERS, *STORAGE, *OTHERS))}' others='{" ".join(OTHERS)}'
"""
    r"""echo "running|$(uname -r)"
command -v ofed_info >/dev/null && echo "info|$(ofed_info -s 2>/dev/null | head -n 1)"
for m in $core; do
  d=/sys/module/$m
  [ -d "$d" ] || continue
  r="loaded|$m|$(cat "$d/srcversion" 2>/dev/null)|$(cat "$d/version" 2>/dev/null)|$(modinfo -n "$m" 2>/dev/null)"
  echo "$r|$(modinfo -F srcversion "$m" 2>/dev/null)|$(modinfo -F version "$m" 2>/dev/null)"
done
for n in $known; do
  for d in /var/lib/dkms/"$n"/*/source; do [ -e "$d" ] && d=${d%/source} && echo "dkms|$n|${d##*/}"; done
done
for d in /lib/modules/*; do
  k=${d##*/} b=0
  [ -e "/boot/vmlinuz-$k" ] && b=1
  [ "$b" = 1 ] || [ -e "$d/build/Makefile" ] || continue
  echo "kernel|$k|$b"
  [ -e "$d/build/Makefile" ] && echo "headers|$k"
  for m in $core; do f=$(modinfo -k "$k" -n "$m" 2>/dev/null) && echo "file|$k|$m|$f"; done
  o=$(modinfo -k "$k" -n ib_core 2>/dev/null)
  for n in $known; do
    for f in /var/lib/dkms/"$n"/*/"$k"/*/module; do
      [ -d "$f" ] && f=${f#/var/lib/dkms/"$n"/} && echo "built|$k|$n|${f%%/*}"
    done
  done
  for m in $others; do
    f=$(modinfo -k "$k" -n "$m" 2>/dev/null) || continue
    case $f in "$d"/kernel/*) continue ;; esac
    [ -n "$o" ] && [ -n "$(find "$o" -newer "$f" 2>/dev/null)" ] && echo "older|$k|$m"
  done
done
u=openibd.service
"""
    + systemd.STATE
    + r"""i=$(systemctl show -p InvocationID openibd.service 2>/dev/null | sed -n 's/^InvocationID=//p')
journalctl -q --no-pager -o cat -b -n 200 -u openibd.service ${i:+"_SYSTEMD_INVOCATION_ID=$i"} 2>/dev/null |
  sed -n 's/.*Module \([a-z0-9_]*\) belong to .* not a part of MLNX_OFED.*/skipped|\1/p' | sort -u
[ -e $conf ] && echo 'config|' && sed -n 's/^[[:space:]]*\([A-Z0-9_]*=[^#[:space:]]*\).*/setting|\1/p' $conf
for m in $users; do
  [ -d "/sys/module/$m" ] && c=$(cat "/sys/module/$m/refcnt" 2>/dev/null) && [ "${c:-0}" -gt 0 ] && echo "busy|$m|$c"
done
above() {
  case $(readlink "/sys/class/net/$1/device/driver" 2>/dev/null) in */mlx5_core) return 0 ;; esac
  for y in /sys/class/net/"$1"/lower_*; do [ -e "$y" ] && above "${y##*/lower_}" && return 0; done
  return 1
}
for i in $({ ip -4 -o route show default; ip -6 -o route show default; } 2>/dev/null |
  grep -o ' dev [^ ]*' | sort -u | cut -d ' ' -f 3); do above "$i" && echo "uplink|$i"; done
for x in /sys/class/net/*; do
  i=${x##*/} c=0
  above "$i" || continue
  for a in $(ip -o addr show dev "$i" 2>/dev/null | sed -n 's#.* inet6* \([^ /]*\).*#\1#p'); do
    case $a in *:*) a="[$a]" ;; esac
    c=$((c + $(ss -Htn state established src "$a" 2>/dev/null | wc -l)))
  done
  [ "$c" = 0 ] || echo "talks|$i|$c"
done
[ -d /dev/infiniband ] && find /proc/[0-9]*/fd -maxdepth 1 -lname '/dev/infiniband/u[vm]*' 2>/dev/null |
  sed 's#/fd/.*##; s#.*/##' | sort -un |
  while read -r p; do echo "client|$(head -n 1 "/proc/$p/comm" 2>/dev/null) ($p)"; done
for f in /etc/yum.repos.d/*.repo; do
  [ -e "$f" ] || continue
  awk -v f="$f" 'function out() { if (cuda && on && !kept) print "mft|" f " [" s "]" }
    /^\[/ { out(); s = substr($0, 2, index($0, "]") - 2); cuda = 0; kept = 0; on = 1 }
    /^(baseurl|metalink|mirrorlist) *=.*cuda/ { cuda = 1 } /^enabled *= *0/ { on = 0 }
    /^exclude(pkgs)? *=.*mft/ { kept = 1 } END { out() }' "$f"
done
for f in "$place"/*.done; do [ -e "$f" ] && f=${f##*/} && echo "fetched|${f%.done}"; done
grep -ls doca /etc/apt/sources.list.d/* /etc/yum.repos.d/* 2>/dev/null | sed 's/^/source|/'
grep -qs '^Package: .*dkms' "$pin" && grep -qs '^Pin-Priority: -' "$pin" && echo 'pinned|'
true""",
    parse,
    "ofed_info -s; modinfo -n ib_core; dkms status; systemctl status openibd; cat /etc/infiniband/openib.conf",
    speaks=True,
)
