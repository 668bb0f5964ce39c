"""What is left of NVIDIA's software on a host that shall have none: packages, units, and what keeps nouveau out."""

import msgspec

from gpuprov.catalog import cgpu, container_toolkit, dcgm, fabric
from gpuprov.catalog.rdma import gpudirect
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.driver.driver_packages import build_rows_script, parse_installed
from gpuprov.facts.probes.gpus import gpu_settings, mig
from gpuprov.facts.probes.host.systemd import build_units_probe
from gpuprov.host_code.clients import OURS

# Installed packages that may be NVIDIA's, in each architecture; their names decide.
SOFTWARE = Probe(
    "nvidia_software",
    build_rows_script(
        "nvidia|cuda|cudnn|nccl|datacenter-gpu-manager|dcgm|nv-hostengine|nvlsm|nvsdm|nvlink5|gdr(copy|drv|api)"
    ),
    parse_installed,
    "dpkg-query -W -f '${Package} ${Version} ${Architecture}\\n'; rpm -qa",
)
# Units that NVIDIA's packages and installers bring, and gpuprov's for GPUs with a driver.
UNITS = build_units_probe(
    "nvidia_units",
    (
        *("nvidia-persistenced.service", "nvidia-powerd.service", "nvidia-gridd.service", "nvidia-topologyd.service"),
        *("nvidia-vgpud.service", "nvidia-vgpu-mgr.service"),
        *(fabric.UNIT, fabric.IMEX_UNIT, dcgm.UNIT, dcgm.OLD_UNIT, dcgm.EXPORTER_UNIT),
        *(mig.MANAGER, *container_toolkit.REFRESH_UNITS, *container_toolkit.OWN_UNITS, OURS, mig.UNIT),
        *(gpu_settings.UNIT, gpudirect.UNIT, cgpu.UNIT),
    ),
    "systemctl list-units --all 'nvidia*' 'gpuprov-*'",
)

# Paths of the driver's libraries that the linker knows, in each architecture.
LIBRARIES = Probe(
    "nvidia_libraries",
    """l=$(ldconfig -p) || exit
echo looked
printf '%s\\n' "$l" | sed -n 's/.*=> //p' | grep -E '/lib(cuda|nvidia-ml)[.]so[.]1$'
true""",
    lambda output: tuple(line for line in output.text.splitlines() if line.startswith("/")),
    "ldconfig -p | grep -E 'lib(cuda|nvidia-ml).so.1 '",
    speaks=True,
    blank="looked$",
)


class Blacklist(msgspec.Struct, frozen=True):
    """A place that keeps nouveau out: a file of modprobe, with the package that owns it, or the kernel's command
    line."""

    place: str
    owner: str = ""
    # The file is a link to the package's.
    linked: bool = False


COMMAND_LINE = "/proc/cmdline"


def parse_blacklists(output: Output) -> tuple[Blacklist, ...]:
    rows = (line.split("|") for line in output.text.splitlines())
    return tuple(
        Blacklist(row[1], row[2].partition(":")[0], bool(row[3])) for row in rows if row[0] == "file" and len(row) == 4
    )


# Places that keep nouveau out, as modprobe.d(5) and modprobe(8) read them.
BLACKLISTS = Probe(
    "nouveau_blacklists",
    f"""echo looked
for f in /etc/modprobe.d/*.conf /run/modprobe.d/*.conf /usr/local/lib/modprobe.d/*.conf /lib/modprobe.d/*.conf; do
  grep -Eqs '^[[:space:]]*blacklist[[:space:]]+nouveau[[:space:]]*$' "$f" || continue
  r=$(readlink -f "$f"); o=
  for p in "$f" "$r" "/usr$f" "${{r#/usr}}"; do
    o=$(dpkg -S "$p" 2>/dev/null || rpm -qf --qf '%{{NAME}}:\\n' "$p" 2>/dev/null) && break; o=
  done
  l=; [ -L "$f" ] && l=1
  echo "file|$f|$(printf '%s\\n' "$o" | head -n 1)|$l"
done
grep -Eq '(modprobe[.]blacklist|rd[.]driver[.]blacklist)=([^ ]*,)?nouveau([, ]|$)' {COMMAND_LINE} &&
  echo 'file|{COMMAND_LINE}||'
true""",
    parse_blacklists,
    "grep -rs 'blacklist nouveau' /etc/modprobe.d /lib/modprobe.d; cat /proc/cmdline",
    speaks=True,
    blank="looked$",
)
