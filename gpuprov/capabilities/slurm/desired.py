"""Desired state of the role: the programs and their settings, slurmd's order, and the line of cgroup.conf."""

import json
from collections.abc import Iterator
from typing import Any

from gpuprov.capabilities.answers import HEADER
from gpuprov.capabilities.at_boot import ABOVE, COMMON, PATH, command, files
from gpuprov.capabilities.base import Desired, Resources
from gpuprov.capabilities.driver import explain_absent_driver
from gpuprov.capabilities.slurm import containers
from gpuprov.capabilities.slurm.fragment import Ctx, make_request
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import slurm, slurm_containers, system
from gpuprov.facts.probes.host.house import REBOOT_REASONS
from gpuprov.host_code.at_boot import slurm as onhost
from gpuprov.host_code.json_members import Json
from gpuprov.resources import Absent, File, Lines, Program, Resource, Unit, role_values

MODULES = (*COMMON, "mig_names", "slurm")
PROGRAM = files("slurm", (*MODULES, "mig_reader"))
# How long slurmd waits for GPUs that are missing.
SECONDS = 60
UNIT = "gpuprov-slurm.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
UNIT_TEXT = f"""{HEADER}[Unit]
Description=Slurm's gres.conf, from the GPUs that the host has
After=nvidia-persistenced.service gpuprov-persistence.service nvidia-fabricmanager.service nvidia-imex.service gpuprov-mig.service
Before=slurmd.service

[Service]
# Inactive when it is done, so that each start of slurmd has it run again.
Type=oneshot
{PATH}
ExecStart={command("slurm", "slurm", "gres", SECONDS)}
TimeoutStartSec={SECONDS + 120}
"""
DROP_IN = f"""{HEADER}[Unit]
# Without a GPU slurmd starts all the same: Slurm then drains the node, and says what is missing.
Wants={UNIT}
After={UNIT}
"""
HEALTH = f"""#!/bin/sh
# Slurm's HealthCheckProgram, which may be Prolog and Epilog, too. Managed by gpuprov: change the inventory, then apply again.
# slurmd gives it no PATH.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
p=$(command -v python3 || echo /usr/libexec/platform-python)
PYTHONPATH={ABOVE} exec "$p" -B -m slurm.slurm health
"""
# What slurmd has read at its start.
READS = {slurm.UNIT: (onhost.GRES, slurm.CGROUP, slurm_containers.PLUGSTACK, slurm_containers.PYXIS_CONF)}
PATHS = (onhost.CONFIG, UNIT_FILE, slurm.DROP_IN, slurm.HEALTH, *containers.PATHS, *PROGRAM)


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield the programs, their settings, the unit before slurmd, the line of cgroup.conf, and slurmd, which is
    not started. gres.conf is written on the host, from the MIG devices that there are then: slurm.gres compares it."""
    yield from (Program(path, name) for path, name in PROGRAM.items())
    yield File(onhost.CONFIG, json.dumps(make_request(ctx), sort_keys=True) + "\n")
    yield File(UNIT_FILE, UNIT_TEXT)
    yield File(slurm.DROP_IN, DROP_IN)
    yield File(slurm.HEALTH, HEALTH, 0o755) if ctx.fragment.health_check else Absent(slurm.HEALTH)
    if ctx.fragment.constrain_devices:
        yield Lines(path=slurm.CGROUP, keys={"ConstrainDevices": "yes"}, made=True)
    yield from containers.desired(ctx)
    yield Unit(name=slurm.UNIT, reads=READS[slurm.UNIT], fix=f"systemctl restart {slurm.UNIT}")


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the values of its resources, and how long the GPUs are waited for: not at all before the boot that brings
    the driver, or in a container whose machine has none, since gres.conf is written before each start of slurmd."""
    values = role_values(desired(ctx), "program", "programs", "files", "units", "absent", "lines", "run")
    (slurmd,) = values.pop("run")
    waits = bool(ctx.facts.get(REBOOT_REASONS)) or bool(explain_absent_driver(ctx.facts))
    return {**values, "tasks": {**({} if waits else {"slurm": {"seconds": SECONDS}}), "unit": slurmd}}


PROBES = (slurm.SLURM, slurm_containers.CONTAINERS)
RESOURCES: Resources[Any] = Resources(
    desired,
    lambda _host, _block: PATHS,
    PROBES,
    reads=lambda _host, _block: READS,
    lines=(slurm.CGROUP,),
    proves={"files": ("constrain_devices", "containers")},
)
DESIRED: Desired[Any] = Desired((*PROBES, REBOOT_REASONS, system.CONTAINER, nvidia.DRIVER), make)
