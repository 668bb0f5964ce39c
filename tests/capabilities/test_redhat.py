"""host, kernel and nouveau on a host of the Red Hat family: dracut, grubby, rpm and dnf."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.host import House
from gpuprov.facts.probes.base import Output
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import CHECKS, Row, facts, judge
from tests.facts.probes import captured
from tests.rows import run_each

ROCKY = {"os_release": 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.5"\nPRETTY_NAME="Rocky Linux 9.5"\n'}
OPENSUSE = {
    "os_release": 'ID="opensuse-tumbleweed"\nID_LIKE="opensuse suse"\nVERSION_ID="20261101"\nPRETTY_NAME="openSUSE '
    'Tumbleweed"\n'
}
MICRO = {"os_release": 'ID="sl-micro"\nID_LIKE="suse"\nVERSION_ID="6.1"\nPRETTY_NAME="SUSE Linux Micro 6.1"\n'}
OLD, NEW = "5.14.0-503.11.1.el9_5.x86_64", "5.14.0-570.12.1.el9_6.x86_64"
KERNELS = f"{OLD}|1|1|580.95.05|1\n{NEW}|1|1|580.95.05|1\n"
OUT = Kernel(blacklist=("nouveau",), module_options={"nouveau": {"modeset": 0}})
IOMMU = Kernel(command_line={"iommu": "pt"})
NOSMT = Kernel(command_line={"iommu": "pt", "nosmt": ""})
TWICE = "nvidia-driver-libs.x86_64 is installed in two versions: a transaction was cut off\n"


def images(*rows: tuple[str, int, str]) -> dict[str, str]:
    """What the probe says of dracut's images: release, whether it holds the configuration, a module inside."""
    told = [f"image /boot/initramfs-{release}.img {fresh} 0 dracut\n{module}\n" for release, fresh, module in rows]
    return {"initramfs": "".join(told).replace("\n\n", "\n")}


NOUVEAU = f"usr/lib/modules/{OLD}/kernel/drivers/gpu/drm/nouveau/nouveau.ko.xz"
ROWS = [
    Row("Rocky by what it is like", "host.supported", None, ROCKY, "pass", "Rocky Linux 9.5"),
    Row("another family", "host.supported", None, OPENSUSE, "fail", "Tumbleweed", "not supported"),
    Row("a snapshot", "host.supported", None, MICRO, "fail", "SUSE Linux Micro 6.1, whose root file system",
        "transactional-update"),
    Row("two versions of one package", "host.packages", None, {**ROCKY, "package_audit": TWICE}, "fail",
        "two versions", "dnf remove --duplicates"),
    Row("rpm's database is broken", "host.packages", None,
        {**ROCKY, "package_audit": Output("", 1, "error: verify: *** in database main ***")}, "fail",
        "in database main", "rpm --rebuilddb"),
    Row("every entry carries it, by file or by grub's environment", "kernel.boot_entries", IOMMU,
        {**ROCKY, "boot_entries": captured("boot_entries", "bls")}, "pass", "in 2 boot entries"),
    Row("no entry carries it", "kernel.boot_entries", NOSMT,
        {**ROCKY, "boot_entries": captured("boot_entries", "bls")}, "fail", "nosmt=missing",
        'grubby --update-kernel=ALL --args="iommu=pt nosmt"', change="file /boot/loader/entries:  -> iommu=pt nosmt"),
    Row("every image holds the configuration", "kernel.initramfs", OUT,
        {**ROCKY, "kernels": KERNELS, **images((OLD, 1, NOUVEAU), (NEW, 1, ""))}, "pass", "gpuprov.conf in 2 images"),
    Row("the older kernel's image is stale", "kernel.initramfs", OUT,
        {**ROCKY, "kernels": KERNELS, **images((OLD, 0, ""), (NEW, 1, ""))}, "fail",
        f"stale: /boot/initramfs-{OLD}.img", "dracut --force --regenerate-all",
        change=f"initramfs /boot/initramfs-{OLD}.img:  -> rebuilt"),
    Row("a kernel without an image", "kernel.initramfs", OUT, {**ROCKY, "kernels": KERNELS, **images((OLD, 1, ""))},
        "fail", f"none for {NEW}", f"dracut /boot/initramfs-{NEW}.img {NEW}",
        change=f"initramfs /boot/initramfs-{NEW}.img:  -> made"),
    Row("nouveau in the older kernel's image", "nouveau.initramfs", None,
        {"initramfs": captured("initramfs", "rocky9")}, "fail", f"/boot/initramfs-{OLD}.img (nouveau)",
        "dracut --force --regenerate-all", change=f"initramfs /boot/initramfs-{OLD}.img:  -> rebuilt"),
    Row("an image that cannot be read", "nouveau.initramfs", None,
        {"initramfs": f"image /boot/initramfs-{OLD}.img 0 1 dracut\n"}, "fail", "not readable",
        f"lsinitrd /boot/initramfs-{OLD}.img"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_redhat(row: Row) -> None:
    judge(row)


TOOLKIT = (
    "nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1".split()
)
INSTALLED = "".join(f"rpm|{name}|0|1.18.0|1|x86_64|{name}-1.18.0-1.src.rpm\n" for name in TOOLKIT)
LOCKS = "".join(f"lock|{name}-0:1.18.0-1.*\n" for name in TOOLKIT)
PLUGIN = "dnf|[main]\nconf|[main]\nconf|enabled = 1\nconf|locklist = /etc/l\nplugin|/usr/lib/v.py\nlist|/etc/l\n"
OFF = PLUGIN.replace("enabled = 1", "enabled = 0")
HELD = "container_toolkit.held"
LOCK_ROWS = [
    Row("locked", HELD, None, {**ROCKY, "packages": INSTALLED + PLUGIN + LOCKS}, "pass", "4 packages held"),
    Row("one is not locked", HELD, None,
        {**ROCKY, "packages": INSTALLED + PLUGIN + LOCKS.replace("lock|libnvidia-container1", "lock|other")}, "fail",
        "not held: libnvidia-container1", "dnf versionlock add libnvidia-container1"),
    Row("locked, and the plugin is off", HELD, None,
        {**ROCKY, "packages": INSTALLED + OFF + LOCKS, "package_locking": f"redhat|\n{OFF}{LOCKS}"}, "fail",
        "versionlock is switched off", "correct that setting: upgrades move what is held"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=row.name) for row in LOCK_ROWS])
def test_locks_of_the_container_toolkit(row: Row) -> None:
    judge(row)


def test_no_space_in_boot() -> None:
    told = facts(os_release=str(ROCKY["os_release"]), space="51200 /boot\n10485760 /var\n")
    host = HostSpec(name="gpu1", capabilities={"kernel": Kernel()})
    outcome = CHECKS["host.space"].run(Context(host, House(), told))
    assert (outcome.status, outcome.found) == ("fail", "50 MiB")
    assert "dnf remove --oldinstallonly" in outcome.fix
