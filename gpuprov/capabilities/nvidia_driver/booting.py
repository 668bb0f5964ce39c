"""Which installed kernel the next boot starts, and which one stays: as the bootloader has it, else the newest."""

from __future__ import annotations

import msgspec

from gpuprov.probe.base import Facts, ProbeFailed
from gpuprov.probe.kernel import modules
from gpuprov.probe.kernel.modules import KernelModules
from gpuprov.probe.kernel.next_boot import NEXT_BOOT, NextBoot
from gpuprov.shared import package_lists


class Coming(msgspec.Struct, frozen=True, kw_only=True):
    """`kernel` starts at the next boot; where that is for one time, `after` from the second on (None: not known).

    `told`: how that is known, for messages: by a setting that is not the usual one, or not at all.
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
    """What boots next here; None where no kernel can boot (a container's is the machine's)."""
    bootable = {one.release: one for one in facts.get(modules.KERNELS) if one.bootable}
    if not bootable:
        return None
    newest = max(bootable.values(), key=lambda one: package_lists.rpm_order(one.release))
    try:
        found = facts.get(NEXT_BOOT)
    except ProbeFailed as error:
        found = NextBoot(unknown=str(error))
    if found.kernel not in bootable:
        unknown = found.unknown or f"{found.loader} starts {found.kernel} ({found.by}), which is not in /boot"
        guess = f"taken to be the newest: {unknown}" if len(bootable) > 1 else ""
        return Coming(kernel=newest, told=guess)
    kernel = bootable[found.kernel]
    after = bootable.get(found.after) if found.once else None
    if found.once:
        then = f"then {after.release}" if after else "then another one that is not known"
        return Coming(
            kernel=kernel, once=True, after=after, told=f"{found.loader} starts it one time ({found.by}), {then}"
        )
    told = f"{found.loader}: {found.by}" if kernel != newest else ""
    return Coming(kernel=kernel, told=told)


def started(facts: Facts) -> frozenset[str]:
    """Kernels that must have their modules whatever becomes of others: the running one, and those that boots to come start."""
    next_ones = coming(facts)
    running = (one.release for one in facts.get(modules.KERNELS) if one.runs)
    return frozenset((*running, *(one.release for one in (next_ones.each if next_ones else ()))))
