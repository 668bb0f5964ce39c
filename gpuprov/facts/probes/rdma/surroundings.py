"""The surroundings of a host's RDMA devices: packages, modules, network interfaces, soft devices' unit, limits of
services."""

from typing import Literal

import msgspec

from gpuprov.catalog import rdma
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host import systemd
from gpuprov.facts.probes.host.system import ROOTS
from gpuprov.facts.probes.host.systemd import SetsAtBoot
from gpuprov.facts.probes.software.packages import PACKAGE_LISTS, build_packages_script, parse_packages
from gpuprov.host_code.at_boot import network
from gpuprov.host_code.at_boot.devices import DATA_DIRECT
from gpuprov.host_code.at_boot.network import Netdev

# The same as in the catalogue, which tests compare.
MODULES = ("ib_uverbs", "rdma_ucm", "ib_umad", "mlx5_ib", "ib_ipoib", "iw_cm", "rdma_rxe", "siw", "erdma")
SERVICES = ("containerd.service", "docker.service", "crio.service", "kubelet.service", "slurmd.service")
DEBS = "rdma-core ibverbs-providers ibverbs-utils rdmacm-utils iproute2 infiniband-diags opensm"
RPMS = "rdma-core|libibverbs|libibverbs-utils|librdmacm-utils|iproute|infiniband-diags|opensm|iwpmd"
SOFT = rdma.SOFT_UNIT
CONFIG = rdma.SOFT_CONFIG


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """Locked-memory limit of a running service (`unlimited` or bytes): of its process now, and of its unit at the next
    start."""

    unit: str
    now: str
    unit_limit: str


class Silent(msgspec.Struct, frozen=True, kw_only=True):
    """An NVIDIA network function that its driver did not start, or that failed since: its driver is mlx5_core or none,
    and it has no RDMA device, netdev or mlx5_core.rdma. Excluded are SR-IOV functions, which may belong to a virtual
    machine, NVLink bridges, functions for Data Direct, and devices of mlx4 (ConnectX-3 and older:
    drivers/net/ethernet/mellanox/mlx4/main.c), for which new kernels have no driver.

    Both failures of an adapter, and the signs of a healthy one without an RDMA device:
    https://github.com/scitix/sichek/pull/118
    """

    address: str
    identifier: str
    infiniband: bool


class RdmaHost(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings."""

    # `loaded`, `there` (modprobe would find it) or `absent`.
    modules: dict[str, Literal["loaded", "there", "absent"]] = {}
    netdevs: tuple[Netdev, ...] = ()
    # Its network interface.
    default_route: str = ""
    # Programs that hold UDP port 4791; `kernel` for a socket of the kernel, which has no program.
    port_users: tuple[str, ...] = ()
    # Processes of opensm.
    managers: int = 0
    # Ports through which user space may send management datagrams.
    umad: int = 0
    soft: SetsAtBoot = SetsAtBoot()
    daemons: tuple[Daemon, ...] = ()
    silent: tuple[Silent, ...] = ()
    # Root on the host cannot raise a limit of a running process: a container without CAP_SYS_RESOURCE, or in a user
    # namespace (man 2 prlimit).
    bound: bool = False

    def netdev(self, name: str) -> Netdev | None:
        return network.find_netdev(name, self.netdevs)


def parse(output: Output) -> RdmaHost:
    many = output.cells()

    def first(kind: str) -> str:
        return many.get(kind, [[""]])[0][0]

    rows = many.get("unit", [])
    return RdmaHost(
        modules={cells[0]: cells[1] for cells in many.get("module", [])},  # type: ignore[misc]
        **network.parse(output.text)._asdict(),
        managers=int(first("managers") or 0),
        umad=int(first("umad") or 0),
        soft=SetsAtBoot(**systemd.parse(output.rows())),
        bound=first("bound") == "yes",
        daemons=tuple(
            Daemon(unit=name, now=now, unit_limit=limit)
            for name, _, _, _, now, limit in rows
            if now and name in SERVICES
        ),
        silent=tuple(
            Silent(address=address, identifier=f"15b3:{device[2:]}", infiniband=kind.startswith("0x0207"))
            for address, device, kind in many.get("silent", [])
        ),
    )


HOST = Probe(
    "rdma_host",
    rf"""for t in awk grep sed uname; do command -v $t >/dev/null || {{ echo "$t: not found" >&2; exit 1; }}; done
k=/lib/modules/$(uname -r)
t=$(sed -n 's#^[^:]*/\([^/:]*\)\.ko.*#\1#p' $k/modules.dep $k/modules.builtin 2>/dev/null |
  grep -xE '{"|".join(MODULES)}' | tr '\n' ' ')
for m in {" ".join(MODULES)}; do
  s=absent
  if [ -d /sys/module/$m ]; then s=loaded; else case " $t" in *" $m "*) s=there ;; esac; fi
  echo "module|$m|$s"
done
{ROOTS}{network.READER}echo "managers|$(roots opensm | wc -l)"
set -- /sys/class/infiniband_mad/umad*
[ -e "$1" ] && echo "umad|$#"
systemctl show -p Id -p LoadState -p ActiveState -p UnitFileState -p MainPID -p LimitMEMLOCK \
  {" ".join(SERVICES)} 2>/dev/null | awk -F= '
    function out() {{ if (v["Id"]) printf "unit|%s|%s|%s|%s|%s|%s\n", v["Id"], v["LoadState"], v["ActiveState"], v["UnitFileState"],
      v["MainPID"], v["LimitMEMLOCK"]; split("", v) }}
    NF < 2 {{ out(); next }} {{ v[$1] = $2 }} END {{ out() }}' | while IFS='|' read -r z u l a f p m; do
  n=''; [ "${{p:-0}}" -gt 0 ] && n=$(sed -n 's/^Max locked memory  *\([^ ]*\).*/\1/p' /proc/$p/limits 2>/dev/null)
  echo "$z|$u|$l|$a|$f|$n|$m"
done
c=$(sed -n 's/^CapEff:[^0-9a-f]*//p' /proc/self/status 2>/dev/null)
c=${{c%??????}}; c=${{c#"${{c%?}}"}}; m=$(sed -n 's/^ *0  *0  *4294967295$/all/p' /proc/self/uid_map 2>/dev/null)
[ "$(id -u)" != 0 ] || [ -z "$c" ] || case "$c$m" in [13579bdf]all) ;; *) echo 'bound|yes' ;; esac
for p in /sys/bus/pci/devices/*; do
  v='' q='' i='' w=''
  {{ read -r v <"$p/vendor"; read -r q <"$p/class"; read -r i <"$p/device"; }} 2>/dev/null
  case $v$q$i in *0x100?|*0x1010|*0x6???|*0x{DATA_DIRECT}) continue ;; 0x15b30x0200*|0x15b30x0207*) ;; *) continue ;; esac
  [ -d "$p/infiniband" ] || [ -d "$p/net" ] || [ -e "$p/physfn" ] && continue
  set -- "$p"/mlx5_core.rdma.*
  [ -e "$1" ] || grep -qsa SW_MNG "$p/vpd" && continue
  [ -L "$p/driver" ] && w=$(readlink "$p/driver")
  case $w in ''|*/mlx5_core) echo "silent|${{p##*/}}|$i|$q" ;; esac
done
{systemd.build_script(SOFT, CONFIG)}true""",
    parse,
    "lsmod | grep -E 'rdma|ib_'; rdma link; ip route; systemctl status gpuprov-rdma-soft; ss -uanp 'sport = :4791'",
    speaks=True,
)
PACKAGES = Probe(
    "rdma_packages",
    build_packages_script(DEBS, RPMS),
    parse_packages,
    "dpkg -l rdma-core ibverbs-providers; rpm -q rdma-core libibverbs",
    blank=PACKAGE_LISTS,
)
