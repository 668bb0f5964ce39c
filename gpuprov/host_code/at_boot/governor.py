"""CPU frequency governors: their reader, and the program that sets them. `governor set GOVERNOR` writes it to every
frequency policy, and reads it back."""

from __future__ import annotations

from typing import NamedTuple

from .program import Refused, group_cells, main, read, write

POLICIES = "/sys/devices/system/cpu/cpufreq"
# https://docs.kernel.org/admin-guide/pm/cpufreq.html: a policy whose CPUs are all offline cannot be read (EBUSY).
READER = rf"""m='' r=$(uname -r); for g in conservative ondemand performance powersave schedutil; do
  for k in /lib/modules/$r/kernel/drivers/cpufreq/cpufreq_$g.ko*; do [ -f "$k" ] && m="$m $g"; done
done
for p in {POLICIES}/policy*; do
  read -r g <"$p/scaling_governor" || continue
  a='' d=''; read -r a <"$p/scaling_available_governors"; read -r d <"$p/scaling_driver"
  case $d in intel_pstate|amd-pstate-epp|amd_pstate_epp) ;; *) a="$a$m" ;; esac
  echo "policy|${{p##*/}}|$g|$a"
done 2>/dev/null
true
"""


class Policy(NamedTuple):
    """CPUs that share a frequency. `available`: the governors of its driver, and those that the kernel would load for
    it.

    A policy whose CPUs are all offline is left out.
    """

    name: str
    governor: str
    available: tuple[str, ...] = ()


def parse(text: str) -> tuple[Policy, ...]:
    """Parse the reader's output."""
    return tuple(Policy(row[0], row[1], tuple(row[2].split())) for row in group_cells(text).get("policy", []))


def select_differing(policies: tuple[Policy, ...], governor: str) -> list[Policy]:
    """Return the policies with another governor."""
    return [policy for policy in policies if policy.governor != governor]


def apply(governor: str) -> None:
    policies = parse(read(READER))
    if not policies:
        raise Refused("no CPU has a governor")
    for policy in select_differing(policies, governor):
        write(f"{POLICIES}/{policy.name}/scaling_governor", governor)
    remaining = select_differing(parse(read(READER)), governor)
    if remaining:
        details = "; ".join(
            f"{stuck.name} stays {stuck.governor} (it has: {' '.join(stuck.available)})" for stuck in remaining
        )
        raise Refused(f"expected {governor}, and {details}")


if __name__ == "__main__":
    main("governor", {"set": apply}, "GOVERNOR", lambda words: words[0])
