"""`persistence`: the driver stays loaded and the GPUs stay initialised while nothing uses them."""

from __future__ import annotations

from gpuprov.capabilities.base import (
    DRIVER_PACKAGES,
    LOADED,
    Capability,
    Context,
    Outcome,
    check,
    fail,
    ok,
    skip,
)
from gpuprov.capabilities.persistence.desired import DESIRED, RESOURCES, offered
from gpuprov.capabilities.persistence.fragment import DAEMON, LEGACY, Persistence
from gpuprov.capabilities.persistence.tasks import TASKS
from gpuprov.probe.base import Facts
from gpuprov.probe.driver import nvidia
from gpuprov.probe.host import pci, system, systemd
from gpuprov.shown import counted
from gpuprov.spec.model import Fragment

__all__ = ["CAPABILITY", "Persistence"]


@check(
    "persistence.mode_on",
    *(nvidia.SMI, pci.NVIDIA_FUNCTIONS, systemd.SYSTEMD_UNITS, system.CONTAINER),
    fields=("mode",),
)
def mode_on(ctx: Context[Persistence]) -> Outcome:
    """Every GPU on the bus reports persistence mode Enabled, except GPUs bound to vfio-pci."""
    found = pci.driven(ctx.facts.get(pci.NVIDIA_FUNCTIONS))
    if not found:
        return skip("no NVIDIA GPU on the PCI bus")
    if container := ctx.facts.get(system.CONTAINER):
        return skip(f"{container} container: the GPUs are the machine's, not this host's")
    smi = ctx.facts.get(nvidia.SMI)
    if smi.complaint:
        return fail("persistence mode Enabled", smi.complaint, "see nvidia_driver.loaded")
    on = {gpu.bus for gpu in smi.gpus if gpu.persistence}
    off = sorted({gpu.address for gpu in found} - on)
    if off:
        return fail(
            "Enabled on every GPU",
            f"not Enabled: {' '.join(off)}",
            f"systemctl restart {DAEMON} {LEGACY}: the one that is enabled",
        )
    return ok(f"Enabled on {counted(len(smi.gpus), 'GPU')}")


def export(facts: Facts) -> Fragment | None:
    units = facts.get(systemd.SYSTEMD_UNITS)
    if units[DAEMON].file == "enabled":
        return Persistence(mode="daemon")
    return Persistence(mode="legacy") if units[LEGACY].file == "enabled" else None


CAPABILITY = Capability(
    name="persistence",
    summary="GPUs kept initialised by nvidia-persistenced, or by the legacy mode where there is none",
    fragment=Persistence,
    checks=(offered, mode_on),
    export=export,
    export_probes=(systemd.SYSTEMD_UNITS,),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    packages=True,
    needs_gpu=True,
    presupposes={
        "active": DRIVER_PACKAGES,
        "enabled": DRIVER_PACKAGES,
        "mode_on": ("persistence.active", *LOADED),
    },
)
