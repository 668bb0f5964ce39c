"""What the next boot would load in place of the driver's modules, or instead of them."""

from __future__ import annotations

from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, ok, skip
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.probe.kernel import initramfs

Ctx = Context[NvidiaDriver]


@check(
    "nvidia_driver.initramfs",
    initramfs.INITRAMFS,
    fields=("version",),
    moment="next-boot",
    evidence=initramfs.INITRAMFS.evidence,
)
def in_initramfs(ctx: Ctx) -> Outcome:
    """No initramfs holds NVIDIA modules of before those of its kernel, which would be loaded and not match the driver's libraries."""
    images = ctx.facts.get(initramfs.INITRAMFS)
    if not images:
        return skip("no initramfs in /boot")
    if unreadable := [image for image in images if not image.readable]:
        return skip(f"not readable: {' '.join(image.image for image in unreadable)}; {unreadable[0].listing}")
    if old := [image for image in images if image.old_driver]:
        changes = [Change(kind="initramfs", name=image.image, after="rebuilt") for image in old]
        told = (
            f"older than the driver's modules, and with NVIDIA modules inside: {' '.join(image.image for image in old)}"
        )
        hint = f"{old[0].rebuild}; without, the next boot ends in Driver/library version mismatch"
        return fail("no older NVIDIA module in any image", told, hint, changes=changes)
    return ok(f"no older NVIDIA module in {len(images)} images")


CHECKS = (in_initramfs,)
