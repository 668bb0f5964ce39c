"""`persistence`: the driver stays loaded and the GPUs stay initialised while nothing uses them."""

import msgspec

from gpuprov.capabilities.base import DRIVER_PACKAGES, LOADED, Capability, Context, Outcome, fail, skip
from gpuprov.capabilities.compared import Group, compared
from gpuprov.capabilities.persistence.desired import DESIRED, RESOURCES, offered
from gpuprov.capabilities.persistence.fragment import DAEMON, LEGACY, Persistence
from gpuprov.capabilities.persistence.tasks import TASKS
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import pci, system, systemd
from gpuprov.resources import Setting
from gpuprov.spec.model import Fragment

__all__ = ["CAPABILITY", "Persistence"]


@compared(
    "persistence.mode_on",
    *(nvidia.SMI, pci.NVIDIA_FUNCTIONS, systemd.SYSTEMD_UNITS, system.CONTAINER),
    fields=("mode",),
)
def mode_on(ctx: Context[Persistence]) -> Group | Outcome:
    """Every GPU on the bus reports persistence mode Enabled, except GPUs bound to vfio-pci."""
    on_bus = pci.driven(ctx.facts.get(pci.NVIDIA_FUNCTIONS))
    if not on_bus:
        return skip("no NVIDIA GPU on the PCI bus")
    if container := ctx.facts.get(system.CONTAINER):
        return skip(f"{container} container: the GPUs are the machine's, not this host's")
    smi = ctx.facts.get(nvidia.SMI)
    if smi.complaint:
        return fail("persistence mode Enabled", smi.complaint, "see nvidia_driver.loaded")
    mode = Setting(kind="persistence mode", value="Enabled", words="not Enabled: {devices}", missing="not listed")
    return Group(
        tuple(msgspec.structs.replace(mode, device=gpu.address) for gpu in sorted(on_bus, key=lambda gpu: gpu.address)),
        {(gpu.bus, ""): "Enabled" if gpu.persistence else "Disabled" for gpu in smi.gpus},
        expected="Enabled on every GPU",
        right=f"Enabled on {counted(len(smi.gpus), 'GPU')}",
        fix=f"systemctl restart {DAEMON} {LEGACY}: the one that is enabled",
        changed="",
    )


def export(facts: Facts) -> Fragment | None:
    units = facts.get(systemd.SYSTEMD_UNITS)
    if units[DAEMON].file == "enabled":
        return Persistence(mode="daemon")
    return Persistence(mode="legacy") if units[LEGACY].file == "enabled" else None


CAPABILITY = Capability(
    name="persistence",
    summary="GPUs kept initialised by nvidia-persistenced, or by the legacy mode where there is none",
    fragment=Persistence,
    ends_with_reset=True,
    checks=(offered, mode_on),
    export=export,
    export_probes=(systemd.SYSTEMD_UNITS,),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    packages=True,
    needs_gpu=True,
    presupposes={"active": DRIVER_PACKAGES, "enabled": DRIVER_PACKAGES, "mode_on": ("persistence.active", *LOADED)},
)
