"""Slurm's node daemon on a host: its version and plugins, its configuration, and the generic resources that it
finds."""

import re

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.host_code.at_boot import slurm as onhost

UNIT = "slurmd.service"
CGROUP = f"{onhost.FOLDER}/cgroup.conf"
DROP_IN = f"/etc/systemd/system/{UNIT}.d/50-gpuprov.conf"
HEALTH = "/usr/local/lib/gpuprov/slurm/health.sh"
KEYS = ("TaskPlugin", "ProctrackType", "HealthCheckProgram", "HealthCheckInterval")
#  TaskPlugin=task/affinity,task/cgroup
SETTING = re.compile(r"\s*([A-Za-z]+)\s*=\s*(\S*)")
# slurmd: Gres Name=gpu Type=h100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 (null)     (slurmd 22.05.8 -G)
GRES = re.compile(r"Gres Name=(\S+) (?:Type=(\S+) )?Count=(\d+) .*?\bFile=(\S+)")
# slurmd: fatal: can't stat gres.conf file /dev/nvidia7: No such file
# The node's name may follow the program's: `slurmd-gpu017: error: ...`, as of 20.11, 22.05 and 24.11.
FAILED = re.compile(r"slurmd(?:-\S+)?: ((?:fatal|error): .*|Waiting for .*)")


class Gres(msgspec.Struct, frozen=True):
    """A resource as slurmd prints it; `kind` is its type, `files` its device files."""

    name: str
    kind: str
    count: int
    files: tuple[str, ...]


class Judged(msgspec.Struct, frozen=True):
    """The health check's output, its exit status, and the milliseconds it took."""

    status: int
    milliseconds: int
    output: str


class Slurm(msgspec.Struct, frozen=True, kw_only=True):
    """`slurmd`: its path, empty if it is not installed. `nvml`: it has the plugin for AutoDetect=nvml. `settings`: of
    KEYS in slurm.conf (None: there is no such file), by their names in lower case. `gres_conf`: its text. `gres`: what
    slurmd makes of it, `complaints` what it complains of. `written`: what gpuprov wrote for its own programs."""

    slurmd: str = ""
    version: str = ""
    nvml: bool = False
    settings: dict[str, str] | None = None
    gres_conf: str = ""
    gres: tuple[Gres, ...] = ()
    complaints: tuple[str, ...] = ()
    written: str = ""
    judged: Judged | None = None


def parse(output: Output) -> Slurm:
    rows = output.rows()
    lines = rows.get("said", [])
    settings = [match for line in rows.get("conf", []) if (match := SETTING.match(line))]
    health = rows.get("health", [""])[0].split("|", 2)
    return Slurm(
        slurmd=rows.get("slurmd", [""])[0],
        version=rows.get("version", [""])[0],
        nvml="nvml" in rows,
        settings={match[1].lower(): match[2] for match in settings} if "file" in rows else None,
        gres_conf="".join(f"{line}\n" for line in rows.get("gres", [])),
        gres=tuple(
            Gres(match[1], match[2] or "", int(match[3]), tuple(match[4].split(",")))
            for line in lines
            if (match := GRES.search(line))
        ),
        complaints=tuple(match[1] for line in lines if (match := FAILED.match(line))),
        written=rows.get("wanted", [""])[0],
        judged=Judged(int(health[0]), int(health[1]), health[2]) if health[0] else None,
    )


SLURM = Probe(
    "slurm",
    f"""PATH=$PATH:/usr/sbin:/sbin:/opt/slurm/sbin; c={onhost.FOLDER}
s=$(command -v slurmd) || exit 0
echo "slurmd|$s"; echo "version|$(timeout 5 "$s" -V 2>/dev/null </dev/null)"
set -f; files=
if [ -r $c/slurm.conf ]; then
  echo 'file|'; files=$c/slurm.conf
  for i in $(sed -n 's/^[[:space:]]*[Ii]nclude[[:space:]]\\{{1,\\}}\\([^[:space:]#]*\\).*/\\1/p' $c/slurm.conf); do
    case $i in /*) ;; *) i=$c/$i;; esac
    [ -r "$i" ] && files="$files $i"
  done
  sed 's/#.*//' $files | grep -iE '^[[:space:]]*({"|".join((*KEYS, "PluginDir"))})[[:space:]]*=' | sed 's/^/conf|/'
fi
set +f
d=$(sed -n 's/^[[:space:]]*[Pp]lugin[Dd]ir[[:space:]]*=[[:space:]]*\\([^[:space:]#:]*\\).*/\\1/p' $files /dev/null |
  tail -n 1)
for f in ${{d:-/usr/lib/*/slurm-wlm /usr/lib/*/slurm /usr/lib64/slurm /usr/lib/slurm /usr/local/lib/slurm /opt/slurm/lib/slurm}}; do
  [ -e "$f/gpu_nvml.so" ] && {{ echo 'nvml|'; break; }}
done
[ -r $c/gres.conf ] && head -c 65536 $c/gres.conf | sed 's/^/gres|/'
[ -n "$files" ] && timeout 5 "$s" -G 2>&1 </dev/null | head -n 4096 | sed 's/^/said|/'
[ -r {onhost.CONFIG} ] && head -c 65536 {onhost.CONFIG} | tr '\\n' ' ' | sed 's/^/wanted|/' && echo
if [ -x {HEALTH} ]; then
  t=$(date +%s%N); o=$({onhost.JOB_SCRIPT}=prolog_slurmd timeout 10 {HEALTH} 2>&1 </dev/null); r=$?
  echo "health|$r|$((($(date +%s%N) - t) / 1000000))|$(printf %s "$o" | tail -n 1)"
fi
true""",
    parse,
    f"slurmd -G; cat {onhost.GRES}; systemctl status slurmd",
)
