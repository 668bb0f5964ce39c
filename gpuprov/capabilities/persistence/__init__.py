"""`persistence`: the driver stays loaded and the GPUs stay initialised while nothing uses them."""

from __future__ import annotations

from gpuprov.capabilities.answers import by_unit, enabling
from gpuprov.capabilities.base import (
    DRIVER_PACKAGES,
    LOADED,
    Capability,
    Change,
    Context,
    Outcome,
    check,
    fail,
    ok,
    skip,
)
from gpuprov.capabilities.persistence.desired import DESIRED, PROBES, WRITTEN, offered, units
from gpuprov.capabilities.persistence.fragment import DAEMON, DROP_IN, IDLE, LEGACY, Persistence
from gpuprov.probe.base import Facts
from gpuprov.probe.driver import nvidia
from gpuprov.probe.host import pci, system, systemd
from gpuprov.shown import counted
from gpuprov.spec.model import Fragment

__all__ = ["CAPABILITY", "Persistence"]
WRITES = f"gpuprov apply writes {DROP_IN} with"


@check("persistence.enabled", systemd.SYSTEMD_UNITS, *PROBES, fields=("mode",), moment="next-boot")
def enabled(ctx: Context[Persistence]) -> Outcome:
    """The unit that keeps the GPUs initialised starts at boot and switches the mode on; no second one competes with it."""
    states = ctx.facts.get(systemd.SYSTEMD_UNITS)
    wanted, other = units(ctx)
    state = states[wanted]
    competing = states[other].file == "enabled"
    expected = f"{wanted} enabled" + (f", {other} off" if competing else "")
    if state.file != "enabled":
        change = Change(kind="service", name=wanted, before=state.file or state.load, after="enabled")
        hint = (
            f"{WRITES} [Install] WantedBy=multi-user.target"
            if state.file == "static"
            else enabling({wanted: state.file or state.load})
        )
        return fail(expected, f"{wanted} is {state.file or state.load}", hint, changes=[change])
    if competing:
        change = Change(kind="service", name=other, before="enabled", after="disabled")
        return fail(expected, f"{other} is enabled too", f"systemctl disable --now {other}", changes=[change])
    if wanted == DAEMON and IDLE in state.start:
        change = Change(kind="file", name=DROP_IN, before="absent", after="written")
        hint = f"{WRITES} an ExecStart without it"
        return fail(f"{expected}, without {IDLE}", f"{wanted} is started with {IDLE}", hint, changes=[change])
    return ok(expected)


@check("persistence.active", systemd.SYSTEMD_UNITS, *PROBES, pci.NVIDIA_FUNCTIONS, system.CONTAINER, fields=("mode",))
def active(ctx: Context[Persistence]) -> Outcome:
    """The daemon runs (or the legacy unit ran); it cannot where there is no GPU."""
    if not pci.driven(ctx.facts.get(pci.NVIDIA_FUNCTIONS)):
        return skip("no NVIDIA GPU on the PCI bus: the daemon has nothing to hold")
    if container := ctx.facts.get(system.CONTAINER):
        return skip(f"{container} container: the GPUs are the machine's, not this host's")
    wanted, _ = units(ctx)
    state = ctx.facts.get(systemd.SYSTEMD_UNITS)[wanted]
    if state.active != "active":
        change = Change(kind="service", name=wanted, before=state.active, after="active")
        hint = by_unit(state.load, f"journalctl -u {wanted} -n 20")
        return fail(
            f"{wanted} active", state.active if state.load != "not-found" else state.load, hint, changes=[change]
        )
    return ok(f"{wanted} active")


@check(
    "persistence.mode_on",
    *(nvidia.SMI, pci.NVIDIA_FUNCTIONS, systemd.SYSTEMD_UNITS, system.CONTAINER),
    fields=("mode",),
)
def mode_on(ctx: Context[Persistence]) -> Outcome:
    """Every GPU on the bus reports persistence mode Enabled, but for those that vfio-pci has."""
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
    checks=(offered, enabled, active, mode_on),
    export=export,
    export_probes=(systemd.SYSTEMD_UNITS,),
    desired=DESIRED,
    written=WRITTEN,
    packages=True,
    needs_gpu=True,
    presupposes={
        "active": DRIVER_PACKAGES,
        "enabled": DRIVER_PACKAGES,
        "mode_on": ("persistence.active", *LOADED),
    },
)
