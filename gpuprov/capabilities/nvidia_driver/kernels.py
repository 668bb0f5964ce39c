"""`kernel_upgrades`: the state of the driver once the distribution brings a new kernel, checked before that kernel boots."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable

from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.booting import Coming, coming, none_boots
from gpuprov.capabilities.nvidia_driver.fragment import (
    BASE_PROBES,
    NvidiaDriver,
    built_here,
    served,
)
from gpuprov.capabilities.nvidia_driver.holding import holds_kernels
from gpuprov.capabilities.nvidia_driver.installed import installed_version
from gpuprov.capabilities.nvidia_driver.transaction import images
from gpuprov.probe.base import ProbeFailed
from gpuprov.probe.driver.dkms_logs import DKMS_LOGS
from gpuprov.probe.host import system
from gpuprov.probe.host.family import words
from gpuprov.probe.kernel import modules
from gpuprov.probe.kernel.modules import KernelModules
from gpuprov.probe.kernel.next_boot import NEXT_BOOT
from gpuprov.probe.software.packages import PACKAGES
from gpuprov.shared import package_lists
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Problem

Ctx = Context[NvidiaDriver]
HERE = "nvidia_driver"
FIELD = "kernel_upgrades"


def problems(host: HostSpec, driver: NvidiaDriver) -> Iterable[Problem]:
    """Yield what contradicts a policy."""
    path, told = (HERE, FIELD), f"nvidia_driver.{FIELD} is {driver.kernel_upgrades}"
    elsewhere = served(host, driver) or driver.build == "precompiled"
    if driver.kernel_upgrades == "hold" and not driver.hold:
        yield Problem(path=path, message=f"{told}, and nvidia_driver.hold is false", hint="hold: true, or follow")
    if driver.kernel_upgrades == "hold" and driver.source == "runfile":
        message = f"{told}, and of a driver from a runfile gpuprov holds no package"
        yield Problem(
            path=path, message=message, hint="alert; or hold the kernel by hand (apt-mark hold, dnf versionlock)"
        )
    if driver.kernel_upgrades in ("follow", "alert") and elsewhere and driver.hold:
        message = f"{told}, and nothing on the host builds modules for a new kernel: it would boot without a driver"
        yield Problem(path=path, message=message, hint="kernel_upgrades: auto, which holds the kernels; or build: dkms")


@check(
    "nvidia_driver.next_kernel",
    *(*BASE_PROBES, modules.KERNELS, system.PLATFORM, system.CONTAINER, DKMS_LOGS),
    fields=(FIELD,),
    moment="next-boot",
    evidence="ls /boot/vmlinuz-*; grubby --default-kernel; dkms status; apt-mark showhold; dnf versionlock list; zypper locks",
)
def of_next_boot(ctx: Ctx) -> Outcome:
    """The kernel of the next boot has the driver's modules and an initramfs, and a new kernel is installed only as the policy
    allows."""
    ahead, running = coming(ctx.facts), ctx.facts.get(system.PLATFORM).kernel
    if ahead is None:
        return none_boots(ctx.facts)
    kernel, told = ahead.kernel, f" ({ahead.told})" if ahead.told else ""
    policy, wanted = ctx.fragment.kernel_upgrades, installed_version(ctx.fragment, ctx.facts)
    expected = f"{kernel.release} with {wanted or 'a driver'}"
    if bad := next(filter(None, (_lacking(ctx, ahead, one, wanted) for one in ahead.each)), None):
        return bad
    if holds_kernels(ctx):
        known = images(ctx.facts)
        loose = sorted(name for name, held in known.items() if not held)
        command = f"{words(ctx.facts.get(system.OS_RELEASE)).hold} {' '.join(loose)}"
        if loose:
            change = Change(kind="setting", name=command)
            return fail(f"{expected}, and kernels held", f"not held: {' '.join(loose)}", command, changes=[change])
        if not known:
            return fail(
                f"{expected}, and kernels held",
                "no package of a kernel is known",
                "kernel_upgrades: alert; hold it by hand",
            )
        return ok(f"{kernel.release} has {wanted}{told}; held: {' '.join(sorted(known))}", expected)
    if policy == "alert" and (others := [one.release for one in ahead.each if one.release != running]):
        found = f"the next boot starts {kernel.release}, running is {running}{told}"
        hint = f"plan a reboot and verify after it; or remove {others[0]}, or kernel_upgrades: follow"
        return fail(f"{running} at the next boot, too", found, hint)
    runs = ", and runs" if kernel.release == running else f"; running is {running}"
    return ok(f"{kernel.release} has {wanted}{runs}{told}")


def _lacking(ctx: Ctx, ahead: Coming, one: KernelModules, wanted: str) -> Outcome | None:
    """Return the failure that names what a kernel lacks that boots next or after that; None if it lacks nothing."""
    running, told = ctx.facts.get(system.PLATFORM).kernel, f" ({ahead.told})" if ahead.told else ""
    which = "the next boot's" if one is ahead.kernel else "the one that boots after the next"
    bare = not one.initramfs and any(other.initramfs for other in ctx.facts.get(modules.KERNELS) if other.bootable)
    if not one.bootable:
        found = f"{one.release}, {which}, has no modules here: it was removed, or is an entry for a rescue{told}"
        hint = f"have the bootloader start a kernel that is installed{_stay(ctx, one, running)}"
        return fail(f"an installed kernel with {wanted or 'a driver'}", found, hint)
    if one.nvidia != wanted or not wanted or one.alien:
        has = f"{one.nvidia} for {one.built}" if one.alien else one.nvidia or "none"
        found = f"{one.release}, {which}, has {has}{why(ctx, one)}{'; and no initramfs' * bare}{told}"
        return fail(f"{one.release} with {wanted or 'a driver'}", found, _hint(ctx, one, running))
    if bare:
        made = words(ctx.facts.get(system.OS_RELEASE)).make_initramfs.format(one.release)
        found = f"{one.release}, {which}, has no initramfs, as others have: it may not find its disk{told}"
        return fail(f"an initramfs for {one.release}", found, f"{repair(ctx)}{made}{_stay(ctx, one, running)}")
    return None


def why(ctx: Ctx, kernel: KernelModules) -> str:
    """Return why a kernel has no modules: the failure of its build, as its log shows it, or missing headers."""
    for log in ctx.facts.get(DKMS_LOGS):
        if log.kernel == kernel.release:
            return f": its build failed ({log.complaint or 'the log names no error'}; {log.path})"
    if not kernel.headers and not holds_kernels(ctx) and ctx.fragment.build == "dkms":
        return ": it has no headers, so that DKMS builds nothing"
    return ""


def _hint(ctx: Ctx, kernel: KernelModules, running: str) -> str:
    return f"{repair(ctx)}gpuprov apply, which builds for every kernel{_stay(ctx, kernel, running)}"


def before_the_boot(ctx: Ctx, lacking: Collection[str]) -> str:
    """Return what to do until these kernels have their modules, if one of them boots next: for the failure that this one follows
    from."""
    ahead, running = coming(ctx.facts), ctx.facts.get(system.PLATFORM).kernel
    first = next((one for one in (ahead.each if ahead else ()) if one.release in lacking), None)
    told = _stay(ctx, first, running) if first else ""
    return f"{told} ({first.release} boots next)" if first and told else ""


def _stay(ctx: Ctx, kernel: KernelModules, running: str) -> str:
    """Return how to start another kernel that has all it needs; empty if there is none."""
    others = [one for one in built_here(ctx.fragment, ctx.facts) if one.bootable and one is not kernel]
    able = [one.release for one in others if one.nvidia and not one.alien and one.initramfs]
    back = running if running in able else max(able, key=package_lists.rpm_order, default="")
    if not back:
        return ""
    known = words(ctx.facts.get(system.OS_RELEASE))
    choice = _choices(ctx).get(back, "")
    start = known.start_entry.format(shlex.quote(choice)) if choice and known.start_entry else ""
    return f"; until then do not reboot, or have {back} start{', one time' * bool(start)}: {start or known.start_kernel.format(back)}"


def _choices(ctx: Ctx) -> dict[str, str]:
    try:
        return ctx.facts.get(NEXT_BOOT).choices
    except ProbeFailed:
        return {}


def repair(ctx: Ctx) -> str:
    """Return the command that comes first if a kernel's package waits to be configured, as after a failed build: apply refuses to
    continue from there."""
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
        hint = f"kernel_upgrades: alert, and hold the kernel by hand ({words(ctx.facts.get(system.OS_RELEASE)).hold})"
        return fail("packages of kernels that can be held", "none that gpuprov knows", hint)
    return ok(" ".join(sorted(images(ctx.facts))))


CHECKS = (of_next_boot,)
PREFLIGHT = (holdable,)
