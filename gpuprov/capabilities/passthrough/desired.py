"""Desired state of the role: the list of lent GPUs, and the unit that binds them before any driver is loaded."""

from collections.abc import Iterator
from typing import Any

from gpuprov.capabilities.answers import HEADER
from gpuprov.capabilities.at_boot import COMMON, command, files, unit
from gpuprov.capabilities.base import Desired, Resources
from gpuprov.capabilities.passthrough.checks import FIELDS, OFF, is_without_iommu, list_moves
from gpuprov.capabilities.passthrough.fragment import Ctx, lines
from gpuprov.capabilities.passthrough.tasks import TASKS
from gpuprov.capabilities.steps import Need, Step, hand_steps
from gpuprov.facts.probes.host.pci import PASSTHROUGH, UNIT
from gpuprov.host_code.at_boot.passthrough import CONFIG
from gpuprov.host_code.json_members import Json
from gpuprov.resources import File, Program, Resource, Unit, role_values

MODULES = (*COMMON, "passthrough")
PROGRAM = files("passthrough", MODULES)
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
FIX = "free what it names"
# driver_override keeps every other driver away, whenever it is loaded; a softdep or ids= would take all GPUs of a
# model:
# https://docs.kernel.org/driver-api/vfio.html, https://github.com/proxmox/pve-docs/blob/master/qm-pci-passthrough.adoc
# No default dependencies: sysinit.target comes after udev, which loads drivers; and a shutdown gives nothing back.
TEXT = unit(
    """
Description=GPUs lent to virtual machines
DefaultDependencies=no
After=systemd-remount-fs.service
Before=systemd-modules-load.service systemd-udev-trigger.service sysinit.target
""",
    f"ExecStart={command('passthrough', 'passthrough', 'apply')}\nTimeoutStartSec=120",
    wanted_by="sysinit.target",
)


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield the unit with its configuration and program."""
    yield from (Program(path, name) for path, name in PROGRAM.items())
    yield File(CONFIG, HEADER + "".join(f"{line}\n" for line in lines(ctx.fragment)))
    yield File(UNIT_FILE, TEXT)
    why = OFF if is_without_iommu(ctx) else ""
    yield Unit(name=UNIT, enabled=True, active=None if why else True, waits=why, fix=f"systemctl status {UNIT}; {FIX}")


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the role's values. The unit is enabled with its files, before a reboot, which then binds the GPUs.
    Services that hold GPUs are stopped for one that NVIDIA's driver has to let go."""
    values = role_values(desired(ctx), "program", "files", "units", "on")
    moves, possible = list_moves(ctx), not is_without_iommu(ctx)
    taken = any(move.function.driver == "nvidia" for move in moves)
    needs: dict[Need, str] = {"host-drained": "drain", "gpus-free": "stop"} if taken else {}
    own = {"name": UNIT, "state": "ran", "enabled": True, "program": "passthrough", "fix": FIX}
    steps = [Step("unit", {**own, "differs": ", ".join(map(str, moves))}, possible, needs)]
    steps += [Step("start", {}, taken and possible)]
    return {**values, "tasks": hand_steps(steps, TASKS)}


DESIRED: Desired[Any] = Desired((PASSTHROUGH,), make)
RESOURCES: Resources[Any] = Resources(
    desired,
    lambda _host, _block: (CONFIG, UNIT_FILE, *PROGRAM),
    (PASSTHROUGH,),
    units=lambda _host, _block: (UNIT,),
    proves={"files": FIELDS, "enabled": FIELDS},
)
