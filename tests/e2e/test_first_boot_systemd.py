"""A machine that systemd-boot starts, with UEFI: a good first boot, and one that panics, which systemd-boot and then
rollback undo."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuprov.simulate import disk, inventory, machine, qemu
from tests.e2e import test_first_boot as counted
from tests.e2e.booted import Booted, booted

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-systemd-boot"
SIZE = sum(disk.LAYOUT[-1][1:]) + (512 << 20)
CONVERT = """export DEBIAN_FRONTEND=noninteractive
apt-get -qq install -y --no-install-recommends gdisk dosfstools >&2
sgdisk --mbrtogpt --new 3:0:0 --typecode 3:ef00 /dev/vda >&2
partx --add --nr 3 /dev/vda
udevadm settle
mkfs.vfat -F 32 /dev/vda3 >&2
mkdir -p /boot/efi
echo '/dev/vda3 /boot/efi vfat umask=0077 0 1' >> /etc/fstab
mount /boot/efi
sed 's/BOOT_IMAGE=[^ ]* *//' /proc/cmdline > /etc/kernel/cmdline
apt-get -qq install -y --no-install-recommends systemd-boot >&2
bootctl status --no-pager >&2 || true
ls /boot/efi/loader/entries"""
"""A machine with BIOS becomes one with UEFI; Debian's package installs systemd-boot into the ESP, and makes the entry.
"""
AUDIT = "sed -i '/^options/s/$/ audit=0/' /boot/efi/loader/entries/*.conf; sed -i 's/$/ audit=0/' /etc/kernel/cmdline"
"""What the site has its hosts started with: gpuprov writes the command line of GRUB only."""
CHOICE = r"""for name in LoaderEntryDefault LoaderEntryOneShot; do
echo "$name=$(cat /sys/firmware/efi/efivars/$name-* 2>/dev/null | tail -c +5 | tr -d '\000')"
done
ls /boot/efi /boot/efi/loader/entries"""
BOOTS: dict[str, Any] = {**counted.GOOD, "command_line": {"audit": "0"}}
PANICS: dict[str, Any] = {
    **counted.GOOD,
    "command_line": {"audit": "1"},
    "module_options": {"virtio_blk": {"queue_depth": "none"}},
}
"""The module of the disk does not load with it, so that the initramfs finds no root file system and gives up."""


@pytest.fixture(scope="module", name="host")
def _host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    folder = tmp_path_factory.mktemp("systemd-boot")
    with booted(folder, counted.DESCRIPTION, NAME) as made:
        qemu.ask(machine.control(NAME), "block_resize", device="disk", size=SIZE)
        made.sh(CONVERT)
        inventory.write([machine.refit(NAME, "uefi")], folder / "inventory.yaml")
        assert "systemd-boot 252" in made.sh("bootctl status --no-pager 2>/dev/null")
        yield made


def is_counted_no_more(host: Booted, choice: str) -> None:
    assert "gpuprov.first panic=30" in host.sh("cat /proc/cmdline")
    host.sh("while systemctl is-active --quiet gpuprov-first-boot; do sleep 1; done")
    assert host.sh(CHOICE) == choice
    assert host.sh("cat /proc/sys/kernel/panic").strip() == "0"


def test_a_good_boot_is_counted_once(host: Booted) -> None:
    choice = host.sh(CHOICE)
    host.sh(AUDIT)
    code, told = counted.apply(host, BOOTS)
    assert code == 0, told
    assert "audit=0" in host.sh("cat /proc/cmdline")
    is_counted_no_more(host, choice)
    code, results = host.gpuprov("verify", counted.spec_of(BOOTS))
    assert code == 0, results
    found = {one["check"]: one for one in results}["host.first_boot"]
    assert "is undone by systemd-boot" in found["found"], found
    machine.reboot(NAME)
    line = host.sh("cat /proc/cmdline")
    assert "audit=0" in line
    assert "gpuprov" not in line


def test_a_boot_that_panics_is_undone_by_systemd_boot_and_then_by_rollback(host: Booted) -> None:
    code, told = counted.apply(host, counted.GOOD)
    assert code == 0, told
    choice = host.sh(CHOICE)
    first = host.sh(counted.BOOT_ID)
    code, told = counted.apply(host, PANICS)
    (row,) = told["hosts"]
    assert code == 3, told
    assert "systemd-boot has started it again as it was before" in row["message"], row
    assert row["rolled_back"].startswith("rolled back to "), row
    assert row["rolled_back"].endswith("verify is green"), row
    assert host.sh(counted.BOOT_ID) != first
    assert "gpuprov.kept" in host.sh("cat /proc/cmdline")
    assert "LoaderEntryOneShot=_-gpuprov-first.conf" in host.sh(CHOICE), "the site's default is tried at the next boot"
    machine.reboot(NAME)
    is_counted_no_more(host, choice)
