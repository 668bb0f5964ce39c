"""Which kernel the next boot starts, and which one stays: as the bootloader has it, else the newest."""

from __future__ import annotations

import msgspec

from gpuprov.capabilities.base import Outcome, not_asked, skip
from gpuprov.probe.base import Facts, ProbeFailed
from gpuprov.probe.host import system
from gpuprov.probe.kernel import modules
from gpuprov.probe.kernel.modules import KernelModules
from gpuprov.probe.kernel.next_boot import NEXT_BOOT, NextBoot
from gpuprov.shared import package_lists


class Coming(msgspec.Struct, frozen=True, kw_only=True):
    """`kernel` starts at the next boot; where that is for one time, `after` from the second on (None: not known).

    `told`: how that is known, for messages: by a setting that is not the usual one, or not at all. One that cannot boot with what is
    here, such as a rescue entry or a kernel that was removed, is not `bootable`, and has no modules.
    """

    kernel: KernelModules
    once: bool = False
    after: KernelModules | None = None
    told: str = ""

    @property
    def each(self) -> tuple[KernelModules, ...]:
        """The kernels that will be started, the next one first."""
        return (self.kernel, self.after) if self.after and self.after != self.kernel else (self.kernel,)


def coming(facts: Facts) -> Coming | None:
    """What boots next here; None where no kernel is found that can boot."""
    bootable = {one.release: one for one in facts.get(modules.KERNELS) if one.bootable}
    if not bootable:
        return None
    newest = max(bootable.values(), key=lambda one: package_lists.rpm_order(one.release))
    try:
        found = facts.get(NEXT_BOOT)
    except ProbeFailed as error:
        found = NextBoot(unknown=str(error))

    def named(release: str) -> KernelModules:
        bare = KernelModules(release=release, bootable=False, headers=False, nvidia="", nouveau=False)
        return bootable.get(release, bare)

    kernel = named(found.kernel) if found.kernel else newest
    after = named(found.after) if found.once and found.after else None
    then = f", then {after.release if after else 'another one that is not known'}" if found.once else ""
    if not found.kernel:
        told = f"taken to be the newest: {found.unknown}{then}"
    elif found.once:
        told = f"{found.loader} starts it one time ({found.by}){then}"
    else:
        told = f"{found.loader}: {found.by}" if kernel != newest else ""
    return Coming(kernel=kernel, once=found.once, after=after, told=told)


def none_boots(facts: Facts) -> Outcome:
    """Where `coming` knows nothing."""
    if kind := facts.get(system.CONTAINER):
        return not_asked(f"no kernel can boot here: a {kind} container's is the machine's")
    return skip("neither /boot nor /lib/modules holds a kernel that could start next: is /boot mounted?")


def started(facts: Facts) -> frozenset[str]:
    """Kernels that must have their modules whatever becomes of others: the running one, and those that boots to come start."""
    next_ones = coming(facts)
    running = (one.release for one in facts.get(modules.KERNELS) if one.runs)
    return frozenset((*running, *(one.release for one in (next_ones.each if next_ones else ()))))
