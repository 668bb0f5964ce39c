"""Checks that the host's GPUs support the layout, and whose work would end, made before anything is changed."""

from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, ok, skip
from gpuprov.capabilities.mig import host
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.capabilities.mig.now import HOST_STATE, list_changes, unreadable, users
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import mig
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.host.virtualization import FUNCTIONS, MACHINE, reset_by_reboot

Ctx = Context[Mig]


def driverless(ctx: Ctx) -> str:
    """Return why the GPUs cannot be read before apply, if that is not a fault: the driver comes with the same apply."""
    state = ctx.facts.get(mig.STATE)
    if not state.complaint:
        return ""
    if "nvidia_driver" in ctx.host.capabilities and not ctx.facts.get(nvidia.DRIVER).version:
        return f"the driver is installed by the same apply ({state.complaint})"
    return ""


@check(
    "mig.fits",
    *(*HOST_STATE, nvidia.DRIVER),
    fields=("mode", "layout", "config_file", "selected"),
    moment="preflight",
    evidence="nvidia-smi mig -lgipp; gpuprov mig fit",
)
def fits(ctx: Ctx) -> Outcome:
    """The layout names GPUs of this host, they have MIG, and its instances fit on each of them."""
    if reason := driverless(ctx):
        return skip(reason)
    if not pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS)):
        return fail("GPUs with MIG", "no NVIDIA GPU on the PCI bus", "take mig out of this host's spec (mig: false)")
    state = ctx.facts.get(mig.STATE)
    needs = list_changes(ctx)
    if isinstance(needs, Outcome) and needs.status == "fail" and state.gpus and not any(g.capable for g in state.gpus):
        return fail("GPUs with MIG", _describe_without(state), "take mig out of this host's spec (mig: false)")
    if isinstance(needs, Outcome):
        return needs
    problems = [need.problem for need in needs if need.problem]
    if problems:
        return fail(
            "instances that fit", "; ".join(problems), "correct mig in the spec; gpuprov mig layouts lists what fits"
        )
    return ok(f"fits on {len(needs)} of {counted(len(state.gpus), 'GPU')}")


def _describe_without(state: mig.MigState) -> str:
    return "; ".join(host.without(gpu) for gpu in state.gpus) or "NVML lists no GPU"


@check(
    "mig.clients",
    *(*HOST_STATE, nvidia.DRIVER),
    moment="preflight",
    evidence="nvidia-smi; fuser -v /dev/nvidia* /dev/nvidia-caps/*",
)
def clients(ctx: Ctx) -> Outcome:
    """No user's process is on an instance that must go or a GPU whose MIG mode changes; if that takes a reset, none is
    on any GPU."""
    if reason := driverless(ctx):
        return skip(reason)
    needs = unreadable(ctx) or list_changes(ctx)
    if isinstance(needs, Outcome):
        return skip("see mig.fits") if needs.status == "fail" else needs
    met = dict.fromkeys(user.holder for need in needs for user in users(ctx) if host.concerns(need, user))
    if any(need.gpu.current != need.target.enabled and host.resets(need.gpu) for need in needs):
        met |= dict.fromkeys(ctx.facts.get(mig.HOLDERS))  # all that hold a GPU is stopped for a reset
    changes = [change for need in needs for change in host.changes(need)]
    changes += [Change(kind="client", name=str(holder), after="stopped") for holder in met]
    theirs = [holder for holder in met if not host.is_service(holder.unit, ctx.host)]
    if theirs:
        fix = "stop or drain them first, or give apply a drain command: --drain COMMAND"
        listed = ", ".join(str(holder) for holder in theirs)
        return fail("no process of a user on what must go", listed, fix, changes=changes)
    message = f"stopped for it: {counted(len(met), 'service')}" if met else "nothing that must be removed is in use"
    return Outcome(status="pass", expected="services only", found=message, changes=tuple(changes))


@check(
    "mig.resettable",
    *(*HOST_STATE, nvidia.DRIVER, MACHINE, FUNCTIONS),
    moment="preflight",
    evidence="systemd-detect-virt --vm; cat /sys/bus/pci/devices/*/reset_method",
)
def resettable(ctx: Ctx) -> Outcome:
    """GPUs that change their MIG mode by a reset (Ampere) may be reset on this host: some hypervisors do not allow that
    to any VM."""
    if reason := driverless(ctx):
        return skip(reason)
    needs = unreadable(ctx) or list_changes(ctx)
    if isinstance(needs, Outcome):
        return skip("see mig.fits") if needs.status == "fail" else needs
    switched = [need.gpu for need in needs if need.gpu.current != need.target.enabled and host.resets(need.gpu)]
    named = " ".join(gpu.address for gpu in switched)
    if not switched or ctx.facts.get(system.CONTAINER):
        return ok(f"{named}: in a container, reset by NVML" if switched else "no GPU is reset")
    why = reset_by_reboot(ctx.facts.get(MACHINE), ctx.facts.get(FUNCTIONS))
    if not why:
        return ok(f"{named}: reset when the MIG mode changes")
    waiting = [gpu for gpu in switched if gpu.pending == gpu.current]
    first = "".join(f"nvidia-smi -i {gpu.address} -mig {int(not gpu.current)}; " for gpu in waiting)
    return fail(f"{named}: GPUs that may be reset", why, f"{first}reboot the VM; then gpuprov apply")


@check("mig.manager", mig.UNITS, moment="next-boot", evidence=f"systemctl is-enabled {mig.MANAGER}", gate=True)
def manager(ctx: Ctx) -> Outcome:
    """NVIDIA's own MIG manager is off, before anything is changed and at the next boot: gpuprov does not take the GPUs
    from it."""
    unit = ctx.facts.get(mig.UNITS)[mig.MANAGER]
    if unit.file.startswith("enabled"):
        fix = f"systemctl disable --now {mig.MANAGER}; mig.config_file takes its configurations as they are"
        return fail(f"{mig.MANAGER} disabled", f"{mig.MANAGER} is {unit.file}, and applies its own layout", fix)
    return ok(f"{mig.MANAGER} is {unit.file or unit.load}")


CHECKS = (fits, clients, resettable, manager)
