"""Memory and processors: hugepages, the CPU frequency governor, NUMA balancing. What is wanted, and its checks."""

import msgspec

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Context, Outcome, fail, not_asked, skip
from gpuprov.capabilities.compared import Group, compared
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.host import hardware, system, virtualization
from gpuprov.facts.probes.kernel import boot
from gpuprov.host_code.at_boot.governor import select_differing
from gpuprov.host_code.lasting import BOOT
from gpuprov.resources import Setting, Values
from gpuprov.spec.kernel import HUGEPAGE_KIB, NUMA_SYSCTL, Kernel, add_implied

Ctx = Context[Kernel]


def hugepage_settings(kernel: Kernel) -> tuple[Setting, ...]:
    """Return the number of pages of each size."""
    expected = ", ".join(f"{count} x {size}" for size, count in kernel.hugepages.items())
    return tuple(
        Setting(
            kind="hugepages",
            name=f"hugepages {size}",
            key=size,
            value=str(count),
            how="least",
            words="{before} x {key}",
            reboot=f"memory for {expected} is free only early in a boot",
        )
        for size, count in kernel.hugepages.items()
    )


@compared(
    "kernel.hugepages",
    *(hardware.HUGEPAGES, boot.COMMAND_LINE, system.CONTAINER),
    fields=("hugepages",),
    evidence="head -v /sys/kernel/mm/hugepages/*/nr_hugepages; dmesg | grep HugeTLB",
    until=BOOT,
)
def hugepages(ctx: Ctx) -> Group | Outcome:
    """The kernel holds as many hugepages of each size as the spec asks for; sysctl and command line keep them for the
    next boot."""
    requested = ctx.fragment.hugepages
    if not requested:
        return not_asked()
    if kind := ctx.facts.get(system.CONTAINER):
        return skip(f"{kind} container: hugepages are the machine's")
    offered = ctx.facts.get(hardware.HUGEPAGES)
    pages = ", ".join(f"{count} x {size}" for size, count in requested.items())
    if absent := [size for size in requested if HUGEPAGE_KIB[size] not in offered]:
        has = ", ".join(f"{size} KiB" for size in sorted(offered)) or "none"
        found_text = f"no pages of {', '.join(absent)}; there are: {has}"
        return fail(pages, found_text, "another size, or a processor that has it")
    have = {size: offered[HUGEPAGE_KIB[size]] for size in requested}
    command_line, few = add_implied(ctx.fragment).command_line, have.get("1G", 0) < requested.get("1G", 0)
    if few and command_line.items() <= ctx.facts.get(boot.COMMAND_LINE).items():
        actual = f"{have['1G']} x 1G, although the kernel was started with {command_line['hugepages']} x 1G"
        others = tuple(setting for setting in hugepage_settings(ctx.fragment) if setting.key != "1G")
        values: Values = {("", size): str(count) for size, count in have.items()}
        return Group(
            others, values, expected=pages, beside=(actual,), fix="fewer, or more memory; dmesg | grep HugeTLB"
        )
    return Group(
        hugepage_settings(ctx.fragment),
        {("", size): str(count) for size, count in have.items()},
        expected=pages,
        right=", ".join(f"{count} x {size}" for size, count in have.items()),
        fix=f"{APPLY}, then a reboot: memory that runs is in pieces",
    )


@compared(
    "kernel.governor",
    *(hardware.FREQUENCY, virtualization.MACHINE, system.CONTAINER),
    fields=("cpu_governor",),
    evidence=hardware.FREQUENCY.evidence,
    until=BOOT,
)
def governor(ctx: Ctx) -> Group | Outcome:
    """Every CPU has the frequency governor that the spec asks for."""
    target = ctx.fragment.cpu_governor
    if target == "keep":
        return not_asked()
    state = ctx.facts.get(hardware.FREQUENCY)
    if why := elsewhere(ctx):
        return skip(why)
    if not state.policies:
        fix = "a frequency driver: intel_pstate, amd-pstate, cppc_cpufreq; the firmware may keep frequencies to itself"
        return fail(f"governor {target}", "no CPU has a governor", fix)
    unknown = sorted({name for policy in state.policies for name in policy.available if target not in policy.available})
    if unknown:
        fix = f"kernel: {{cpu_governor: {unknown[0]}}}"
        return fail(f"governor {target}", f"the driver has {', '.join(unknown)}", fix)
    wrong = select_differing(state.policies, target)
    message = f"{', '.join(sorted({policy.governor for policy in wrong}))} in {len(wrong)} of {len(state.policies)}"
    setting = Setting(kind="governor", name="governor", value=target, before=message)
    return Group(
        tuple(msgspec.structs.replace(setting, device=policy.name) for policy in state.policies),
        {(policy.name, ""): policy.governor for policy in state.policies},
        expected=f"governor {target}",
        right=f"{target} in {counted(len(state.policies), 'policy')}",
        message=message,
        fix=f"{APPLY}; {', '.join(state.rivals)} may set another" if state.rivals else APPLY,
    )


def elsewhere(ctx: Ctx) -> str:
    """Return why this host cannot set its frequencies; empty if it can."""
    if kind := ctx.facts.get(system.CONTAINER):
        return f"{kind} container: the frequency is the machine's"
    machine = ctx.facts.get(virtualization.MACHINE).kind
    return (
        "a virtual machine cannot set CPU frequencies"
        if machine and not ctx.facts.get(hardware.FREQUENCY).policies
        else ""
    )


@compared(
    "kernel.numa_balancing", boot.SYSCTL, fields=("numa_balancing",), evidence=f"sysctl {NUMA_SYSCTL}", until=BOOT
)
def numa_balancing(ctx: Ctx) -> Group | Outcome:
    """Automatic NUMA balancing of memory is on or off as the spec says; kernel.sysctl checks this for the next boot."""
    setting = ctx.fragment.numa_balancing
    actual = ctx.facts.get(boot.SYSCTL).get(NUMA_SYSCTL)
    if setting == "keep":
        return not_asked()
    if actual is None:
        return fail(setting, f"this kernel has no {NUMA_SYSCTL}", "kernel: {numa_balancing: keep}: it does not balance")
    # Besides 1, a value of 2 is memory tiering: https://docs.kernel.org/admin-guide/sysctl/kernel.html
    target = Setting(kind=NUMA_SYSCTL, key=NUMA_SYSCTL, value="0" if setting == "disabled" else "1")
    return Group((target,), {("", NUMA_SYSCTL): actual}, fix=f"{APPLY}; sysctl {NUMA_SYSCTL}")


CHECKS = (hugepages, governor, numa_balancing)
