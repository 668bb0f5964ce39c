"""What the next boot would load in place of the driver's modules: old ones of an initramfs, or none."""

from __future__ import annotations

import pytest

from tests.capabilities.asking import Row, initrd, judge

INITRAMFS = "nvidia_driver.initramfs"
KERNEL = "6.1.0-47-amd64"
MODULE = f"usr/lib/modules/{KERNEL}/updates/dkms/nvidia-current.ko"
ROWS = [
    Row("modules of now", INITRAMFS, None, {}, "pass", "no older NVIDIA module in 1 images"),
    Row("modules of before", INITRAMFS, None, {"initramfs": initrd(MODULE, "older")}, "fail", f"inside: /boot/initrd.img-{KERNEL}",
        "update-initramfs -u -k all", change=f"initramfs /boot/initrd.img-{KERNEL}:  -> rebuilt"),
    Row("the kernel's own nvidiafb", INITRAMFS, None, {"initramfs": initrd(f"{KERNEL}/kernel/nvidiafb.ko", "older")}, "pass"),
    Row("an image that cannot be read", INITRAMFS, None, {"initramfs": initrd(status=1)}, "skip", "not readable"),
    Row("no image", INITRAMFS, None, {"initramfs": ""}, "skip", "no initramfs in /boot"),
]  # fmt: skip


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_loading(row: Row) -> None:
    judge(row)
