"""What the silence of a probe says: of most nothing, so that the check which needs it ends with an error and never with a pass.

Three silences: it printed nothing; a program that it needs is missing (exit status 126 or 127, as sh(1) says it); it printed what its
parser understands nothing of. A probe that lists what there may be of something prints nothing where there is none: that is an answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gpuprov.probe.output import Output

MISSING = (126, 127)
"""https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html#tag_19_08_02"""
KNOWS_MISSING = frozenset(
    {"gpu_health", "gpu_settings", "mig", "nvidia_smi", "topology_nvlinks", "nvlink_errors", "vgpu_licences"}
)
"""Probes that end with 127 on purpose, where NVIDIA's program is not installed: their parsers tell it."""
SPEAKING = frozenset(
    {
        "bootloader", "cgpu", "clock", "command_line", "container", "container_engines", "cpu_frequency", "cuda_toolkits",
        "dcgm", "dcgm_units", "default_hugepage", "dracut", "efa", "erdma", "fabric_manager", "gpu_health",
        "gpu_settings", "gpu_settings_boot", "gpudirect", "hardware", "kernel_log", "login", "machine", "mig", "mig_boot", "mps",
        "nccl", "ofed", "os_release", "pcie", "persistenced", "platform", "rdma_host", "repositories", "roce", "space",
        "package_history", "readings", "sysctl", "sysctl_fixed", "units",
    }
)  # fmt: skip
"""Probes that print something on every Linux host with systemd, whatever is installed there."""
_PACKAGES = r"native\||plugin\||conf\||dnf\||list\||redhat\||suse\|"
BLANK: dict[str, str] = {
    "bootloader": r"there\|",
    "debian_archives": r"archive\|",
    "dracut": r"none$",
    "package_history": r"@",
    "readings": r"@clock |@up |@unit |@start ",
    "cgpu": r"LoadState\|",
    "acceptance_packages": _PACKAGES,
    "container": r"none$",
    "container_engines": r"@clock ",
    "cpu_frequency": r"LoadState\|",
    "cuda_packages": _PACKAGES,
    "dcgm_packages": _PACKAGES,
    "erdma_build": _PACKAGES,
    "fabric_manager": r"clock\|",
    "fabric_packages": _PACKAGES,
    "dcgm": r"start\|",
    "gpu_health": r"@present 0$",
    "port_errors": r"counter\|",
    "gpu_clocks": r"looked$",
    "gpu_computing": r"looked$",
    "gpu_processes": r"looked$",
    "gpu_settings_boot": r"@config$",
    "gdrcopy_packages": _PACKAGES,
    "gridd": r"LoadState\|",
    "mig_boot": r"@desired$",
    "ofed_packages": _PACKAGES,
    "package_locking": _PACKAGES,
    "packages": _PACKAGES,
    "rdma_packages": _PACKAGES,
    "repositories": r"@arch |@machine |@release |@end",
    "secure_boot": r"[\s\d]+$",
    "topology_pci": r"node\|",
    "persistenced": r"gpus\|0$",
}
"""How a line begins with which a probe says that there is nothing; other lines of which the parser understands none are garbage."""


def why(name: str, output: Output, fact: object, parse: Callable[[Output], object]) -> str:
    """Why this output is no answer of the probe; empty where it is one. `fact` is what its parser made of it."""
    if output.text.strip():
        if not _is_comment(output.text) and not _understood(name, output, fact, parse):
            return f"{name} cannot be understood; the host printed: {output.text.strip()[:200]!r}"
    elif name in SPEAKING and output.status not in MISSING:
        return f"{name} printed nothing on the host{_error(output)}"
    return ""


def missing(name: str, output: Output) -> str:
    """Why a program is missing that the probe needs; empty where none is, or where its parser knows."""
    if output.status not in MISSING or name in KNOWS_MISSING:
        return ""
    return f"{name} cannot be read: a program that it needs is missing on the host{_error(output)}"


def _is_comment(text: str) -> bool:
    """A file of comments alone says that nothing is configured: Debian's /etc/modules and limits.conf are such files."""
    return all(line.lstrip()[:1] in ("", "#", ";") for line in text.splitlines())


def _understood(name: str, output: Output, fact: object, parse: Callable[[Output], object]) -> bool:
    try:
        nothing = parse(Output("", output.status, output.error))
    except Exception:
        return True  # to its parser, nothing is no answer, and this was one
    blank = BLANK.get(name)
    return fact != nothing or bool(blank and re.search(f"^(?:{blank})", output.text, re.MULTILINE))


def _error(output: Output) -> str:
    said = " ".join(output.error.split())[:200]
    return f": {said}" if said else ""
