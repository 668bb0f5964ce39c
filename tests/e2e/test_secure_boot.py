"""Secure Boot, on: shim, GRUB and kernels signed as Debian signs them, modules with the site's key, which the firmware
was told.

What nobody does here is to confirm the certificate at the console: its variable is written as MokManager writes it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuprov.simulate import disk, hosts, inventory, machine, qemu
from gpuprov.simulate.parts.base import File, text
from tests.e2e import test_first_boot as counted
from tests.e2e.kernels import NEXT, UPGRADE, Older, Upgraded

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-secure-boot"
OWNER = "9f2e4a3c-5d1b-4c52-8a7e-6b0d1f3c2a10"
"""Who wrote a certificate: any GUID."""
MIB = 1 << 20
SIZE = sum(disk.LAYOUT[-1][1:]) + 128 * MIB
PACKAGES = "fdisk dosfstools shim-signed grub-efi-amd64-signed mokutil"
CONVERT = f"""export DEBIAN_FRONTEND=noninteractive
apt-get -qq install -y --no-install-recommends {PACKAGES} >&2
echo ',,ef' | sfdisk --quiet --append --no-reread --force /dev/vda
partx --add --nr 3 /dev/vda
mkfs.vfat -F 32 /dev/vda3 >&2
mkdir -p /boot/efi
echo '/dev/vda3 /boot/efi vfat umask=0077 0 1' >> /etc/fstab
mount /boot/efi
grub-install --target=x86_64-efi --efi-directory=/boot/efi --uefi-secure-boot --no-nvram --removable >&2
echo GRUB_TERMINAL=console > /etc/default/grub.d/95-console.cfg
update-grub 2>&1
for module in $(find /lib/modules -name gpuprov_sim_pci.ko); do
  /usr/lib/linux-kbuild-*/scripts/sign-file sha256 /root/modules.key /root/modules.crt $module
done
update-initramfs -u -k all >&2
rm /root/modules.key"""
"""A machine with BIOS becomes one with UEFI; the simulation's own module is signed with the site's key, too."""
NETWORK = text("[Match]\nName=enp0s3\n\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\nDNS=10.0.2.3\n")
"""The interface has another name on the board with SMM."""
UNSIGNED = """module=$(modinfo -n nvidia-current-uvm)
cp $module /root/unsigned.ko
strip --strip-debug /root/unsigned.ko
rmmod nvidia_uvm 2>/dev/null || true
insmod /root/unsigned.ko 2>&1 || true"""


@pytest.fixture(scope="module", name="key")
def _key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site's key and certificate, as the documentation makes them."""
    folder = tmp_path_factory.mktemp("key")
    make = "openssl req -new -x509 -newkey rsa:2048 -nodes -days 3650 -subj".split()
    files = ["-keyout", str(folder / "modules.key"), "-out", str(folder / "modules.crt")]
    subprocess.run([*make, "/CN=Example modules/", *files], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module", name="host")
def _host(older_kernel: Older, key: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    """A machine with Secure Boot on, whose firmware does not know the site's certificate."""
    pytest.importorskip("virt.firmware")
    with older_kernel.started(tmp_path_factory.mktemp("secure"), NAME) as host:
        files = {f"/root/{file.name}": File(file) for file in key.iterdir()}
        machine.write(NAME, hosts.archive({**files, "/etc/systemd/network/05-q35.network": NETWORK}))
        qemu.ask(machine.control(NAME), "block_resize", device="disk", size=SIZE)
        host.sh(CONVERT)
        switched_on(host)
        yield host


def switched_on(host: Upgraded, variables: Path | None = None) -> None:
    """With Secure Boot, and these variables or new ones."""
    inventory.write([machine.refit(NAME, "secure-boot", variables)], host.machines.folder / "inventory.yaml")


def signing(key: Path) -> dict[str, Any]:
    names = {"key_file": "modules.key", "certificate_file": "modules.crt"}
    return {"signing": {field: str(key / name) for field, name in names.items()}}


def test_modules_of_the_site_load_under_secure_boot_and_so_do_those_of_the_next_kernel(
    host: Upgraded, key: Path, tmp_path: Path
) -> None:
    assert "SecureBoot enabled" in host.sh("mokutil --sb-state")
    code, told = host.gpuprov("apply", "--yes", **signing(key))
    assert code == 3, told
    assert "no enrolled certificate has its SHA-1 fingerprint" in str(told), told
    assert host.sh("dpkg -l 'nvidia-*' 2>/dev/null | grep ^ii || true") == "", "refused before anything was changed"

    enrolled = tmp_path / "variables.fd"
    new = str(qemu.OVMF / qemu.VARIABLES["secure-boot"])
    words = ["--input", new, "--output", str(enrolled), "--add-mok", OWNER, str(key / "modules.crt")]
    subprocess.run([str(Path(sys.executable).with_name("virt-fw-vars")), *words], check=True, capture_output=True)
    switched_on(host, enrolled)
    assert "Example modules" in host.sh("mokutil --list-enrolled")
    host.apply(**signing(key))
    host.is_green(host.old, **signing(key))
    assert "[integrity]" in host.sh("cat /sys/kernel/security/lockdown")
    said = host.sh(UNSIGNED)
    assert re.search("Operation not permitted|Key was rejected by service", said), (
        f"the kernel asks for a signature: {said}"
    )

    said = host.sh(UPGRADE)
    assert "FAILED" not in said, said
    found = host.verify(**signing(key))
    assert found[NEXT]["found"].startswith(f"{host.new} has "), found[NEXT]
    assert host.new in found["nvidia_driver.signed"]["found"], found["nvidia_driver.signed"]
    assert host.reboot() == host.new
    assert "SecureBoot enabled" in host.sh("mokutil --sb-state")
    host.is_green(host.new, **signing(key))
    assert host.sh("modinfo -F signer nvidia-current").strip() == "Example modules"


def test_first_boots_are_counted_with_uefi(host: Upgraded) -> None:
    """A good boot, and one that panics: GRUB, signed, writes its environment, and starts what was kept."""
    choice = host.sh(counted.CHOICE)
    code, told = counted.apply(host.machines, counted.GOOD)
    assert code == 0, told
    host.reboot()  # with the images that this apply has made
    code, told = counted.apply(host.machines, counted.BOOTS)
    assert code == 0, told
    counted.is_counted_no_more(host.machines, choice)

    code, told = counted.apply(host.machines, counted.PANICS)
    (row,) = told["hosts"]
    assert code == 3, told
    assert "did not come up with what this run changed" in row["message"], row
    assert row["rolled_back"].endswith("verify is green"), row
    assert "gpuprov.kept" in host.sh("cat /proc/cmdline")
    machine.reboot(NAME)
    counted.is_counted_no_more(host.machines, choice)
