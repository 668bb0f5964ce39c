"""Machines that run an older kernel than their distribution offers, as before an upgrade; each test starts from a copy of the disk."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuprov.simulate import hosts, machine
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.parts import silicon
from gpuprov.simulate.parts.base import File
from tests.e2e.booted import Booted, booted

DESCRIPTION = Description(kind="machine", gpu=Gpus(model="L40S", count=1), memory=2048)
DRIVER = "535"
NEXT, BUILT = "nvidia_driver.next_kernel", "nvidia_driver.modules_built"
MODULES = "/srv/modules"
"""NVIDIA's stand-in modules, compiled for both kernels: what a distribution's packages of precompiled modules bring."""
# The archive's main section and its security updates have two versions of the metapackages: the older one is installed, and is
# started by GRUB's entry for one time; then the newer one leaves, so that an ordinary upgrade brings it.
VERSIONS = "apt-get -qq update; apt-cache madison linux-image-amd64 | awk '{print $3}' | sort -uV"
OLDER = """export DEBIAN_FRONTEND=noninteractive
echo 'blacklist nouveau' > /etc/modprobe.d/before.conf
apt-get -qq install -y --allow-downgrades linux-headers-amd64={version} >&2
apt-get -qq install -y --allow-downgrades linux-image-amd64={version} >&2
apt-cache depends linux-image-amd64={version} | sed -n 's/.*Depends: linux-image-//p'"""
COMPILE = f"""for kernel in {{kernels}}; do
  make -s -j2 -C {MODULES}/source KERNEL_UNAME=$kernel modules >&2
  install -D -m 644 -t {MODULES}/$kernel {MODULES}/source/*.ko
  make -s -C /lib/modules/$kernel/build M={MODULES}/source clean
done"""
LEAVES = "DEBIAN_FRONTEND=noninteractive apt-get -qq purge -y linux-image-{0} linux-headers-{0} >&2"
UPGRADE = "DEBIAN_FRONTEND=noninteractive apt-get -y -q dist-upgrade 2>&1 || echo FAILED"
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
    """A machine is made, is given the older kernel, and is kept as it runs that; without a driver."""
    tag = f"{name}-{os.getpid()}"
    try:
        with booted(folder, DESCRIPTION, name) as machines:
            new = machines.sh("uname -r").strip()
            versions = machines.sh(VERSIONS).split()
            if len(versions) < 2:
                pytest.skip(f"the archive has one kernel only: {versions}")
            old = machines.sh(OLDER.format(version=versions[0])).split()[-1]
            source = silicon.dkms_source(machines.sh("apt-cache show nvidia-kernel-dkms | sed -n 's/^Version: //p'"
                                                     " | head -1").partition("-")[0], "proprietary", "nvidia")  # fmt: skip
            machine.write(
                name, hosts.archive({f"{MODULES}/source/{file}": File(text) for file, text in source.items()})
            )
            machines.sh(COMPILE.format(kernels=f"{old} {new}"))
            machines.sh(f"grub-reboot '{entry_of(machines, old)}'")
            machine.reboot(name)
            assert machines.sh("uname -r").strip() == old
            machines.sh(LEAVES.format(new))
            machine.freeze(name, tag)
        yield Older(tag, old, new)
    finally:
        machine.discard(tag)


def entry_of(machines: Booted, kernel: str) -> str:
    """GRUB's entry of a kernel, as grub-reboot takes it: read here without gpuprov."""
    text = machines.sh("cat /boot/grub/grub.cfg")
    names = re.findall(r"\$menuentry_id_option '([^']+)'", text)
    menu = next(one for one in names if re.match(r"gnulinux-advanced-", one))
    return f"{menu}>{next(one for one in names if one.startswith(f'gnulinux-{kernel}-advanced-'))}"
