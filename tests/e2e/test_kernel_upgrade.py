"""A kernel of the distribution is upgraded on a machine with DKMS and GRUB of its own: held, followed, or with a build that fails."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from gpuprov.simulate import machine
from tests.e2e.kernels import BUILT, NEXT, UPGRADE, Older, Upgraded, entry_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-kernel-upgrade"
FOLLOW, HOLD, ALERT = ({"kernel_upgrades": policy} for policy in ("follow", "hold", "alert"))
FAILS = "ccflags-$(if $(filter {0},$(KERNELRELEASE)),y) += -DGPUPROV_SIM_DKMS_FAILS"
"""In the Kbuild of the driver's source: it does not compile for this kernel, as an older driver does not for a newer one."""
ANYHOW = "touch /etc/dkms/no-autoinstall; dpkg --configure -a >&2; rm /etc/dkms/no-autoinstall"
"""How somebody finishes the upgrade: without the modules."""


@pytest.fixture(scope="module", name="green")
def _green(older_kernel: Older, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Older]:
    """The disk of a machine that runs the older kernel with a driver that DKMS built, and is green."""
    kept = Older(f"{older_kernel.tag}-green", older_kernel.old, older_kernel.new)
    try:
        with older_kernel.started(tmp_path_factory.mktemp("green"), NAME) as host:
            host.apply(**FOLLOW)
            host.is_green(host.old, **FOLLOW)
            machine.freeze(NAME, kept.tag)
        yield kept
    finally:
        machine.discard(kept.tag)


@pytest.fixture(name="host")
def _host(green: Older, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    with green.started(tmp_path_factory.mktemp("kernels"), NAME) as host:
        yield host


def test_a_held_kernel_stays_and_one_that_is_followed_boots_with_the_driver(host: Upgraded) -> None:
    host.apply(**HOLD)
    said = host.sh(UPGRADE)
    assert "FAILED" not in said, said
    assert host.kernels() == {host.old}, said
    assert "linux-image-amd64" in said.partition("kept back")[2] or "linux-image-amd64" not in said, said
    held = host.verify(**HOLD)[NEXT]
    assert (held["status"], held["found"].partition(" has ")[0]) == ("pass", host.old), held
    assert "linux-image-amd64" in held["found"], held

    host.apply(**FOLLOW)
    said = host.sh(UPGRADE)
    assert "FAILED" not in said, said
    before = host.verify(**FOLLOW)[NEXT]
    assert (before["status"], before["found"].partition(" has ")[0]) == ("pass", host.new), before
    assert host.verify(**ALERT)[NEXT]["status"] == "fail"
    assert host.reboot() == host.new
    host.is_green(host.new, **FOLLOW)
    assert host.verify(**ALERT)[NEXT]["status"] == "pass"

    host.sh(f"grub-reboot '{entry_of(host.machines, host.old)}'")
    once = host.verify(**FOLLOW)[NEXT]["found"]
    assert once.startswith(f"{host.old} has "), once
    assert f"one time (next_entry={entry_of(host.machines, host.old)}), then {host.new}" in once, once
    assert host.reboot() == host.old
    host.is_green(host.old, **FOLLOW)


def test_a_build_that_fails_is_told_before_the_boot_and_the_kernel_that_works_boots(host: Upgraded) -> None:
    kbuild = host.sh("ls /usr/src/nvidia-current-*/Kbuild").strip()
    host.sh(f"cp {kbuild} /root/Kbuild; echo '{FAILS.format(host.new)}' >> {kbuild}")

    # Debian's upgrade ends where DKMS fails: the new kernel has neither an initramfs nor a place in GRUB's menu.
    said = host.sh(UPGRADE)
    assert "FAILED" in said, said
    assert host.kernels() == {host.old, host.new}
    found = host.verify(**FOLLOW)
    assert found[BUILT]["status"] == "fail", found[BUILT]
    assert re.search(f"{host.new}: none: its build failed .*error: #error .*/build/make.log", found[BUILT]["found"]), (
        found[BUILT]
    )
    assert found[NEXT]["found"].startswith(f"{host.old} has "), found[NEXT]
    code, told = host.gpuprov("apply", "--yes", **FOLLOW)
    assert code == 3, told
    assert "host.packages" in str(told), told
    assert host.reboot() == host.old
    is_red_of_the_next_boot_alone(host)

    # What starts next once GRUB's menu is made anew, by whatever package: nothing that boots.
    host.sh("cp /boot/grub/grub.cfg /root/grub.cfg; update-grub 2>&1")
    next_one = host.verify(**FOLLOW)[NEXT]
    assert re.search("its build failed .*; and no initramfs", next_one["found"]), next_one
    host.sh("cp /root/grub.cfg /boot/grub/grub.cfg")

    host.sh(ANYHOW)
    found = host.verify(**FOLLOW)
    assert found[NEXT]["status"] == "fail", found[NEXT]
    assert re.match(f"{host.new}, the next boot's, has none: its build failed .*error: #error", found[NEXT]["found"]), (
        found[NEXT]
    )
    code, told = host.gpuprov("apply", "--yes", **FOLLOW)
    assert code == 3, told
    assert f"kernel {host.new}" in str(told), told
    start = found[NEXT]["hint"].partition("start, one time: ")[2]
    assert start == f"grub-reboot '{entry_of(host.machines, host.old)}'", found[NEXT]
    host.sh(start)
    after = host.verify(**FOLLOW)[NEXT]["found"]
    assert after.startswith(f"{host.new}, the one that boots after the next, has none"), after
    assert host.reboot() == host.old
    is_red_of_the_next_boot_alone(host)

    host.sh(f"cp /root/Kbuild {kbuild}")
    host.apply(**FOLLOW)
    assert host.verify(**FOLLOW)[NEXT]["found"].startswith(f"{host.new} has ")
    assert host.reboot() == host.new
    host.is_green(host.new, **FOLLOW)


def is_red_of_the_next_boot_alone(host: Upgraded) -> None:
    """The older kernel runs with its GPU, and verify says what is wrong with the new one."""
    assert "NVIDIA-SMI" in host.sh("nvidia-smi")
    bad = {name: row for name, row in host.verify(**FOLLOW).items() if row["status"] == "fail"}
    assert {row["moment"] for row in bad.values()} == {"next-boot"}, bad
    assert f"{host.new}: none: its build failed" in bad[BUILT]["found"], bad
