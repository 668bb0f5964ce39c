"""CPU frequency governors, and hugepages, as sysfs shows them."""

from __future__ import annotations

import msgspec

from gpuprov.probe.base import Output, Probe


class Policy(msgspec.Struct, frozen=True):
    """CPUs that share a frequency. `available` are the governors of its driver, and those that the kernel would load for it.

    A policy whose CPUs are all offline is none of them.
    """

    name: str
    governor: str
    available: tuple[str, ...] = ()


class Frequency(msgspec.Struct, frozen=True, kw_only=True):
    """`asked`: the governor of gpuprov's unit, empty without one. `load`, `active`, `file`: of that unit. `rivals`: active units
    that set governors, too."""

    policies: tuple[Policy, ...] = ()
    asked: str = ""
    load: str = "not-found"
    active: str = "inactive"
    file: str = ""
    rivals: tuple[str, ...] = ()


def parse_frequency(output: Output) -> Frequency:
    rows = [line.split("|") for line in output.text.splitlines() if "|" in line]
    one = {kind: cells[0] for kind, *cells in rows if cells}
    return Frequency(
        policies=tuple(
            Policy(cells[0], cells[1], tuple(cells[2].split())) for kind, *cells in rows if kind == "policy"
        ),
        asked=one.get("asked", ""),
        load=one.get("LoadState") or "not-found",
        active=one.get("ActiveState") or "inactive",
        file=one.get("UnitFileState", ""),
        rivals=tuple(cells[0] for kind, *cells in rows if kind == "rival"),
    )


def parse_hugepages(output: Output) -> dict[int, int]:
    pairs = (line.split() for line in output.text.splitlines())
    return {int(size): int(count) for size, count in pairs}


def parse_default(output: Output) -> int:
    return int(output.text)


FREQUENCY = Probe(
    "cpu_frequency",
    """m=''; for g in conservative ondemand performance powersave schedutil; do
  for k in /lib/modules/$(uname -r)/kernel/drivers/cpufreq/cpufreq_$g.ko*; do [ -f "$k" ] && m="$m $g"; done
done
for p in /sys/devices/system/cpu/cpufreq/policy*; do
  read -r g <"$p/scaling_governor" || continue
  a='' d=''; read -r a <"$p/scaling_available_governors"; read -r d <"$p/scaling_driver"
  case $d in intel_pstate|amd-pstate-epp|amd_pstate_epp) ;; *) a="$a$m" ;; esac
  echo "policy|${p##*/}|$g|$a"
done 2>/dev/null
u=gpuprov-cpu-governor.service
sed -n 's/^ExecStart=.* set \\([a-z]*\\)$/asked|\\1/p' /etc/systemd/system/$u 2>/dev/null
systemctl show -p LoadState -p ActiveState -p UnitFileState $u 2>/dev/null | tr = '|'
for r in tuned power-profiles-daemon cpufrequtils cpupower thermald; do
  systemctl -q is-active $r.service 2>/dev/null && echo "rival|$r.service"
done; true""",
    parse_frequency,
    "head -v /sys/devices/system/cpu/cpufreq/policy*/scaling_governor; systemctl status gpuprov-cpu-governor",
    speaks=True,
    blank=r"LoadState\|",
)
"""https://docs.kernel.org/admin-guide/pm/cpufreq.html"""
HUGEPAGES = Probe(
    "hugepages",
    """for d in /sys/kernel/mm/hugepages/hugepages-*kB; do
  n=$(cat "$d/nr_hugepages") || continue
  s=${d##*hugepages-}; echo "${s%kB} $n"
done 2>/dev/null; true""",
    parse_hugepages,
    "head -v /sys/kernel/mm/hugepages/*/nr_hugepages",
)
"""The number of hugepages by their size in KiB: https://docs.kernel.org/admin-guide/mm/hugetlbpage.html"""
DEFAULT_HUGEPAGE = Probe(
    "default_hugepage",
    "sed -n 's/^Hugepagesize: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo",
    parse_default,
    "grep Hugepagesize /proc/meminfo",
    speaks=True,
)
"""The size in KiB of the pages that vm.nr_hugepages counts."""
