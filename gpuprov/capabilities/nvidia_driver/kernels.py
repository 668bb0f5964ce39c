"""`kernel_upgrades`: the state of the driver once the distribution brings a new kernel, checked before that kernel
boots."""

import shlex
from collections.abc import Collection, Iterable

from gpuprov.capabilities.answers import list_holds
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.booting import Coming, coming, none_boots
from gpuprov.capabilities.nvidia_driver.fragment import BASE_PROBES, NvidiaDriver, built_here, served
from gpuprov.capabilities.nvidia_driver.transaction import holds_kernels, images, installed_version
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.driver.dkms_logs import DKMS_LOGS
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import words
from gpuprov.facts.probes.kernel import modules
from gpuprov.facts.probes.kernel.modules import KernelModules
from gpuprov.facts.probes.kernel.next_boot import NEXT_BOOT
from gpuprov.facts.probes.software.packages import PACKAGES
from gpuprov.rules import package_lists
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Problem

Ctx = Context[NvidiaDriver]
HERE = "nvidia_driver"
FIELD = "kernel_upgrades"


def problems(host: HostSpec, driver: NvidiaDriver) -> Iterable[Problem]:
    """Yield what contradicts a policy."""
    path, prefix = (HERE, FIELD), f"nvidia_driver.{FIELD} is {driver.kernel_upgrades}"
    elsewhere = served(host, driver) or driver.build == "precompiled"
    if driver.kernel_upgrades == "hold" and not driver.hold:
        yield Problem(path=path, message=f"{prefix}, and nvidia_driver.hold is false", fix="hold: true, or follow")
    if driver.kernel_upgrades == "hold" and driver.source == "runfile":
        message = f"{prefix}, and of a driver from a runfile gpuprov holds no package"
        yield Problem(
            path=path, message=message, fix="alert; or hold the kernel by hand (apt-mark hold, dnf versionlock)"
        )
    if driver.kernel_upgrades in ("follow", "alert") and elsewhere and driver.hold:
        message = f"{prefix}, and nothing on the host builds modules for a new kernel: it would boot without a driver"
        yield Problem(path=path, message=message, fix="kernel_upgrades: auto, which holds the kernels; or build: dkms")


@check(
    "nvidia_driver.next_kernel",
    *(*BASE_PROBES, modules.KERNELS, system.PLATFORM, system.CONTAINER, DKMS_LOGS),
    fields=(FIELD,),
    moment="next-boot",
    evidence="ls /boot/vmlinuz-*; grubby --default-kernel; dkms status; apt-mark showhold; dnf versionlock list; "
    "zypper locks",
)
def of_next_boot(ctx: Ctx) -> Outcome:
    """The kernel of the next boot has the driver's modules and an initramfs, and a new kernel is installed only as the
    policy allows."""
    ahead, running = coming(ctx.facts), ctx.facts.get(system.PLATFORM).kernel
    if ahead is None:
        return none_boots(ctx.facts)
    kernel, suffix = ahead.kernel, f" ({ahead.note})" if ahead.note else ""
    policy, version = ctx.fragment.kernel_upgrades, installed_version(ctx.fragment, ctx.facts)
    expected = f"{kernel.release} with {version or 'a driver'}"
    if bad := next(filter(None, (_find_lacking(ctx, ahead, kernel, version) for kernel in ahead.each)), None):
        return bad
    if holds_kernels(ctx):
        known = images(ctx.facts)
        loose = sorted(name for name, held in known.items() if not held)
        command = f"{words(ctx.facts.get(system.OS_RELEASE)).hold} {' '.join(loose)}"
        if loose:
            message = f"not held: {' '.join(loose)}"
            return fail(f"{expected}, and kernels held", message, command, changes=list_holds(loose))
        if not known:
            return fail(
                f"{expected}, and kernels held",
                "no package of a kernel is known",
                "kernel_upgrades: alert; hold it by hand",
            )
        return ok(f"{kernel.release} has {version}{suffix}; held: {' '.join(sorted(known))}", expected)
    if policy == "alert" and (others := [kernel.release for kernel in ahead.each if kernel.release != running]):
        message = f"the next boot starts {kernel.release}, running is {running}{suffix}"
        fix = f"plan a reboot and verify after it; or remove {others[0]}, or kernel_upgrades: follow"
        return fail(f"{running} at the next boot, too", message, fix)
    runs = ", and runs" if kernel.release == running else f"; running is {running}"
    return ok(f"{kernel.release} has {version}{runs}{suffix}")


def _find_lacking(ctx: Ctx, ahead: Coming, kernel_modules: KernelModules, version: str) -> Outcome | None:
    """Return the failure that names what a kernel lacks that boots next or after that; None if it lacks nothing."""
    running, suffix = ctx.facts.get(system.PLATFORM).kernel, f" ({ahead.note})" if ahead.note else ""
    which = "the next boot's" if kernel_modules is ahead.kernel else "the one that boots after the next"
    bare = not kernel_modules.initramfs and any(
        other.initramfs for other in ctx.facts.get(modules.KERNELS) if other.bootable
    )
    if not kernel_modules.bootable:
        message = (
            f"{kernel_modules.release}, {which}, has no modules here: it was removed, or is an entry for a "
            f"rescue{suffix}"
        )
        fix = f"have the bootloader start a kernel that is installed{_suggest_kernel(ctx, kernel_modules, running)}"
        return fail(f"an installed kernel with {version or 'a driver'}", message, fix)
    if kernel_modules.nvidia != version or not version or kernel_modules.alien:
        has = (
            f"{kernel_modules.nvidia} for {kernel_modules.built}"
            if kernel_modules.alien
            else kernel_modules.nvidia or "none"
        )
        message = (
            f"{kernel_modules.release}, {which},"
            f" has {has}{why(ctx, kernel_modules)}{'; and no initramfs' * bare}{suffix}"
        )
        return fail(
            f"{kernel_modules.release} with {version or 'a driver'}", message, _make_fix(ctx, kernel_modules, running)
        )
    if bare:
        made = words(ctx.facts.get(system.OS_RELEASE)).make_initramfs.format(kernel_modules.release)
        message = (
            f"{kernel_modules.release}, {which}, has no initramfs, as others have: it may not find its disk{suffix}"
        )
        return fail(
            f"an initramfs for {kernel_modules.release}",
            message,
            f"{repair(ctx)}{made}{_suggest_kernel(ctx, kernel_modules, running)}",
        )
    return None


def why(ctx: Ctx, kernel: KernelModules) -> str:
    """Return why a kernel has no modules: the failure of its build, as its log shows it, or missing headers."""
    for log in ctx.facts.get(DKMS_LOGS):
        if log.kernel == kernel.release:
            return f": its build failed ({log.complaint or 'the log names no error'}; {log.path})"
    if not kernel.headers and not holds_kernels(ctx) and ctx.fragment.build == "dkms":
        return ": it has no headers, so that DKMS builds nothing"
    return ""


def _make_fix(ctx: Ctx, kernel: KernelModules, running: str) -> str:
    return f"{repair(ctx)}gpuprov apply, which builds for every kernel{_suggest_kernel(ctx, kernel, running)}"


def before_the_boot(ctx: Ctx, lacking: Collection[str]) -> str:
    """Return what to do until these kernels have their modules, if one of them boots next: for the failure that this
    one follows from."""
    ahead, running = coming(ctx.facts), ctx.facts.get(system.PLATFORM).kernel
    first = next((kernel for kernel in (ahead.each if ahead else ()) if kernel.release in lacking), None)
    advice = _suggest_kernel(ctx, first, running) if first else ""
    return f"{advice} ({first.release} boots next)" if first and advice else ""


def _suggest_kernel(ctx: Ctx, kernel: KernelModules, running: str) -> str:
    """Return how to start another kernel that has all it needs; empty if there is none."""
    others = [other for other in built_here(ctx.fragment, ctx.facts) if other.bootable and other is not kernel]
    able = [other.release for other in others if other.nvidia and not other.alien and other.initramfs]
    back = running if running in able else max(able, key=package_lists.rpm_order, default="")
    if not back:
        return ""
    known = words(ctx.facts.get(system.OS_RELEASE))
    choice = _map_choices(ctx).get(back, "")
    start = known.start_entry.format(shlex.quote(choice)) if choice and known.start_entry else ""
    return (
        f"; until then do not reboot, or have {back} start{', one time' * bool(start)}: "
        f"{start or known.start_kernel.format(back)}"
    )


def _map_choices(ctx: Ctx) -> dict[str, str]:
    try:
        return ctx.facts.get(NEXT_BOOT).choices
    except ProbeFailed:
        return {}


def repair(ctx: Ctx) -> str:
    """Return the command that comes first if a kernel's package waits to be configured, as after a failed build: apply
    refuses to continue from there."""
    known = ctx.facts.get(PACKAGES)
    if all(known[name].whole for name in images(ctx.facts)):
        return ""
    return f"{words(ctx.facts.get(system.OS_RELEASE)).repair}, once the build works; then "


@check(
    "nvidia_driver.kernels_held",
    *(*BASE_PROBES, modules.KERNELS, system.CONTAINER),
    fields=(FIELD,),
    moment="preflight",
    evidence="dpkg -l 'linux-image*'; rpm -qa 'kernel*'",
)
def holdable(ctx: Ctx) -> Outcome:
    """If kernels are to be held, the packages that bring them are known."""
    if ctx.fragment.kernel_upgrades != "hold":
        return not_asked("kernels need not be held")
    if coming(ctx.facts) is None:
        return none_boots(ctx.facts)
    if not images(ctx.facts):
        fix = f"kernel_upgrades: alert, and hold the kernel by hand ({words(ctx.facts.get(system.OS_RELEASE)).hold})"
        return fail("packages of kernels that can be held", "none that gpuprov knows", fix)
    return ok(" ".join(sorted(images(ctx.facts))))


CHECKS = (of_next_boot,)
PREFLIGHT = (holdable,)
