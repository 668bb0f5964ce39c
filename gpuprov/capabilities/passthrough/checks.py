"""Checks of the IOMMU, of the drivers of lent GPUs, of their groups, and of who has them."""

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Change, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.passthrough.fragment import Ctx, named, parse_block
from gpuprov.capabilities.passthrough.rules import parameters_of
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.pci import PASSTHROUGH
from gpuprov.facts.probes.kernel import boot
from gpuprov.host_code.at_boot import passthrough as onhost

NONE, OFF = "no GPU is lent", "the IOMMU is not on yet"
BUS = "lspci -nnk -d 10de:"
FIELDS = ("gpus", "nvswitches", "driver")
GROUPS = "ls -l /sys/bus/pci/devices/*/iommu_group; cat /proc/cmdline"


def list_moves(ctx: Ctx) -> list[onhost.Move]:
    """Return what the unit's own program would bind to another driver."""
    return onhost.list_moves(ctx.facts.get(PASSTHROUGH).state, parse_block(ctx.fragment))


def list_lent(ctx: Ctx) -> list[onhost.Function]:
    """Return the functions that are to be lent."""
    state = ctx.facts.get(PASSTHROUGH).state
    drivers = onhost.list_drivers(state, parse_block(ctx.fragment))
    return [function for function in state.functions if function.address in drivers]


def is_without_iommu(ctx: Ctx) -> bool:
    """Return whether a function to be lent has no IOMMU group, so that no driver for virtual machines takes it."""
    return any(not function.group for function in list_lent(ctx))


@check("passthrough.hardware", PASSTHROUGH, system.CONTAINER, fields=FIELDS, moment="preflight", evidence=BUS)
def hardware(ctx: Ctx) -> Outcome:
    """The host has each GPU that the spec lends, and NVSwitches if they go with them."""
    if kind := ctx.facts.get(system.CONTAINER):
        return fail("a machine", f"a {kind} container, whose drivers are its machine's", "apply it to the machine")
    state, block = ctx.facts.get(PASSTHROUGH).state, ctx.fragment
    absent = [name for name, values in named(block) if not onhost.select(state, onhost.Config(values))]
    if absent:
        present = ", ".join(f"{each.address} ({each.identifier})" for each in state.functions if each.is_gpu) or "none"
        return fail("each GPU of passthrough.gpus", f"missing: {', '.join(absent)}; GPUs: {present}", "correct gpus")
    if block.nvswitches and not any(function.is_switch for function in state.functions):
        fix = "nvswitches: false; those of B200 and B300 are not PCI functions"
        return fail("NVSwitches on the bus", "none", fix)
    chosen = [each.address for each in list_lent(ctx)]
    return ok(f"{counted(len(chosen), 'function')} to lend: {' '.join(chosen)}") if chosen else not_asked(NONE)


@check("passthrough.clients", PASSTHROUGH, fields=("gpus",), gate=True, evidence="lsof /dev/vfio/*")
def clients(ctx: Ctx) -> Outcome:
    """No virtual machine has a GPU that the spec moves to another driver."""
    if held := "; ".join(onhost.list_held(list_moves(ctx))):
        return fail("free GPUs", held, "shut these virtual machines down, or detach the GPUs; then apply again")
    return ok("no virtual machine has a GPU that moves")


@check("passthrough.group", PASSTHROUGH, fields=("gpus",), gate=True, evidence=GROUPS)
def group(ctx: Ctx) -> Outcome:
    """Each IOMMU group with a lent GPU is wholly lent: no other device of it has a driver of this host."""
    others = onhost.list_neighbours(ctx.facts.get(PASSTHROUGH).state, parse_block(ctx.fragment))
    if message := "; ".join(f"group {on.group}: {on.address} ({on.identifier}) has {on.driver}" for on in others):
        fix = "lend it too if it is a GPU; else another slot, or ACS in the firmware (lspci -vvv | grep ACSCap)"
        return fail("groups with lent devices only", message, fix)
    groups = {each.group for each in list_lent(ctx)} - {""}
    return ok(f"{counted(len(groups), 'group')} wholly lent") if groups else not_asked("no group with a lent GPU yet")


@check("passthrough.iommu", PASSTHROUGH, boot.COMMAND_LINE, fields=("gpus",), evidence=GROUPS)
def iommu(ctx: Ctx) -> Outcome:
    """The IOMMU is on: each lent function is in a group. kernel.boot_entries checks its parameters for the next
    boot."""
    lent = list_lent(ctx)
    if not lent:
        return not_asked(NONE)
    if without := " ".join(function.address for function in lent if not function.group):
        parameters, running = parameters_of(ctx.host), ctx.facts.get(boot.COMMAND_LINE)
        if any(running.get(key) != value for key, value in parameters.items()):
            reason = (
                f"the kernel should be started with {' '.join(f'{key}={value}' for key, value in parameters.items())}"
            )
            return fail("IOMMU groups", f"none of {without}", f"{APPLY}, then a reboot", reboot=reason)
        fix = "switch the IOMMU on in the firmware: VT-d, AMD-Vi or SMMU"
        return fail("IOMMU groups", f"none of {without}", fix)
    return ok(f"{counted(len(lent), 'lent function')} in IOMMU groups")


@check("passthrough.bound", PASSTHROUGH, fields=FIELDS, evidence=BUS)
def bound(ctx: Ctx) -> Outcome:
    """Each lent function is bound to its driver for virtual machines, and those that are lent no longer are given
    back."""
    moves, lent = list_moves(ctx), list_lent(ctx)
    if moves:
        rows = [
            (each.function.address, each.function.driver or "no driver", each.driver or "given back") for each in moves
        ]
        changes = [Change(kind="setting", name=name, before=before, after=after) for name, before, after in rows]
        reboot = OFF if is_without_iommu(ctx) else ""
        return fail("lent GPUs with their drivers", "; ".join(map(str, moves)), APPLY, changes=changes, reboot=reboot)
    return ok(f"{counted(len(lent), 'function')} with {ctx.fragment.driver}") if lent else not_asked(NONE)


CHECKS = (hardware, clients, group, iommu, bound)
