"""Settings of a receipt that can be put back, and what to do with the others. Pure: plans use it too."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..lasting import Lasting
from ..settings import is_met

ALREADY = "it has the value from before again"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_SPAN = r"(?:graphics|memory) (?:default|\d+ to \d+ MHz)"


class Kind(NamedTuple):
    """The settings of one check."""

    # A pattern of the values that can be set.
    values: str
    # What somebody may do where the value before is not known.
    by_hand: str
    # One of their names.
    names: str = ".+"


_SYSCTL = Kind(".+", "sysctl -w {name}=VALUE", r"(?!.*(?://|\.\.))\w[\w./-]*")
# Keys: checks. nvidia-smi's options: nvidia-smi --help.
KINDS = {
    "kernel.sysctl": _SYSCTL,
    "kernel.numa_balancing": _SYSCTL,
    "kernel.hugepages": Kind(
        r"\d+", "write the number to nr_hugepages in /sys/kernel/mm/hugepages", r"hugepages \d+[MG]"
    ),
    "kernel.governor": Kind("[a-z_]+", "write another to scaling_governor in /sys/devices/system/cpu/cpufreq"),
    "pcie.acs": Kind("[0-9a-f]{4}", "setpci -s {address} ECAP_ACS+6.w=VALUE"),
    "pcie.max_read_request": Kind("128|256|512|1024|2048|4096", "setpci -s {address} CAP_EXP+8.w=VALUE:7000"),
    "pcie.relaxed_ordering": Kind("enabled|disabled", "setpci -s {address} CAP_EXP+8.w=VALUE:0010"),
    "pcie.affinity": Kind("(?!)", "systemctl restart irqbalance.service spreads the interrupts anew"),
    "rdma.roce_settings": Kind("", "mlnx_qos, dcb or cma_roce_mode"),
    "gpu_settings.ecc": Kind("enabled|disabled", "nvidia-smi -i {address} -e 0 or 1, then a reboot"),
    "gpu_settings.power_limit": Kind(r"\d+(?:\.\d+)? W", "nvidia-smi -i {address} -pl WATTS"),
    "gpu_settings.application_clocks": Kind(r"memory \d+ MHz, graphics \d+ MHz", "nvidia-smi -i {address} -rac"),
    "gpu_settings.locked_clocks": Kind(
        f"{_SPAN}(?:, {_SPAN})?", "nvidia-smi -i {address} -rgc unlocks graphics clocks, -rmc those of the memory"
    ),
    "gpu_settings.compute_mode": Kind(
        "default|exclusive_thread|exclusive_process|prohibited", "nvidia-smi -i {address} -c MODE"
    ),
}
_PRIORITIES = "none|[0-7](?:,[0-7])*"
# Values that can be set, by the key without the number of a DSCP. A port by PCP has no map of DSCPs; it is so again
# with its trust.
ROCE_VALUES = {
    "mtu": r"\d+",
    "trust": "pcp|dscp",
    "dscp": "[0-7]|by PCP",
    "pfc": _PRIORITIES,
    "ecn": _PRIORITIES,
    "mode": "v1|v2",
    "tos": r"\d+",
    "traffic_class": r"\d+",
    "cnp_dscp": r"\d+",
    "cnp_802p_prio": "[0-7]",
}


def explain_stay(setting: Lasting) -> str:
    """Explain why a setting cannot be put back, and what to do; empty if it can."""
    kind = KINDS.get(setting.check)
    if kind is None or not re.fullmatch(kind.names, setting.name):
        return f"stays until {setting.until}: this gpuprov does not know how to set it"
    values = (
        ROCE_VALUES.get(find_key(setting).partition(".")[0], "(?!)")
        if setting.check.startswith("rdma.")
        else kind.values
    )
    if re.fullmatch(values, setting.before):
        return ""
    why = f"it was {setting.before} before, which nothing sets" if setting.before else "its value before is not known"
    by_hand = kind.by_hand.format(name=setting.name, address=find_address(setting))
    return f"stays until {setting.until}: {why}; by hand: {by_hand}"


def explain_change(setting: Lasting, now: str) -> str:
    """Explain why a setting with this value now is left as it is; empty if it still has the applied one."""
    if now == setting.before:
        return ALREADY
    return "" if is_met(setting.value, now) else f"changed by others since it was applied: it is {now}"


def needs_idle(setting: Lasting) -> bool:
    """Return whether the value before would shut out programs that compute now."""
    return setting.check == "gpu_settings.compute_mode" and setting.before != "default"


def explain_reboot(setting: Lasting) -> str:
    """Explain why the value before holds only after a reboot; empty if it holds at once."""
    return f"the ECC mode of {setting.device} changes at a boot" if setting.check == "gpu_settings.ecc" else ""


def find_address(setting: Lasting) -> str:
    """Return the PCI address of a setting's device; ADDRESS where it has none."""
    match = _ADDRESS.search(setting.device)
    return match[0] if match else "ADDRESS"


def find_key(setting: Lasting) -> str:
    """Return the name of a setting without its device."""
    return setting.name[len(setting.device) :].strip(" :") if setting.device else setting.name
