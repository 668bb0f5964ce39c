"""What the next boot would load in place of the driver's modules: old ones of an initramfs, or none."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.nvidia_driver.loading import in_initramfs
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import H100, Row, facts, good, initrd, judge

INITRAMFS, AWAY = "nvidia_driver.initramfs", "nvidia_driver.kept_away"
IDS = "options vfio-pci ids=10DE:2330,10de:22a3"
KERNEL = "6.1.0-47-amd64"
MODULE = f"usr/lib/modules/{KERNEL}/updates/dkms/nvidia-current.ko"


def modprobe(*lines: str) -> dict[str, str]:
    return {"modprobe_config": "".join(f"{line}\n" for line in ("blacklist nouveau", *lines))}


def entries(*words: str, kernel: str = KERNEL) -> dict[str, str]:
    return {"boot_entries": "".join(f"\tlinux\t/boot/vmlinuz-{kernel} root=/dev/vda1 ro {one}\n" for one in words)}


def both(other: str) -> dict[str, str]:
    return entries("quiet", other)


ROWS = [
    Row("modules of now", INITRAMFS, None, {}, "pass", "no older NVIDIA module in 1 image"),
    Row("modules of before", INITRAMFS, None, {"initramfs": initrd(MODULE, "older")}, "fail", f"inside: /boot/initrd.img-{KERNEL}",
        "update-initramfs -u -k all"),
    Row("the kernel's own nvidiafb", INITRAMFS, None, {"initramfs": initrd(f"{KERNEL}/kernel/nvidiafb.ko", "older")}, "pass"),
    Row("an image that cannot be read", INITRAMFS, None, {"initramfs": initrd(status=1)}, "skip", "not readable"),
    Row("nothing keeps it away", AWAY, None, {}, "pass", "nothing does"),
    Row("a command that loads nothing", AWAY, None, modprobe("install nvidia /bin/false"), "fail",
        "install nvidia /bin/false (modprobe.d)", "grep -rn install /etc/modprobe.d"),
    Row("the same of nvidia-uvm", AWAY, None, modprobe("install nvidia-uvm /usr/bin/true # cis"), "fail", "install nvidia_uvm"),
    Row("Debian's own commands", AWAY, None, modprobe("install nvidia modprobe -i nvidia-current $CMDLINE_OPTS",
        "install nvidia-drm modprobe nvidia-modeset ; modprobe -i nvidia-current-drm $CMDLINE_OPTS",
        "install floppy /bin/true", "softdep nvidia post: nvidia-uvm"), "pass", "nothing does"),
    Row("a blacklist", AWAY, None, modprobe("blacklist nvidia"), "pass", "by name loads it, as nvidia-modprobe does: nvidia"),
    Row("a blacklist in the entries", AWAY, None, entries("modprobe.blacklist=nvidia,nvidia_uvm"), "pass", "nvidia nvidia_uvm"),
    Row("the kernel's own", AWAY, None, entries("module_blacklist=nouveau,nvidia"), "fail",
        "module_blacklist=nouveau,nvidia (boot entries)", "update-grub"),
    Row("nouveau's alone", AWAY, None, entries("module_blacklist=nouveau"), "pass"),
    Row("in what gpuprov keeps", AWAY, None, both("gpuprov.kept module_blacklist=nvidia"), "pass"),
    Row("in a rescue entry", AWAY, None, both("single module_blacklist=nvidia"), "pass"),
    Row("in all but a rescue entry", AWAY, None, entries("module_blacklist=nvidia", "recovery"), "fail", "module_blacklist=nvidia"),
    Row("in all but what gpuprov keeps", AWAY, None, entries("module_blacklist=nvidia", "gpuprov.kept"), "fail", "nvidia (boot"),
    Row("in one of two", AWAY, None, both("module_blacklist=nvidia"), "pass"),
    Row("in another kernel's", AWAY, None, entries("module_blacklist=nvidia", kernel="6.0"), "pass"),
    Row("vfio-pci, which is not loaded early", AWAY, None, modprobe(IDS), "pass", "nothing loads vfio-pci early"),
    Row("vfio-pci by modules-load.d", AWAY, None, {**modprobe(IDS), "modules_load": "vfio-pci\n"}, "fail",
        "vfio-pci ids=10DE:2330,10de:22a3 (modprobe.d), which takes 0000:19:00.0", "grep -rn vfio /etc/modprobe.d"),
    Row("vfio-pci by a softdep", AWAY, None, modprobe(IDS, "softdep nvidia pre: vfio-pci"), "fail", "takes 0000:19:00.0"),
    Row("vfio-pci in an initramfs", AWAY, None, {**modprobe(IDS), "initramfs": initrd("a/vfio-pci.ko.zst")}, "fail", "takes"),
    Row("vfio-pci in the kernel", AWAY, None, {**entries("vfio-pci.ids=10de:2330"), "built_in_modules": "vfio-pci\n"}, "fail",
        "vfio-pci ids=10de:2330 (boot entries), which takes 0000:19:00.0", "take vfio-pci.ids out"),
    Row("another GPU's", AWAY, None, {**modprobe("options vfio-pci ids=10de:1db6"), "modules_load": "vfio-pci\n"}, "pass"),
    Row("a GPU that is vfio-pci's already", AWAY, None,
        {**modprobe(IDS), "modules_load": "vfio-pci\n", "nvidia_functions": H100.replace(" nvidia", " vfio-pci")}, "pass"),
    Row("no image", INITRAMFS, None, {"initramfs": ""}, "skip", "no initramfs in /boot"),
]  # fmt: skip


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_loading(row: Row) -> None:
    judge(row)


def test_apply_makes_images_only_where_something_goes_into_them() -> None:
    told = facts(**{**good(), "initramfs": initrd(MODULE, "older")})
    for blocks, changes in (({}, 0), ({"kernel": Kernel(blacklist=("nouveau",))}, 1)):
        host = HostSpec(name="gpu1", capabilities={"nvidia_driver": NvidiaDriver(), **blocks})
        assert len(in_initramfs.run(Context(host, NvidiaDriver(), told)).changes) == changes
