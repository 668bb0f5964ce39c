"""Checks that the host supports its kernel's configuration, made before anything of it is written."""

from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.kernel.machine import elsewhere
from gpuprov.capabilities.kernel.now import listed
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.host import hardware, system, virtualization
from gpuprov.facts.probes.kernel import boot, modules
from gpuprov.facts.probes.kernel.modules import underscored
from gpuprov.spec.kernel import HUGEPAGE_KIB, Kernel

Ctx = Context[Kernel]


@check(
    "kernel.bootloader",
    *(boot.BOOTLOADER, system.CONTAINER),
    fields=("command_line",),
    moment="preflight",
    evidence="ls /boot",
)
def bootloader(ctx: Ctx) -> Outcome:
    """A GRUB that accepts a command line is installed, if the spec asks for one."""
    if not ctx.fragment.command_line:
        return not_asked()
    absent = ctx.facts.get(boot.BOOTLOADER)
    if absent:
        kind = ctx.facts.get(system.CONTAINER)
        where = " (a container has no command line of its own)" if kind else ""
        fix = "take command_line out of the spec, and set it in the bootloader by hand"
        return fail(f"GRUB, for {listed(ctx.fragment.command_line)}", f"no {', '.join(absent)}{where}", fix)
    return ok("GRUB")


@check(
    "kernel.sysctl_known",
    *(boot.SYSCTL, boot.SYSCTL_FIXED, modules.LOADED, modules.BUILT_IN, system.CONTAINER),
    fields=("sysctl",),
    moment="preflight",
    evidence="sysctl -a",
)
def sysctl_known(ctx: Ctx) -> Outcome:
    """The kernel has every sysctl, or a module that may bring it is yet to be loaded; and root can write it."""
    if not ctx.fragment.sysctl:
        return not_asked()
    container = bool(ctx.facts.get(system.CONTAINER))
    present = {*ctx.facts.get(modules.LOADED), *ctx.facts.get(modules.BUILT_IN)}
    coming = [] if container else [name for name in ctx.fragment.modules_load if underscored(name) not in present]
    current, fixed = ctx.facts.get(boot.SYSCTL), ctx.facts.get(boot.SYSCTL_FIXED)
    names = ", ".join(ctx.fragment.sysctl)
    if (absent := [name for name in ctx.fragment.sysctl if name not in current and name not in fixed]) and not coming:
        fix = "correct the name, or name its module in kernel.modules_load"
        return fail(names, f"no {', '.join(absent)}, and no module is still to be loaded that could bring it", fix)
    expected = {name: " ".join(str(value).split()) for name, value in ctx.fragment.sysctl.items()}
    if stuck := [name for name, value in expected.items() if name in fixed and current.get(name) != value]:
        where = " (a container sees the settings of its machine, most of them read-only)" if container else ""
        fix = "set it on the machine below" if container else "a kernel that has it writable"
        return fail(
            names, f"{', '.join(stuck)} cannot be set, not even by root{where}", f"{fix}, or take it out of the spec"
        )
    return ok(f"{counted(len(expected), 'sysctl')} can be set")


@check(
    "kernel.hugepage_sizes",
    *(hardware.HUGEPAGES, hardware.DEFAULT_HUGEPAGE),
    fields=("hugepages",),
    moment="preflight",
    evidence="ls /sys/kernel/mm/hugepages; grep Hugepagesize /proc/meminfo",
)
def hugepage_sizes(ctx: Ctx) -> Outcome:
    """The processor has pages of each size, and pages of 2M are those that vm.nr_hugepages counts."""
    requested = ctx.fragment.hugepages
    if not requested:
        return not_asked()
    offered, default = ctx.facts.get(hardware.HUGEPAGES), ctx.facts.get(hardware.DEFAULT_HUGEPAGE)
    expected = "pages of " + ", ".join(requested)
    if absent := [size for size in requested if HUGEPAGE_KIB[size] not in offered]:
        has = ", ".join(f"{size} KiB" for size in sorted(offered)) or "none"
        return fail(expected, f"no pages of {', '.join(absent)}; there are: {has}", "another size")
    if "2M" in requested and default != HUGEPAGE_KIB["2M"]:
        message = f"vm.nr_hugepages counts pages of the default size, which is {default} KiB here"
        return fail(expected, message, "take default_hugepagesz off the command line")
    return ok(expected)


@check(
    "kernel.governor_offered",
    *(hardware.FREQUENCY, virtualization.MACHINE, system.CONTAINER),
    fields=("cpu_governor",),
    moment="preflight",
    evidence="head -v /sys/devices/system/cpu/cpufreq/policy*/scaling_available_governors; systemd-detect-virt",
)
def governor_offered(ctx: Ctx) -> Outcome:
    """The frequency driver has the governor; a virtual machine or a container cannot set the frequency."""
    target = ctx.fragment.cpu_governor
    if target == "keep":
        return not_asked()
    if reason := elsewhere(ctx):
        return skip(reason)
    policies = ctx.facts.get(hardware.FREQUENCY).policies
    if not policies:
        message = (
            "no CPU has a governor: no frequency driver (intel_pstate, amd-pstate, cppc_cpufreq), "
            "or the firmware keeps frequencies"
        )
        return fail(f"governor {target}", message, "set it in the firmware, or cpu_governor: keep")
    if lacking := sorted({name for policy in policies for name in policy.available if target not in policy.available}):
        return fail(f"governor {target}", f"the driver has {', '.join(lacking)}", "one of these")
    return ok(f"{target} in {counted(len(policies), 'policy')}")


CHECKS = (bootloader, sysctl_known, hugepage_sizes, governor_offered)
