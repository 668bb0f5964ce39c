"""Checks of memory and processors: hugepages, the CPU frequency governor, NUMA balancing."""

from __future__ import annotations

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.onhost.at_boot.governor import select_differing
from gpuprov.probe.host import cpu, system, virtualization
from gpuprov.probe.kernel import boot
from gpuprov.shown import counted
from gpuprov.spec.kernel import HUGEPAGE_KIB, NUMA_SYSCTL, Kernel, add_implied

Ctx = Context[Kernel]


@check(
    "kernel.hugepages",
    *(cpu.HUGEPAGES, boot.COMMAND_LINE, system.CONTAINER),
    fields=("hugepages",),
    evidence="head -v /sys/kernel/mm/hugepages/*/nr_hugepages; dmesg | grep HugeTLB",
)
def hugepages(ctx: Ctx) -> Outcome:
    """The kernel holds as many hugepages of each size as the spec asks for; sysctl and command line keep them for the next boot."""
    wanted = ctx.fragment.hugepages
    if not wanted:
        return not_asked()
    if kind := ctx.facts.get(system.CONTAINER):
        return skip(f"{kind} container: hugepages are the machine's")
    found = ctx.facts.get(cpu.HUGEPAGES)
    told = ", ".join(f"{count} x {size}" for size, count in wanted.items())
    absent = [size for size in wanted if HUGEPAGE_KIB[size] not in found]
    if absent:
        has = ", ".join(f"{size} KiB" for size in sorted(found)) or "none"
        return fail(
            told, f"no pages of {', '.join(absent)}; there are: {has}", "another size, or a processor that has it"
        )
    few = {size: found[HUGEPAGE_KIB[size]] for size, count in wanted.items() if found[HUGEPAGE_KIB[size]] < count}
    if few:
        changes = [
            Change(kind="setting", name=f"hugepages {size}", before=str(have), after=str(wanted[size]))
            for size, have in few.items()
        ]
        said = ", ".join(f"{have} x {size}" for size, have in few.items())
        asked = add_implied(ctx.fragment).command_line
        if "1G" in few and asked.items() <= ctx.facts.get(boot.COMMAND_LINE).items():
            hint = "fewer, or more memory; dmesg | grep HugeTLB"
            return fail(told, f"{said}, although the kernel was started with {asked['hugepages']} x 1G", hint)
        reason = f"memory for {told} is free only early in a boot"
        return fail(
            told, said, f"{APPLY}, then a reboot: memory that runs is in pieces", changes=changes, reboot=reason
        )
    return ok(", ".join(f"{found[HUGEPAGE_KIB[size]]} x {size}" for size in wanted), told)


@check(
    "kernel.governor",
    *(cpu.FREQUENCY, virtualization.MACHINE, system.CONTAINER),
    fields=("cpu_governor",),
    evidence=cpu.FREQUENCY.evidence,
)
def governor(ctx: Ctx) -> Outcome:
    """Every CPU has the frequency governor that the spec asks for."""
    asked = ctx.fragment.cpu_governor
    if asked == "keep":
        return not_asked()
    state = ctx.facts.get(cpu.FREQUENCY)
    if why := elsewhere(ctx):
        return skip(why)
    if not state.policies:
        hint = "a frequency driver: intel_pstate, amd-pstate, cppc_cpufreq; the firmware may keep frequencies to itself"
        return fail(f"governor {asked}", "no CPU has a governor", hint)
    unknown = sorted({name for one in state.policies for name in one.available if asked not in one.available})
    if unknown:
        return fail(
            f"governor {asked}", f"the driver has {', '.join(unknown)}", f"kernel: {{cpu_governor: {unknown[0]}}}"
        )
    wrong = select_differing(state.policies, asked)
    if wrong:
        found = ", ".join(sorted({one.governor for one in wrong}))
        change = Change(kind="setting", name=f"governor of {counted(len(wrong), 'policy')}", before=found, after=asked)
        rivals = f"; {', '.join(state.rivals)} may set another" if state.rivals else ""
        return fail(
            f"governor {asked}",
            f"{found} in {len(wrong)} of {len(state.policies)}",
            f"{APPLY}{rivals}",
            changes=[change],
        )
    return ok(f"{asked} in {counted(len(state.policies), 'policy')}")


def elsewhere(ctx: Ctx) -> str:
    """Return why this host cannot set its frequencies; empty if it can."""
    if kind := ctx.facts.get(system.CONTAINER):
        return f"{kind} container: the frequency is the machine's"
    machine = ctx.facts.get(virtualization.MACHINE).kind
    return (
        "the virtual machine has no say in the frequency"
        if machine and not ctx.facts.get(cpu.FREQUENCY).policies
        else ""
    )


@check("kernel.numa_balancing", boot.SYSCTL, fields=("numa_balancing",), evidence=f"sysctl {NUMA_SYSCTL}")
def numa_balancing(ctx: Ctx) -> Outcome:
    """Automatic NUMA balancing of memory is on or off as the spec says; kernel.sysctl checks this for the next boot."""
    asked = ctx.fragment.numa_balancing
    found = ctx.facts.get(boot.SYSCTL).get(NUMA_SYSCTL)
    if asked == "keep":
        return not_asked()
    if found is None:
        return fail(asked, f"this kernel has no {NUMA_SYSCTL}", "kernel: {numa_balancing: keep}: it does not balance")
    # Besides 1, a value of 2 is memory tiering: https://docs.kernel.org/admin-guide/sysctl/kernel.html
    wanted = "0" if asked == "disabled" else "1"
    if found != wanted:
        change = Change(kind="setting", name=NUMA_SYSCTL, before=found, after=wanted)
        return fail(
            f"{NUMA_SYSCTL}={wanted}", f"{NUMA_SYSCTL}={found}", f"{APPLY}; sysctl {NUMA_SYSCTL}", changes=[change]
        )
    return ok(f"{NUMA_SYSCTL}={found}")


CHECKS = (hugepages, governor, numa_balancing)
