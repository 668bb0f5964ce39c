"""NVIDIA Data Center GPU Manager on a host: its packages, units, host engine and exporter, and their answers."""

import re

import msgspec

from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host.family import by_family
from gpuprov.facts.probes.host.systemd import build_units_probe
from gpuprov.facts.probes.software import rpm, zypper
from gpuprov.facts.probes.software.packages import PACKAGE_LISTS, build_packages_script, parse_index, parse_packages
from gpuprov.host_code.json_members import Json


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A unit's main process. `command` is empty without a process. `start` is the unit's present command, `environment`
    the variables that it sets; `counters`: the file that it reads exists."""

    pid: int = 0
    command: str = ""
    start: str = ""
    environment: dict[str, str] = {}


class Dcgm(msgspec.Struct, frozen=True, kw_only=True):
    """The programs' reports."""

    engine: Service = Service()
    exporter: Service = Service()
    # Nv-hostengine's version.
    installed: str = ""
    # Version of the host engine that dcgmi reaches, if reported.
    running: str = ""
    # Number of GPUs that it manages, None if it does not answer: then `complaint` is dcgmi's error.
    gpus: int | None = None
    # Number of NVSwitches.
    switches: int | None = None
    complaint: str = ""
    # Number of values from the exporter, None if it does not answer.
    metrics: int | None = None
    # Its file of counters exists.
    counters: bool = False


# `dcgmi discovery -l` of an A100 board
# (https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/getting-started.html); DCGM 4.6.1 writes
# `1 GPU found (Active).`:
#     8 GPUs found.
#     6 NvSwitches found.
def parse_dcgm(output: Output) -> Dcgm:
    services: dict[str, dict[str, Json]] = {"engine": {}, "exporter": {}}
    fields: dict[str, str] = {}
    messages: list[str] = []
    for line in output.text.splitlines():
        kind, _, rest = line.partition("|")
        which, _, value = rest.partition("|")
        if kind == "process" and which in services:
            pid, _, command = value.partition("|")
            services[which] |= {"pid": int(pid), "command": command.strip()}
        elif kind == "start" and which in services:
            services[which]["start"] = value.strip()
        elif kind == "environment" and which in services:
            pairs = (word.strip('"').partition("=") for word in value.split())
            services[which]["environment"] = {key: text for key, _, text in pairs}
        elif kind == "discovery":
            messages.append(rest)
        else:
            fields[kind] = rest
    count = next((match[1] for line in messages if (match := re.match(r"(\d+) GPUs? found", line))), None)
    switches = next((match[1] for line in messages if (match := re.match(r"(\d+) NvSwitch(?:es)? found", line))), None)
    complaint = " ".join(line.removeprefix("Error: ") for line in messages if line.startswith("Error")) or " ".join(
        messages[:2]
    )
    metrics = fields.get("metrics", "")
    return Dcgm(
        engine=msgspec.convert(services["engine"], Service),
        exporter=msgspec.convert(services["exporter"], Service),
        installed=fields.get("installed", ""),
        running=fields.get("running", ""),
        gpus=int(count) if count else None,
        switches=int(switches) if switches else None,
        complaint="" if count else complaint,
        metrics=int(metrics) if is_whole(metrics) else None,
        counters="counters" in fields,
    )


def parse_counters(output: Output) -> dict[str, bool]:
    rows = (line.partition("|") for line in output.text.splitlines())
    return {path: word == "there" for word, bar, path in rows if bar}


PACKAGES = Probe(
    "dcgm_packages",
    build_packages_script(
        "'datacenter-gpu-manager*' dcgmi libdcgm nv-hostengine", "datacenter-gpu-manager.*|dcgmi|libdcgm|nv-hostengine"
    ),
    parse_packages,
    "dpkg -l 'datacenter-gpu-manager*'; rpm -qa 'datacenter-gpu-manager*'; dnf versionlock list",
    blank=PACKAGE_LISTS,
)
NAMES = ("datacenter-gpu-manager*", "dcgmi", "libdcgm", "nv-hostengine")
# Package versions that the host's repositories offer, by name, newest first.
INDEX = Probe(
    "dcgm_index",
    by_family(
        """apt-cache pkgnames | grep -xE 'datacenter-gpu-manager.*|dcgmi|libdcgm|nv-hostengine' |
  xargs -r apt-cache madison 2>/dev/null; true""",
        rpm.search(*NAMES),
        zypper.search(*NAMES),
    ),
    parse_index,
    "apt-cache madison datacenter-gpu-manager-4-core; dnf -C repoquery --showduplicates 'datacenter-gpu-manager*'",
)
UNITS = build_units_probe(
    "dcgm_units",
    ("nvidia-dcgm.service", "nvidia-dcgm-exporter.service"),
    "systemctl status nvidia-dcgm nvidia-dcgm-exporter",
)
# True if the counters file that the spec names exists, by its path.
COUNTERS = Probe(
    "dcgm_counters",
    '[ -z "${counters:-}" ] || if [ -e "$counters" ]; then echo "there|$counters"; else echo "missing|$counters"; fi',
    parse_counters,
    "ls -l /etc/dcgm-exporter",
    asks=lambda host: {"counters": host.capabilities["dcgm"].exporter_counters},
)
# dcgmi takes the address after the subsystem; -v of the host engine prints two blocks, its own and the host engine's:
# https://github.com/NVIDIA/DCGM/blob/master/dcgmi/Version.cpp
DCGM = Probe(
    "dcgm",
    r"""at=localhost; port=9400; file=/etc/dcgm-exporter/default-counters.csv
for n in engine exporter; do
  u=nvidia-dcgm.service
  [ $n = exporter ] && u=nvidia-dcgm-exporter.service
  echo "start|$n|$(systemctl show -p ExecStart $u 2>/dev/null | sed -n 's/.*argv\[\]=\([^;]*\);.*/\1/p')"
  e=$(systemctl show -p Environment $u 2>/dev/null | sed -n 's/^Environment=//p'); echo "environment|$n|$e"
  p=$(systemctl show -p MainPID $u 2>/dev/null | sed -n 's/^MainPID=//p')
  s=$(sed 's/.*) //' "/proc/${p:-0}/stat" 2>/dev/null) || continue
  case $s in Z*|X*|'') continue ;; esac
  c=$(tr '\0' ' ' < "/proc/$p/cmdline"); echo "process|$n|$p|$c"
  set -- $c
  while [ $# -gt 0 ]; do
    case $n$1 in
      engine--domain-socket|engine-d) at=unix://$2 ;;
      engine--port|engine-p) at="${at%%:*}:$2" ;;
      engine--bind-interface|engine-b) case $2 in ALL|0.0.0.0) ;; *) at="$2${at#localhost}" ;; esac ;;
      exporter-f) file=$2 ;;
    esac
    shift
  done
  for w in $e; do case $n$w in exporterDCGM_EXPORTER_LISTEN=*) port=${w##*:} ;; esac; done
  [ $n = exporter ] && echo "metrics|$(timeout 10 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$0" || exit 1
printf "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n" >&3; cat <&3' "$port" 2>/dev/null |
    awk 'NR==1 && /^HTTP\/[0-9.]+ 200/{y=1} /^DCGM_/{k++} END{if (y) print k+0}')"
done
[ -e "$file" ] && echo "counters|"
command -v nv-hostengine >/dev/null &&
  echo "installed|$(timeout 10 nv-hostengine --version 2>/dev/null </dev/null | sed -n 's/^Version *: *//p' | head -n 1)"
if command -v dcgmi >/dev/null; then
  timeout 20 dcgmi discovery --host "$at" -l 2>&1 </dev/null | grep -E '(GPUs?|NvSwitch(es)?) found|Error' |
    sed 's/^/discovery|/'
  [ "$at" = localhost ] && set -- -v || set -- -v --host "$at"
  echo "running|$(timeout 20 dcgmi "$@" 2>/dev/null </dev/null | awk '/^Hostengine build info/{f=1} f && /^Version/{print $NF; exit}')"
fi; true""",
    parse_dcgm,
    "systemctl status nvidia-dcgm nvidia-dcgm-exporter; dcgmi -v; dcgmi discovery -l; curl -s localhost:9400/metrics",
    speaks=True,
    blank=r"start\|",
)


class SwitchLibrary(msgspec.Struct, frozen=True):
    """A library through which DCGM reads NVSwitches: `libnvidia-nscq` or `libnvsdm`, and the version in its path."""

    name: str
    path: str
    version: str


def parse_libraries(output: Output) -> tuple[SwitchLibrary, ...]:
    rows = [line.split("|") for line in output.text.splitlines()]
    libraries = []
    for path, real in (row[1:] for row in rows if len(row) == 3 and row[0] == "library"):
        match = re.search(r"\.so\.(\d{3}(?:\.\d+)+)\Z", real)
        libraries.append(SwitchLibrary(path.rpartition("/")[2].partition(".so")[0], path, match[1] if match else ""))
    return tuple(libraries)


# Libraries that DCGM reads NVSwitches by, as the dynamic linker finds them. NSCQ's file has the version in its name
# (https://github.com/nvidia/apt-packaging-libnvidia-nscq); NVSDM's has not
# (https://docs.nvidia.com/datacenter/tesla/nvsdm/installation.html).
LIBRARIES = Probe(
    "switch_libraries",
    r"""PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | sed -n 's/.*=> //p' | grep -E '/lib(nvidia-nscq|nvsdm)\.so\.[0-9]+$' |
while read -r f; do echo "library|$f|$(readlink -f "$f")"; done; true""",
    parse_libraries,
    "ldconfig -p | grep -E 'nscq|nvsdm'; readlink -f /usr/lib*/*/libnvidia-nscq.so.2",
)
