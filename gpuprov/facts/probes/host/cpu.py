"""CPU frequency governors, and hugepages, as sysfs shows them."""

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host import boot_unit
from gpuprov.facts.probes.host.boot_unit import UnitState
from gpuprov.host_code.at_boot import governor
from gpuprov.host_code.at_boot.governor import Policy


class Frequency(UnitState, frozen=True, kw_only=True):
    """CPU frequency."""

    policies: tuple[Policy, ...] = ()
    # The one that gpuprov's unit sets, empty without a unit.
    governor: str = ""
    # Other active units that set governors.
    rivals: tuple[str, ...] = ()


def parse_frequency(output: Output) -> Frequency:
    rows = output.rows()
    return Frequency(
        policies=governor.parse(output.text),
        governor=(rows.get("asked") or [""])[-1],
        **boot_unit.parse_state(rows),
        rivals=tuple(rows.get("rival", ())),
    )


def parse_hugepages(output: Output) -> dict[int, int]:
    pairs = (line.split() for line in output.text.splitlines())
    return {int(size): int(count) for size, count in pairs}


def parse_default(output: Output) -> int:
    return int(output.text)


FREQUENCY = Probe(
    "cpu_frequency",
    governor.READER
    + """u=gpuprov-cpu-governor.service
sed -n 's/^ExecStart=.* set \\([a-z]*\\)$/asked|\\1/p' /etc/systemd/system/$u 2>/dev/null
"""
    + boot_unit.STATE
    + """set -- tuned.service power-profiles-daemon.service cpufrequtils.service cpupower.service thermald.service
for s in $(systemctl is-active "$@" 2>/dev/null); do
  case $s in active | reloading) echo "rival|$1" ;; esac; shift
done; true""",
    parse_frequency,
    "head -v /sys/devices/system/cpu/cpufreq/policy*/scaling_governor; systemctl status gpuprov-cpu-governor",
    speaks=True,
    blank=boot_unit.BLANK,
)
# The number of hugepages by their size in KiB: https://docs.kernel.org/admin-guide/mm/hugetlbpage.html
HUGEPAGES = Probe(
    "hugepages",
    """for d in /sys/kernel/mm/hugepages/hugepages-*kB; do
  n=$(cat "$d/nr_hugepages") || continue
  s=${d##*hugepages-}; echo "${s%kB} $n"
done 2>/dev/null; true""",
    parse_hugepages,
    "head -v /sys/kernel/mm/hugepages/*/nr_hugepages",
)
# The size in KiB of the pages that vm.nr_hugepages counts.
# Hugepagesize:     524288 kB     (/proc/meminfo of an Arm server with pages of 512 MiB)
DEFAULT_HUGEPAGE = Probe(
    "default_hugepage",
    "sed -n 's/^Hugepagesize: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo",
    parse_default,
    "grep Hugepagesize /proc/meminfo",
    speaks=True,
)
