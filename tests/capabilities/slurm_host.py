"""A compute node of Slurm on the good host, told as its probe prints it: a slurmd without NVML, one H100."""

from __future__ import annotations

from collections.abc import Sequence

from gpuprov.facts.probes.host.slurm import HEALTH
from gpuprov.host_code.at_boot.slurm import HEADER

SETTINGS = (
    "ProctrackType=proctrack/cgroup",
    "TaskPlugin=task/affinity,task/cgroup",
    f"HealthCheckProgram={HEALTH}",
    "HealthCheckInterval=300",
)
ONE = ("Name=gpu File=/dev/nvidia0",)
FOUND = ("gpu||1|/dev/nvidia0",)


def gres(*rows: str) -> list[str]:
    """What slurmd -G prints of resources NAME|TYPE|COUNT|FILES, in the form of 22.05."""
    cells = [row.split("|") for row in rows]
    return [
        f"slurmd: Gres Name={name}{f' Type={kind}' if kind else ''} Count={count} Index=0 ID=7696487 File={files} "
        "(null)"
        for name, kind, count, files in cells
    ]


def told(
    *,
    lines: Sequence[str] = ONE,
    found: Sequence[str] = FOUND,
    said: Sequence[str] = (),
    settings: Sequence[str] | None = SETTINGS,
    nvml: bool = False,
    header: str = HEADER,
    health: str = "0|310|",
    wanted: str = "",
) -> str:
    """What the probe prints. `lines` of gres.conf, what slurmd `found` and `said`, `settings` of slurm.conf (None:
    there is none)."""
    rows = ["slurmd|/usr/sbin/slurmd", "version|slurm-wlm 22.05.8"]
    rows += ["file|", *(f"conf|{line}" for line in settings)] if settings is not None else []
    rows += ["nvml|"] * nvml + [f"gres|{line}" for line in (header.rstrip("\n"), *lines) if lines]
    rows += [f"said|{line}" for line in (*said, *gres(*found))] + [f"wanted|{wanted}"] * bool(wanted)
    rows += [f"health|{health}"] * bool(health)
    return "\n".join([*rows, ""])


CONTAINERS = {
    "enroot": "enroot|4.1.2",
    "caps": "caps|/usr/bin/enroot-mksquashovlfs cap_sys_admin=ep\ncaps|/usr/bin/enroot-aufs2ovlfs "
    "cap_sys_admin,cap_mknod=ep",
    "hook": "hook|",
    "cli": "cli|/usr/bin/nvidia-container-cli",
    "first": "",
    "conf": "\n".join(
        f"conf|ENROOT_{name.upper()}_PATH {above}/user-$(id -u)"
        for name, above in (
            ("runtime", "/run/enroot"),
            *((name, f"/var/lib/enroot/{name}") for name in ("cache", "data", "temp")),
        )
    ),
    "sysctl": "sysctl|user/max_user_namespaces|63504\nsysctl|user/max_mnt_namespaces|63504",
    "prolog": "prolog|",
    "plugin": "plugin|/usr/lib/x86_64-linux-gnu/slurm/spank_pyxis.so",
    "stack": "stack|gpuprov",
    "plugged": "",
    "srun": "srun|\noffered|",
}
"""What the probe of enroot and pyxis prints of a node that has both."""


def printed_containers(**changes: str) -> str:
    """What it prints of another one."""
    return "".join(f"{text}\n" for text in {**CONTAINERS, **changes}.values() if text)


PROBES = {"slurm": told(), "slurm_containers": printed_containers()}
