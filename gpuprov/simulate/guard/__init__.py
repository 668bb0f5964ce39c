"""Guards against a container changing the machine that it runs on; mounted from its first boot on."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
UNITS = Path("/etc/systemd/system")
# They would act on the machine's kernel: load modules, set its sysctls, replay its devices to a udev that loads
# modules.
MASKED = (
    *("systemd-modules-load.service", "systemd-sysctl.service", "systemd-binfmt.service"),
    *("systemd-udev-trigger.service", "proc-sys-fs-binfmt_misc.automount"),
)
# Files of this machine, with their path inside.
VOLUMES: tuple[tuple[Path, str], ...] = (
    (HERE / "system.conf", "/etc/systemd/system.conf.d/gpuprov-sim.conf"),
    (HERE / "gpuprov-sim-guard.service", f"{UNITS}/gpuprov-sim-guard.service"),
    (HERE / "sysinit.conf", f"{UNITS}/sysinit.target.d/gpuprov-sim.conf"),
    *((Path("/dev/null"), f"{UNITS}/{unit}") for unit in MASKED),
)
