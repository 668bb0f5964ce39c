"""AWS's EFA on a host: the driver of each kernel and in memory, libfabric's own view, the plugin for NCCL, and
conflicts."""

import re

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host import environment


class EfaKernel(msgspec.Struct, frozen=True, kw_only=True):
    """The efa module of an installed kernel; `path` is empty for none. AWS's own driver has a version, the kernel's has
    none."""

    release: str
    running: bool
    path: str = ""
    version: str = ""


class Efa(msgspec.Struct, frozen=True, kw_only=True):
    """`product`: the instance type, as DMI has it. `functions`: PCI functions of EFA with the driver that each is bound
    to.

    `loaded`, `version`: the module in memory, and its version. `stale`: another build than on disk; the kernel's own
    module has no version, and on Debian no srcversion either. `p2p`: the provider of GPU memory that the driver shows,
    by device; without an entry if the driver shows none. `installer`: the version that the installer recorded,
    `record`: gpuprov's record of it. `domains`: from fi_info, None without fi_info; `complaint`: its last line.
    `plugins`: paths of libnccl-net*.so in the order in which the dynamic linker finds them. `packages`: libfabric's and
    the plugin's versions. `environment`: (file, name, value) of FI_ and RDMAV_ in the login environment. `core`: the
    path of ib_core. `users`: processes that have a device open.
    """

    product: str = ""
    functions: tuple[tuple[str, str], ...] = ()
    loaded: bool = False
    version: str = ""
    stale: bool = False
    kernels: tuple[EfaKernel, ...] = ()
    p2p: dict[str, str] = {}
    installer: str = ""
    record: str = ""
    domains: tuple[str, ...] | None = None
    complaint: str = ""
    plugins: tuple[str, ...] = ()
    packages: dict[str, str] = {}
    environment: tuple[tuple[str, str, str], ...] = ()
    core: str = ""
    users: tuple[tuple[str, str], ...] = ()

    @property
    def running(self) -> EfaKernel | None:
        """The running kernel."""
        return next((kernel for kernel in self.kernels if kernel.running), None)


def domains(text: str) -> tuple[str, ...]:
    """Parse the RDMA devices in fi_info's output; each has a domain for each fabric (efa, efa-direct):
    `rdmap85s0-rdm`."""
    # `fi_info -p efa` of a p4d.24xlarge (tests/real/p4d-fi-info):
    #     provider: efa
    #         fabric: EFA-fe80::10d8:baff:fe00:0
    #         domain: rdmap16s27-rdm
    #         version: 111.20
    names = re.findall(r"^\s*domain:\s*(\S+?)(?:-rdm|-dgrm)?\s*$", text, re.MULTILINE)
    return tuple(dict.fromkeys(names))


def parse(output: Output) -> Efa:
    many = output.cells()

    def read_last(kind: str) -> str:
        return "|".join(many.get(kind, [[""]])[-1]).strip()

    listing = "\n".join("|".join(cells) for cells in many.get("fi", ()))
    environment = []
    for cells in many.get("env", ()):
        name, _, value = "|".join(cells[1:]).partition("=")
        environment.append((cells[0], name, value.strip().strip("\"'")))
    return Efa(
        product=read_last("product"),
        functions=tuple((cells[0], cells[1]) for cells in many.get("function", ()) if len(cells) > 1),
        loaded="loaded" in many,
        version=read_last("loaded"),
        stale="stale" in many,
        kernels=tuple(
            EfaKernel(release=cells[0], running=cells[1] == "1", path=cells[2], version=cells[3])
            for cells in many.get("kernel", ())
            if len(cells) > 3
        ),
        p2p={cells[0]: "|".join(cells[1:]).strip() for cells in many.get("p2p", ())},
        installer=read_last("installer"),
        record=read_last("record"),
        domains=domains(listing) if "found" in many else None,
        complaint="" if domains(listing) else " ".join(listing.split())[-200:],
        plugins=tuple(dict.fromkeys(cells[0] for cells in many.get("plugin", ()))),
        packages={cells[0]: cells[1] for cells in many.get("package", ()) if len(cells) > 1 and cells[1]},
        environment=tuple(environment),
        core=read_last("core"),
        users=tuple((cells[0], cells[1]) for cells in many.get("user", ()) if len(cells) > 1),
    )


SCRIPT = r"""PATH=$PATH:/usr/sbin:/sbin
echo "product|$(cat /sys/class/dmi/id/product_name 2>/dev/null)"
for d in /sys/bus/pci/devices/*; do
  read -r v < "$d/vendor" 2>/dev/null && [ "$v" = 0x1d0f ] && read -r v < "$d/device" || continue
  case $v in 0xefa[0-9a-f]) ;; *) continue ;; esac
  b=; [ -L "$d/driver" ] && b=$(readlink "$d/driver") && b=${b##*/}
  echo "function|${d##*/}|$b"
done
r=$(uname -r); [ -d "/lib/modules/$r" ] || r=$(ls /lib/modules 2>/dev/null | sort -V | tail -n 1)
if [ -d /sys/module/efa ]; then
  v=$(cat /sys/module/efa/version 2>/dev/null); echo "loaded|$v"
  v="$v $(cat /sys/module/efa/srcversion 2>/dev/null)"
  w="$(modinfo -k "$r" -F version efa 2>/dev/null) $(modinfo -k "$r" -F srcversion efa 2>/dev/null)"
  [ -n "$(modinfo -k "$r" -n efa 2>/dev/null)" ] && [ "$v" != "$w" ] && echo 'stale|'
fi
j=''; for d in /lib/modules/*; do [ -e "/boot/vmlinuz-${d##*/}" ] && j=1; done
for d in /lib/modules/*; do
  [ -d "$d" ] || continue
  k=${d##*/} m=0
  [ "$k" = "$r" ] && m=1
  [ -n "$j" ] && [ $m = 0 ] && [ ! -e "/boot/vmlinuz-$k" ] && continue
  echo "kernel|$k|$m|$(modinfo -k "$k" -n efa 2>/dev/null)|$(modinfo -k "$k" -F version efa 2>/dev/null)"
done
for d in /sys/class/infiniband/*; do
  [ -L "$d/device/driver" ] || continue
  b=$(readlink "$d/device/driver"); [ "${b##*/}" = efa ] || continue
  for f in p2p gdr; do [ -f "$d/device/$f" ] && echo "p2p|${d##*/}|$(cat "$d/device/$f" 2>/dev/null)" && break; done
  for v in /sys/class/infiniband_verbs/uverbs*; do
    [ "$(cat "$v/ibdev" 2>/dev/null)" = "${d##*/}" ] || continue
    for p in $(find /proc/[0-9]*/fd -lname "/dev/infiniband/${v##*/}" 2>/dev/null |
      sed 's#/fd/.*##; s#.*/##' | sort -un | head -n 20); do
      echo "user|$p|$(head -n 1 "/proc/$p/comm" 2>/dev/null)"
    done
  done
done
sed -n 's/^# *EFA installer version: */installer|/p' /opt/amazon/efa_installed_packages 2>/dev/null
[ -f /var/lib/gpuprov/efa.json ] && echo "record|$(tr -d '\n' < /var/lib/gpuprov/efa.json)"
b=/opt/amazon/efa/bin/fi_info; [ -x $b ] || b=$(command -v fi_info)
[ -n "$b" ] && { echo 'found|'; timeout 30 "$b" -p efa -t FI_EP_RDM 2>&1 </dev/null | head -n 2000 | sed 's/^/fi|/'; }
ldconfig -p 2>/dev/null | sed -n 's/^[[:space:]]*libnccl-net[^ ]*\.so[ .0-9].*=> /plugin|/p'
dpkg-query -W -f 'package|${Package}|${Version}\n' 'libnccl-ofi*' 'libfabric*' efa 2>/dev/null ||
  rpm -qa --qf 'package|%{NAME}|%{VERSION}-%{RELEASE}\n' 'libnccl-ofi*' 'libfabric*' efa 2>/dev/null
ENVIRONMENT
echo "core|$(modinfo -k "$r" -n ib_core 2>/dev/null)"
true""".replace("ENVIRONMENT", environment.build_environment_script("env", "FI_|RDMAV_"))
# EFA, by its PCI ids 1d0f:efaX and its driver's name:
# https://github.com/amzn/amzn-drivers/tree/master/kernel/linux/efa
EFA = Probe(
    "efa",
    SCRIPT,
    parse,
    "modinfo efa; cat /opt/amazon/efa_installed_packages; fi_info -p efa -t FI_EP_RDM; ldconfig -p | grep libnccl-net",
    speaks=True,
)
