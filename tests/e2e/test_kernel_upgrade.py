"""The distribution's kernel is upgraded on a machine with a kernel, DKMS and GRUB of its own: held, then followed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuprov.simulate import machine
from gpuprov.simulate.description import Description, Gpus
from tests.e2e.booted import Booted, booted

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-kernel-upgrade"
DESCRIPTION = Description(kind="machine", gpu=Gpus(model="L40S", count=1), memory=2048)
NEXT = "nvidia_driver.next_kernel"
# The archive's main section and its security updates have two versions of the metapackages: the older one is installed, and is
# started by GRUB's entry for one time; then the newer one leaves, so that an ordinary upgrade brings it.
VERSIONS = "apt-get -qq update; apt-cache madison linux-image-amd64 | awk '{print $3}' | sort -uV"
OLDER = """export DEBIAN_FRONTEND=noninteractive
echo 'blacklist nouveau' > /etc/modprobe.d/before.conf
apt-get -qq install -y --allow-downgrades linux-headers-amd64={version} >&2
apt-get -qq install -y --allow-downgrades linux-image-amd64={version} >&2
apt-cache depends linux-image-amd64={version} | sed -n 's/.*Depends: linux-image-//p'"""
LEAVES = "DEBIAN_FRONTEND=noninteractive apt-get -qq purge -y linux-image-{0} linux-headers-{0} >&2"
UPGRADE = "DEBIAN_FRONTEND=noninteractive apt-get -y -q dist-upgrade 2>&1 || echo FAILED"


class Upgraded:
    """The machine, the kernel that it was installed with, and the one that its archive has now."""

    def __init__(self, machines: Booted) -> None:
        self.machines, self.sh = machines, machines.sh
        self.new = self.sh("uname -r").strip()
        versions = self.sh(VERSIONS).split()
        if len(versions) < 2:
            pytest.skip(f"the archive has one kernel only: {versions}")
        self.old = self.sh(OLDER.format(version=versions[0])).split()[-1]

    def gpuprov(self, command: str, policy: str, *words: str) -> tuple[int, Any]:
        """Exit code and JSON of a command with this policy."""
        driver = {"version": "535", "kernel_upgrades": policy}
        spec = {"nouveau": {}, "reboot": "if-needed", "nvidia_driver": driver}
        return self.machines.gpuprov(command, spec, *words)

    def verify(self, policy: str) -> dict[str, Any]:
        """What verify found, by check."""
        return {row["check"]: row for row in self.gpuprov("verify", policy)[1]}


@pytest.fixture(scope="module", name="host")
def _host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    with booted(tmp_path_factory.mktemp("kernels"), DESCRIPTION, NAME) as machines:
        yield Upgraded(machines)


def test_grub_starts_what_was_foretold(host: Upgraded) -> None:
    """grub-reboot is seen before the boot, with what boots after it, and GRUB does so."""
    entry = host.sh("sed -n \"s/.*menuentry_id_option '\\(gnulinux-[^']*\\)'.*/\\1/p\" /boot/grub/grub.cfg").split()
    path = [one for one in entry if one.startswith(("gnulinux-advanced-", f"gnulinux-{host.old}-advanced-"))]
    host.sh(f"grub-reboot '{'>'.join(path)}'")
    found = host.verify("follow")[NEXT]["found"]
    assert found.startswith(f"{host.old}, the next boot's, has none"), found
    assert f"one time (next_entry={path[0]}>" in found, found
    assert f"then {host.new}" in found, found
    machine.reboot(NAME)
    assert host.sh("uname -r").strip() == host.old
    assert host.verify("follow")[NEXT]["found"].startswith(f"{host.new}, the next boot's, has none")
    host.sh(LEAVES.format(host.new))
    assert host.verify("follow")[NEXT]["found"].startswith(f"{host.old}, the next boot's, has none")


def test_a_held_kernel_stays_whatever_is_upgraded(host: Upgraded) -> None:
    code, told = host.gpuprov("apply", "hold", "--yes")
    assert code == 0, told
    said = host.sh(UPGRADE)
    assert "FAILED" not in said, said
    assert host.sh("ls /boot/vmlinuz-*").split() == [f"/boot/vmlinuz-{host.old}"], said
    assert "linux-image-amd64" in said.partition("kept back")[2] or "linux-image-amd64" not in said, said
    held = host.verify("hold")[NEXT]
    assert (held["status"], held["found"].partition(" has ")[0]) == ("pass", host.old), held
    assert "linux-image-amd64" in held["found"], held


def test_a_new_kernel_comes_and_boots_with_the_driver(host: Upgraded) -> None:
    code, told = host.gpuprov("apply", "follow", "--yes")
    assert code == 0, told
    said = host.sh(UPGRADE)
    assert "FAILED" not in said, said
    before = host.verify("follow")[NEXT]
    assert (before["status"], before["found"].partition(" has ")[0]) == ("pass", host.new), before
    assert host.verify("alert")[NEXT]["status"] == "fail"
    machine.reboot(NAME)
    assert host.sh("uname -r").strip() == host.new
    code, told = host.gpuprov("verify", "follow")
    assert code == 0, [row for row in told if row["status"] in ("fail", "error")]
    assert host.verify("alert")[NEXT]["status"] == "pass"
    assert "NVIDIA-SMI" in host.sh("nvidia-smi")
