"""Bugs of kernels: in-tree drivers that take the GPU, and kernels that move on without headers or modules."""

from __future__ import annotations

from typing import Any

from tests.capabilities.asking import H100, initrd, packages
from tests.facts.probes import captured
from tests.historic.listed import caught

NOUVEAU_KO = "usr/lib/modules/6.1.0-47-amd64/kernel/drivers/gpu/drm/nouveau/nouveau.ko"
ONLY_NOUVEAU = "blacklist nouveau\noptions nouveau modeset=0\n"
ANOTHER_HAS_THE_GPU: dict[str, Any] = {
    "loaded_driver": "",
    "driver_parameters": "",
    "nvidia_smi": captured("nvidia_smi", "no_module", 9),
}
WITHOUT_DRIVER = ("nvidia_driver.loaded", "nvidia_driver.user_space", "persistence.mode_on")
NEXT = "6.1.0-48-amd64"


TOLD_BEFORE = ["nvidia_driver.next_kernel"]
"""What says it of the next boot's kernel alone."""


def test_11_no_headers() -> None:
    told = caught(
        "11",
        "nvidia_driver.headers",
        along=["nvidia_driver.modules_built", "nvidia_driver.next_kernel"],
        kernels="6.1.0-47-amd64|1|0||1\n",
    )
    assert [change.name for change in told["nvidia_driver.headers"].changes] == ["linux-headers-6.1.0-47-amd64"]


def test_12_nouveau_is_still_there() -> None:
    told = caught(
        "12",
        "nouveau.running",
        along=WITHOUT_DRIVER,
        nvidia_functions=H100.replace("nvidia", "nouveau"),
        loaded_modules="nouveau 2433024 1 - Live 0x0000000000000000\n",
        **ANOTHER_HAS_THE_GPU,
    )
    assert told["nouveau.running"].reboot
    caught("12", "nouveau.configured", along=["kernel.blacklist"], modprobe_config="options nouveau modeset=0\n")
    told = caught("12", "nouveau.initramfs", along=["kernel.initramfs"], initramfs=initrd(NOUVEAU_KO, fresh=False))
    assert told["nouveau.initramfs"].moment == "next-boot"


def test_13_nova_core_binds_the_gpu() -> None:
    bound: dict[str, Any] = {"nvidia_functions": H100.replace("nvidia", "NovaCore"), **ANOTHER_HAS_THE_GPU}
    for loaded in ("nova_core 65536 0 - Live 0x0000000000000000\n", ""):  # a module, or built into the kernel
        told = caught(
            "13",
            "nouveau.running",
            "nouveau.configured",
            along=[*WITHOUT_DRIVER, "kernel.blacklist"],
            modprobe_config=ONLY_NOUVEAU,
            loaded_modules=loaded,
            **bound,
        )
        assert "0000:19:00.0 (NovaCore)" in told["nouveau.running"].found
        assert told["nouveau.running"].reboot


def test_14_the_kernel_moved_on() -> None:
    images = initrd() + initrd(release=NEXT)
    now = "6.1.0-47-amd64|1|1|535.261.03|1\n"
    told = caught(
        "14",
        "nvidia_driver.headers",
        "nvidia_driver.modules_built",
        along=TOLD_BEFORE,
        initramfs=images,
        kernels=now + f"{NEXT}|1|0||1\n",
    )
    assert f"none for {NEXT}" in told["nvidia_driver.headers"].found
    assert {result.moment for result in told.values()} == {"next-boot"}
    one = now + f"{NEXT}|1|1||1\n"
    caught("14", "nvidia_driver.modules_built", along=TOLD_BEFORE, initramfs=images, kernels=one)
    one = now + f"{NEXT}|1|1|535.216.03|1\n"
    caught("14", "nvidia_driver.modules_built", along=TOLD_BEFORE, initramfs=images, kernels=one)
    caught("14", "nvidia_driver.autobuild", dkms_no_autoinstall="1\n")
    image = "ii |linux-image-amd64|6.1.174-1|linux-signed-amd64\n"
    told = caught("14", "nvidia_driver.headers", packages=packages() + image)
    assert "the next kernel comes without: linux-headers-amd64" in told["nvidia_driver.headers"].found
