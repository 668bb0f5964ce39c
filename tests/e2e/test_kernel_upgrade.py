"""A kernel of the distribution is upgraded on a machine with DKMS and GRUB of its own: held, followed, or with a build
that fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.kernels import ALERT, ANYHOW, BUILT, FAILS, FOLLOW, HOLD, NEXT, UPGRADE, Older, Upgraded, entry_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-kernel-upgrade"


@pytest.fixture(name="host")
def _host(older_kernel: Older, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    with older_kernel.started(tmp_path_factory.mktemp("kernels"), NAME) as host:
        yield host


def test_a_new_kernel_comes_with_an_upgrade_and_boots_with_the_driver(host: Upgraded) -> None:
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


def test_a_kernel_is_held_and_one_whose_build_fails_is_told_of_before_the_boot(host: Upgraded) -> None:
    host.apply(**HOLD)
    said = host.sh(UPGRADE)
    assert "FAILED" not in said, said
    assert host.kernels() == {host.old}, said
    kept = said.partition("kept back")[2]
    assert all(name in kept or name not in said for name in ("linux-image-amd64", "linux-headers-amd64")), said
    headers = [name for name in host.sh("ls /usr/src").split() if name.startswith("linux-headers-")]
    assert headers
    assert all(host.old.removesuffix("-amd64") in name for name in headers), headers
    host.is_green(host.old, **HOLD)
    host.apply(**FOLLOW)

    # Debian's upgrade ends where DKMS fails: the new kernel has neither an initramfs nor a place in GRUB's menu.
    kbuild = host.sh("ls /usr/src/nvidia-current-*/Kbuild").strip()
    host.sh(f"cp {kbuild} /root/Kbuild; echo '{FAILS.format(host.new)}' >> {kbuild}")
    said = host.sh(UPGRADE)
    assert "FAILED" in said, said
    assert host.kernels() == {host.old, host.new}
    code, told = host.gpuprov("apply", "--yes", **FOLLOW)
    assert code == 3, told
    assert "a whole package database" in str(told) or "host.packages" in str(told), told
    # What starts next once GRUB's menu is made anew, by whatever package: nothing that boots.
    host.sh("cp /boot/grub/grub.cfg /root/grub.cfg; update-grub 2>&1")
    next_one = host.verify(**FOLLOW)[NEXT]
    assert re.match(
        f"{host.new}, the next boot's, has none: its build failed .*; and no initramfs", next_one["found"]
    ), next_one
    host.sh("cp /root/grub.cfg /boot/grub/grub.cfg")
    assert host.reboot() == host.old
    found = is_red_of_the_next_boot_alone(host)
    assert found[NEXT]["found"].startswith(f"{host.old} has "), found[NEXT]

    host.sh(ANYHOW)
    found = host.verify(**FOLLOW)
    assert found[NEXT]["status"] == "fail", found[NEXT]
    assert re.match(f"{host.new}, the next boot's, has none: its build failed .*error: #error", found[NEXT]["found"]), (
        found[NEXT]
    )
    code, told = host.gpuprov("apply", "--yes", **FOLLOW)
    assert code == 3, told
    assert f"kernel {host.new}" in str(told), told
    start = found[NEXT]["fix"].partition("start, one time: ")[2]
    assert start == f"grub-reboot '{entry_of(host.machines, host.old)}'", found[NEXT]
    host.sh(start)
    assert host.reboot() == host.old
    is_red_of_the_next_boot_alone(host)

    host.sh(f"cp /root/Kbuild {kbuild}")
    host.apply(**FOLLOW)
    assert host.reboot() == host.new
    host.is_green(host.new, **FOLLOW)


def is_red_of_the_next_boot_alone(host: Upgraded) -> dict[str, Any]:
    """The older kernel runs with its GPU, and verify says what is wrong with the new one: with the line of the log."""
    assert "NVIDIA-SMI" in host.sh("nvidia-smi")
    found = host.verify(**FOLLOW)
    bad = {name: row for name, row in found.items() if row["status"] == "fail"}
    assert {row["moment"] for row in bad.values()} == {"next-boot"}, bad
    assert re.search(f"{host.new}: none: its build failed .*error: #error .*/build/make.log", bad[BUILT]["found"]), bad
    return found
