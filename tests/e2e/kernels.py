"""Machines that run an older kernel than their distribution offers, as before an upgrade; each test starts from a copy
of the disk."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprov.rules import package_lists
from gpuprov.simulate import machine, sources
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.repository.debian import Archive
from tests.e2e.booted import Booted, booted

DESCRIPTION = Description(kind="machine", gpu=Gpus(model="L40S", count=1), memory=2048)
DRIVER = "535"
NEXT, BUILT = "nvidia_driver.next_kernel", "nvidia_driver.modules_built"
# The archive's main section and its security updates have two versions of the metapackages: the host has the older one,
# so that an ordinary upgrade brings the newer one.
META = """export DEBIAN_FRONTEND=noninteractive
echo 'blacklist nouveau' > /etc/modprobe.d/before.conf
apt-get -qq update
apt-get -qq install -y linux-headers-amd64={0} linux-image-amd64={0} >&2"""
VERSIONS = "apt-get -qq update; apt-cache madison linux-image-amd64 | awk '{print $3}' | sort -uV"
OLDER = """export DEBIAN_FRONTEND=noninteractive
echo 'blacklist nouveau' > /etc/modprobe.d/before.conf
apt-get -qq install -y --allow-downgrades linux-headers-amd64={version} >&2
apt-get -qq install -y --allow-downgrades linux-image-amd64={version} >&2
apt-cache depends linux-image-amd64={version} | sed -n 's/.*Depends: linux-image-//p'"""
UPGRADE = "DEBIAN_FRONTEND=noninteractive apt-get -y -q dist-upgrade 2>&1 || echo FAILED"
ANYHOW = "touch /etc/dkms/no-autoinstall; dpkg --configure -a >&2; rm /etc/dkms/no-autoinstall"
"""How somebody finishes an upgrade that DKMS ended: without the modules."""
FAILS = "ccflags-$(if $(filter {0},$(KERNELRELEASE)),y) += -DGPUPROV_SIM_DKMS_FAILS"
"""In the Kbuild of the driver's source: it does not compile for this kernel, as an older driver does not for a newer
one."""
FOLLOW, HOLD, ALERT = ({"kernel_upgrades": policy} for policy in ("follow", "hold", "alert"))
PRECOMPILED = {"build": "precompiled"}
KERNELS = "ls /boot/vmlinuz-* | sed 's/.*vmlinuz-//'"
GREEN = ("pass", "skip", "n/a")


@dataclass(frozen=True)
class Upgraded:
    """A machine with the kernel that it was installed with, and the one that its archive has now."""

    machines: Booted
    old: str
    new: str

    @property
    def name(self) -> str:
        return self.machines.names[0]

    def sh(self, script: str) -> str:
        return self.machines.sh(script)

    def gpuprov(self, command: str, *words: str, **driver: object) -> tuple[int, Any]:
        """Exit code and JSON of a command with these fields of the driver."""
        spec = {"nouveau": {}, "reboot": "if-needed", "nvidia_driver": {"version": DRIVER, **driver}}
        return self.machines.gpuprov(command, spec, *words)

    def apply(self, **driver: object) -> None:
        code, told = self.gpuprov("apply", "--yes", **driver)
        assert code == 0, told

    def verify(self, **driver: object) -> dict[str, Any]:
        """What verify found, by check."""
        return {row["check"]: row for row in self.gpuprov("verify", **driver)[1]}

    def is_green(self, kernel: str, **driver: object) -> None:
        """It runs this kernel with its driver, and so it will after the next boot."""
        assert self.sh("uname -r").strip() == kernel
        bad = [row for row in self.verify(**driver).values() if row["status"] not in GREEN]
        assert not bad, bad
        assert "NVIDIA-SMI" in self.sh("nvidia-smi")

    def kernels(self) -> set[str]:
        return set(self.sh(KERNELS).split())

    def reboot(self) -> str:
        """The kernel that runs then."""
        machine.reboot(self.name)
        return self.sh("uname -r").strip()


@dataclass(frozen=True)
class Older:
    """The disk of such a machine."""

    tag: str
    old: str
    new: str

    @contextmanager
    def started(self, folder: Path, name: str) -> Iterator[Upgraded]:
        """A machine from a copy of it."""
        with booted(folder, DESCRIPTION, name, tag=self.tag) as machines:
            yield Upgraded(machines, self.old, self.new)


@contextmanager
def older(folder: Path, name: str) -> Iterator[Older]:
    """A machine that was installed with the older kernel is made and kept, without a driver."""
    tag = f"{name}-{os.getpid()}"
    (version, old), *_, (_, new) = in_archive(folder)
    try:
        with booted(folder, msgspec.structs.replace(DESCRIPTION, kernel=old), name) as machines:
            machines.sh(META.format(version))
            assert machines.sh("uname -r").strip() == old
            machine.freeze(name, tag)
        yield Older(tag, old, new)
    finally:
        machine.discard(tag)


def in_archive(folder: Path) -> list[tuple[str, str]]:
    """The versions of the kernel's metapackage with the kernels that they bring, the oldest first; at least two."""
    archive = Archive(folder / "apt", DESCRIPTION.known.suite, sources.read(), "main")
    rows = {one.version: one.fields["Depends"] for one in archive.packages() if one.name == "linux-image-amd64"}
    if len(rows) < 2:
        pytest.skip(f"the archive has one kernel only: {rows}")
    found = {version: re.search(r"linux-image-([\w.+-]+-amd64)", depends) for version, depends in rows.items()}
    return [(version, named[1]) for version in sorted(found, key=package_lists.rpm_order) if (named := found[version])]


def takes(package: str) -> str:
    """How somebody takes a new kernel though it is held."""
    words = "-y -q --allow-change-held-packages --only-upgrade"
    return f"DEBIAN_FRONTEND=noninteractive apt-get {words} install {package} 2>&1"


def entry_of(machines: Booted, kernel: str) -> str:
    """GRUB's entry of a kernel, as grub-reboot takes it: read here without gpuprov."""
    text = machines.sh("cat /boot/grub/grub.cfg")
    names = re.findall(r"\$menuentry_id_option '([^']+)'", text)
    menu = next(one for one in names if re.match(r"gnulinux-advanced-", one))
    return f"{menu}>{next(one for one in names if one.startswith(f'gnulinux-{kernel}-advanced-'))}"
