"""The kernel that the next boot starts, and the one that boots after it: by the bootloader, else the newest."""

import msgspec

from gpuprov.capabilities.base import Outcome, not_asked, skip
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.kernel import modules
from gpuprov.facts.probes.kernel.modules import KernelModules
from gpuprov.facts.probes.kernel.next_boot import NEXT_BOOT, NextBoot
from gpuprov.rules import package_lists


class Coming(msgspec.Struct, frozen=True, kw_only=True):
    """`kernel` starts at the next boot; if only once, `after` from the second boot on (None: unknown).

    `note`: how that is known, for messages: by an unusual setting, or not at all. A kernel that cannot boot with the
    files here, such as a rescue entry or a removed kernel, is not `bootable`, and has no modules.
    """

    kernel: KernelModules
    once: bool = False
    after: KernelModules | None = None
    note: str = ""

    @property
    def each(self) -> tuple[KernelModules, ...]:
        """The kernels that will be started, the next one first."""
        return (self.kernel, self.after) if self.after and self.after != self.kernel else (self.kernel,)


def coming(facts: Facts) -> Coming | None:
    """Return the kernel that boots next; None if there is no kernel that can boot."""
    bootable = {fact.release: fact for fact in facts.get(modules.KERNELS) if fact.bootable}
    if not bootable:
        return None
    newest = max(bootable.values(), key=lambda kernel: package_lists.rpm_order(kernel.release))
    try:
        next_boot = facts.get(NEXT_BOOT)
    except ProbeFailed as error:
        next_boot = NextBoot(unknown=str(error))

    def named(release: str) -> KernelModules:
        bare = KernelModules(release=release, bootable=False, headers=False, nvidia="", nouveau=False)
        return bootable.get(release, bare)

    kernel = named(next_boot.kernel) if next_boot.kernel else newest
    after = named(next_boot.after) if next_boot.once and next_boot.after else None
    then = f", then {after.release if after else 'another one that is not known'}" if next_boot.once else ""
    if not next_boot.kernel:
        origin = f"taken to be the newest: {next_boot.unknown}{then}"
    elif next_boot.once:
        origin = f"{next_boot.loader} starts it one time ({next_boot.by}){then}"
    else:
        origin = f"{next_boot.loader}: {next_boot.by}" if kernel != newest else ""
    return Coming(kernel=kernel, once=next_boot.once, after=after, note=origin)


def none_boots(facts: Facts) -> Outcome:
    """Return the outcome of a host for which `coming` returns None."""
    if kind := facts.get(system.CONTAINER):
        return not_asked(f"no kernel can boot here: a {kind} container's is the machine's")
    return skip("neither /boot nor /lib/modules has a kernel to boot: is /boot mounted?")


def started(facts: Facts) -> frozenset[str]:
    """Return kernels that must have their modules whatever becomes of others: the running kernel, and those of the next
    boots."""
    next_ones = coming(facts)
    running = (fact.release for fact in facts.get(modules.KERNELS) if fact.runs)
    return frozenset((*running, *(kernel.release for kernel in (next_ones.each if next_ones else ()))))
