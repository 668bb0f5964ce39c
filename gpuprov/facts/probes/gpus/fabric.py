"""The NVSwitch fabric: bridges to its switches, Fabric Manager and its packages, and the state that GPUs report."""

import re

import msgspec

from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.facts.probes.gpus.smi_query import FORGED, OWN, judge
from gpuprov.facts.probes.host.family import by_family
from gpuprov.facts.probes.software import rpm, zypper
from gpuprov.facts.probes.software.packages import PACKAGE_LISTS, build_packages_script, parse_index, parse_packages
from gpuprov.rules.nccl_topology import ADDRESS

NOTHING = ("N/A", "[N/A]", "Not Supported", "")
# Faults by themselves, for drivers without a health summary: nvmlFabricDefs of https://docs.nvidia.com/deploy/nvml-api
BAD = {"Bandwidth": ("Degraded",), "Route Unhealthy": ("True",), "Access Timeout Recovery": ("True",)}
BUS = r"(?:[0-9A-Fa-f]{4})?([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"


class Process(msgspec.Struct, frozen=True):
    """A live process of the daemon's unit."""

    pid: int
    command: str


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon."""

    processes: tuple[Process, ...] = ()
    # The program's own, empty if not installed.
    version: str = ""
    # Of fabricmanager.cfg, which exists if `configured`.
    settings: dict[str, str] = {}
    configured: bool = False
    # The last lines of the unit's present or last run.
    log: tuple[str, ...] = ()
    # Of that whole run about NVSwitches, in the journal or its own log.
    errors: tuple[str, ...] = ()
    # Such a process lives on the host, in the unit or not.
    elsewhere: bool = False

    def process(self, name: str) -> Process | None:
        """Return the live process of the unit that runs this program, or a script of that name."""
        return next((p for p in self.processes if re.search(rf"(^|[ /]){re.escape(name)}( |\Z)", p.command)), None)


class GpuFabric(msgspec.Struct, frozen=True):
    """A GPU's registration with the fabric, as nvidia-smi shows it: a stale value that does not show whether the daemon
    is alive."""

    bus: str
    state: str
    status: str
    # `clique`, `cluster`: the group of GPUs that share memory with it, and the UUID of their rack or board; empty if
    # this nvidia-smi does not report them.
    clique: str = ""
    cluster: str = ""
    # The lines below Health, by name.
    health: dict[str, str] = {}

    def ill(self) -> tuple[str, ...]:
        """Faults in its health, in nvidia-smi's words; empty if there are none, or none are reported."""
        summary = self.health.get("Summary", NOTHING[0])
        if summary in NOTHING:
            return tuple(f"{name}: {value}" for name, value in self.health.items() if value in BAD.get(name, ()))
        more = (f"{name}: {value}" for name, value in self.health.items() if name != "Summary" and value not in NOTHING)
        return () if summary == "Healthy" else (f"Health {summary}", *more)


class NvlinkError(msgspec.Struct, frozen=True, kw_only=True):
    """A fatal error of a GPU's NVLinks in a `rack`, or the driver's word that the rack's IMEX domain is to be recovered
    (`recover`). `number` and `text`: of its Xid, 0 where nvidia-smi says it; `follows`: it began elsewhere."""

    rack: str
    device: str
    number: int = 0
    at: float = 0
    text: str = ""
    follows: bool = False
    recover: bool = False


class SubnetKernel(msgspec.Struct, frozen=True):
    """Kernel support for NVSwitches that are reached through InfiniBand: `modules` that are loaded, built in or on
    disk, and `devices`: InfiniBand devices whose function is a bridge to a switch."""

    modules: frozenset[str] = frozenset()
    devices: tuple[str, ...] = ()


# Fabric Manager about NVSwitches: https://github.com/leptonai/gpud, components/accelerator/nvidia/fabric-manager.
ERRORS = re.compile(
    r"(detected NVSwitch (non-)?fatal error \d+|failed to find the GPU handle \d+ in the multicast team).*"
)


def parse_bridges(output: Output) -> tuple[str, ...]:
    addresses = tuple(output.text.split())
    if strange := [address for address in addresses if not ADDRESS.fullmatch(address)]:
        raise ProbeFailed(f"no PCI address: {strange[0][:80]!r}")
    return addresses


def parse_daemon(output: Output) -> Daemon:
    rows = [line.split("|", 3) for line in output.text.splitlines() if "|" in line]
    processes = []
    settings: dict[str, str] = {}
    version = ""
    log: list[str] = []
    errors: dict[str, None] = {}
    for kind, *cells in rows:
        if kind == "process" and len(cells) == 3:
            process = _parse_process(cells)
            processes += [process] if process else []
        elif kind == "version":
            match = re.search(r"\d{3}(?:\.\d+)+", cells[0])
            version = match[0] if match else ""
        elif kind == "setting":
            key, _, value = "|".join(cells).partition("=")
            settings[key.strip()] = value.partition("#")[0].strip().strip('"')
        elif kind == "log":
            log.append("|".join(cells))
        elif kind == "error" and (error := ERRORS.search("|".join(cells))):
            errors[error[0]] = None  # once, whichever of the two logs has it
    return Daemon(
        processes=tuple(processes),
        version=version,
        settings=settings,
        configured=any(row[0] == "config" for row in rows),
        log=tuple(log),
        errors=tuple(errors),
        elsewhere=any(row[0] == "elsewhere" for row in rows),
    )


def _parse_process(cells: list[str]) -> Process | None:
    """Parse a process; None for a zombie. The fields of /proc/PID/stat after the command's name: state, parent, ..."""
    pid, stat, command = cells
    fields = stat.split()
    if len(fields) < 20 or fields[0] in "ZX":
        return None
    return Process(int(pid), command.strip())


FIELDS = {"State": "state", "Status": "status", "CliqueId": "clique", "ClusterUUID": "cluster"}


def parse_state(output: Output) -> tuple[GpuFabric, ...]:
    gpus: list[GpuFabric] = []
    inside = False
    judge(output.text.splitlines())
    for line in output.text.splitlines():
        if match := re.match(rf"{BUS},\s*(?:state\s+)?([^,]+),\s*(?:status\s+)?([^,]+)\Z", line):
            gpus.append(GpuFabric(match[1].lower(), match[2].strip(), match[3].strip()))
        elif match := re.match(f"GPU {BUS}", line):
            gpus.append(GpuFabric(match[1].lower(), "", ""))
            inside = False
        elif gpus and line.strip() == "Health":
            inside = True
        elif gpus and (match := re.match(r"\s+([^\s:][^:]*):(.*)", line)):
            name, value, last = match[1].rstrip(), match[2].strip(), gpus[-1]
            if name in FIELDS:
                gpus[-1] = msgspec.structs.replace(last, **{FIELDS[name]: value})
            elif inside:
                gpus[-1] = msgspec.structs.replace(last, health={**last.health, name: value})
    return tuple(gpu for gpu in gpus if gpu.state)


def parse_subnet_kernel(output: Output) -> SubnetKernel:
    rows = [line.partition("|") for line in output.text.splitlines()]
    names = {kind: [name for row_kind, _, name in rows if row_kind == kind] for kind in ("module", "device")}
    return SubnetKernel(frozenset(names["module"]), tuple(names["device"]))


# PCI addresses of the ConnectX-7 functions that bridge to NVSwitches of generation 4.
BRIDGES = Probe(
    "fabric_bridges",
    """for d in /sys/bus/pci/devices/*; do
  read -r v < "$d/vendor" 2>/dev/null || continue
  [ "$v" = 0x15b3 ] || continue
  read -r i < "$d/device"
  [ "$i" = 0x1021 ] && grep -qsa SW_MNG "$d/vpd" && echo "${d##*/}"
done; true""",
    parse_bridges,
    "grep -la SW_MNG /sys/bus/pci/devices/*/vpd",
)
# Shell: prints the processes of the unit $u, its program $b and its configuration $c, for `parse_daemon`, and sets
# its invocation $i and main process $m. The name of a user's control group may end like the unit's, and a process's
# command line may contain a line break.
RUNNING = """echo 'looked|'
g= i= m=; set -f; IFS='
'
for x in $(systemctl show -p ControlGroup -p InvocationID -p MainPID $u 2>/dev/null); do case $x in
ControlGroup=*) g=${x#*=} ;; InvocationID=*) i=${x#*=} ;; MainPID=*) m=${x#*=} ;; esac; done
set +f; unset IFS
[ -n "$g" ] && for p in $(grep -ls "^[0-9]*:[^:]*:$g\\$" /proc/[0-9]*/cgroup); do
  p=${p%/cgroup}; s=$(cat "$p/stat" 2>/dev/null) || continue
  echo "process|${p##*/}|${s##*) }|$(tr '\\0\\n' '  ' < "$p/cmdline")"
done
[ -e $b ] && echo "version|$(timeout 10 $b --version </dev/null 2>&1 | head -n 1)"
[ -e $c ] && echo 'config|' && sed -n 's/^[[:space:]]*\\([A-Z][A-Z0-9_]*\\)[[:space:]]*=/setting|\\1=/p' $c
"""
DAEMON = Probe(
    "fabric_manager",
    """u=nvidia-fabricmanager.service; c=/usr/share/nvidia/nvswitch/fabricmanager.cfg; b=/usr/bin/nv-fabricmanager
"""
    + RUNNING
    + """grep -lsx nv-fabricmanage /proc/[0-9]*/comm | head -n 1 | sed 's/^/elsewhere|/'
e='detected NVSwitch (non-)?fatal error [0-9]|failed to find the GPU handle [0-9]+ in the multicast team'
[ -n "$i" ] && journalctl -q --no-pager -o cat _SYSTEMD_INVOCATION_ID="$i" 2>/dev/null |
  awk -v e="$e" '{ said[NR % 50] = $0 } $0 ~ e { bad[++n % 20] = $0 }
    END { for (k = NR < 50 ? 1 : NR - 49; k <= NR; k++) print "log|" said[k % 50]
          for (k = n < 20 ? 1 : n - 19; k <= n; k++) print "error|" bad[k % 20] }'
[ "${m:-0}" = 0 ] && exit 0
# Its own log goes on over all its runs, in the host's time: what was written since this one began.
f=$(sed -n 's/^[[:space:]]*LOG_FILE_NAME[[:space:]]*=["[:space:]]*\\([^"#]*[^"#[:space:]]\\).*/\\1/p' $c 2>/dev/null | tail -n 1)
f=${f:-/var/log/fabricmanager.log}
s=$(sed 's/.*) //' "/proc/$m/stat" 2>/dev/null | cut -d' ' -f20)
[ -n "$s" ] && [ -r "$f" ] && s=$(($(date +%s) - $(cut -d. -f1 /proc/uptime) + s / $(getconf CLK_TCK) - 1)) &&
  b=$(date -d "@$s" +%Y%m%d%H%M%S) && tail -c 1000000 "$f" | grep -aE "$e" |
  awk -v b="$b" '{ m = index("JanFebMarAprMayJunJulAugSepOctNovDec", substr($1, 2, 3)); t = $4; gsub(/[^0-9]/, "", t)
    if (m && $1 ~ /^\\[...$/ && sprintf("%s%02d%02d%s", $3, (m + 2) / 3, $2, t) "" >= b "") print "error|" $0 }' | tail -n 20
true""",
    parse_daemon,
    "systemctl status nvidia-fabricmanager; cat /usr/share/nvidia/nvswitch/fabricmanager.cfg",
    speaks=True,
    blank=r"(?:looked|clock)\|",
)
PACKAGES = Probe(
    "fabric_packages",
    build_packages_script(
        "'nvidia-fabricmanager*' 'nvidia-imex*' nvlsm libibumad3 infiniband-diags 'libnvidia-nscq*' 'libnvsdm*'",
        "nvidia-fabric-?manager.*|nvidia-imex.*|nvlsm|libibumad|infiniband-diags|libnvidia-nscq.*|libnvsdm.*",
    ),
    parse_packages,
    "dpkg -l 'nvidia-fabricmanager*' 'nvidia-imex*' nvlsm; rpm -qa 'nvidia-fabric*' 'nvidia-imex*' nvlsm",
    blank=PACKAGE_LISTS,
)
# Offered versions of packages that NVSwitches of generation 4 need beside Fabric Manager; empty without one.
SUBNET_INDEX = Probe(
    "fabric_subnet_index",
    "grep -qsi 0x1021 /sys/bus/pci/devices/*/device || exit 0\n"
    + by_family(
        "apt-cache madison nvlsm libibumad3 infiniband-diags 2>/dev/null; true",
        rpm.search("nvlsm", "libibumad", "infiniband-diags"),
        zypper.search("nvlsm", "libibumad3", "infiniband-diags"),
    ),
    parse_index,
    "apt-cache madison nvlsm libibumad3 infiniband-diags; dnf -C repoquery nvlsm libibumad infiniband-diags",
)
# The registration of each GPU. Only the long form of the query, which takes seconds, reports health and clique; it
# also serves branches that do not know the query's fields.
STATE = Probe(
    "fabric_state",
    f"""command -v nvidia-smi >/dev/null || exit 0
q=$(nvidia-smi --query-gpu=pci.bus_id,fabric.state,fabric.status --format=csv,noheader 2>/dev/null) || q=
case $q in '' | *Completed*)
  l=$(nvidia-smi -q 2>/dev/null | awk '{OWN}
/^GPU /{{print}} /^    [^ ]/{{f=/^    Fabric *$/}} f&&/^        /{{print}}')
  case $l in *State*|*{FORGED}*) q=$l ;; esac ;;
esac
[ -z "$q" ] || echo "$q"
true""",
    parse_state,
    "nvidia-smi -q | grep -A 14 -w Fabric",
)
SUBNET_KERNEL = Probe(
    "fabric_kernel",
    """for m in mlx5_core mlx5_ib ib_umad; do
  { [ -d "/sys/module/$m" ] || modinfo -n "$m" >/dev/null 2>&1; } && echo "module|$m"
done
for d in /sys/class/infiniband/*; do
  [ -e "$d" ] && grep -qsa SW_MNG "$d/device/vpd" && echo "device|${d##*/}"
done; true""",
    parse_subnet_kernel,
    "modinfo -n mlx5_core mlx5_ib ib_umad; grep -la SW_MNG /sys/class/infiniband/*/device/vpd",
)
