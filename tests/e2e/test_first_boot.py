"""A machine that does not come up from a reboot of apply starts again as it was, by its own GRUB, and on_failure:
rollback ends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuprov.host_code.first_boot import UNIT
from gpuprov.simulate import machine
from gpuprov.simulate.description import Description
from tests.e2e.booted import Booted, booted

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-first-boot"
DESCRIPTION = Description(kind="machine", memory=1024)
CHOICE = "grep -hE '^(next_entry=|saved_entry=|GRUB_DEFAULT)' /boot/grub/grubenv /etc/default/grub || true"
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
GOOD: dict[str, Any] = {"sysctl": {"vm.swappiness": 11}}
BOOTS: dict[str, Any] = {**GOOD, "command_line": {"audit": "0", "panic": "20"}}
PANICS: dict[str, Any] = {
    **GOOD,
    "command_line": {**BOOTS["command_line"], "rdinit": "/nothing", "root": "/dev/nothing"},
}
"""Neither an initramfs that starts nor a root file system: the kernel panics."""
HANGS: dict[str, Any] = {**GOOD, "command_line": {**BOOTS["command_line"], "rdinit": "/bin/cat"}}
"""The initramfs has cat, which waits for ever for what somebody types at the console."""
MAINTENANCE: dict[str, Any] = {**GOOD, "command_line": {**BOOTS["command_line"], "module_blacklist": "loop"}}
NEEDS_LOOP = f"""mke2fs -q -t ext4 /srv/disk 8M
echo '/srv/disk /mnt ext4 loop 0 2' >> /etc/fstab
mkdir -p /etc/systemd/system/{UNIT}.d
cat > /etc/systemd/system/{UNIT}.d/patience.conf <<'END'
[Service]
ExecStart=
ExecStart=/usr/bin/python3 -c "import gpuprov_boot.first_boot_judge as judge; judge.PATIENCE = 180; judge.main()"
END
systemctl daemon-reload"""
"""A file system that does not mount without the module: systemd ends in a shell that waits for somebody at the console,
here for three minutes in place of fifteen."""


@pytest.fixture(scope="module", name="host")
def _host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    with booted(tmp_path_factory.mktemp("first"), DESCRIPTION, NAME) as made:
        yield made


def spec_of(kernel: dict[str, Any]) -> dict[str, Any]:
    return {"kernel": kernel, "reboot": "if-needed", "on_failure": "rollback"}


def apply(host: Booted, kernel: dict[str, Any], **site: object) -> tuple[int, Any]:
    """Exit code and JSON of an apply with this block of the kernel."""
    return host.gpuprov("apply", spec_of(kernel), "--yes", **site)


def is_counted_no_more(host: Booted, choice: str) -> None:
    """The first boot was found good: GRUB starts its own default, and nothing of gpuprov is in its way."""
    assert "gpuprov.first panic=30" in host.sh("cat /proc/cmdline")
    host.sh("while systemctl is-active --quiet gpuprov-first-boot; do sleep 1; done")
    assert "gpuprov_boot" not in host.sh("grub-editenv list")
    assert host.sh("ls /boot/grub/gpuprov 2>/dev/null || true") == ""
    assert host.sh("cat /proc/sys/kernel/panic").strip() == "20", "as the spec has it"
    assert host.sh(CHOICE) == choice


def test_a_good_boot_is_counted_once(host: Booted) -> None:
    choice = host.sh(CHOICE)
    code, told = apply(host, GOOD)
    assert code == 0, told
    assert host.sh("ls /boot/grub/gpuprov 2>/dev/null || true") == "", "no boot was to come"

    code, told = apply(host, BOOTS)
    assert code == 0, told
    assert "audit=0" in host.sh("cat /proc/cmdline")
    is_counted_no_more(host, choice)
    machine.reboot(NAME)
    line = host.sh("cat /proc/cmdline")
    assert "audit=0 panic=20" in line
    assert "gpuprov" not in line
    assert "panic=30" not in line


def test_a_boot_that_panics_is_undone_by_grub_and_then_by_rollback(host: Booted) -> None:
    choice = host.sh(CHOICE)
    code, told = apply(host, BOOTS)
    assert code == 0, told
    first = host.sh(BOOT_ID)

    code, told = apply(host, PANICS)
    (row,) = told["hosts"]
    assert code == 3, told
    assert "did not come up with what this run changed" in row["message"], row
    assert row["rolled_back"].startswith("rolled back to "), row
    assert row["rolled_back"].endswith("verify is green"), row
    assert host.sh(BOOT_ID) != first
    line = host.sh("cat /proc/cmdline")
    assert "gpuprov.kept" in line
    assert "rdinit" not in line
    assert "gpuprov_boot=once" in host.sh("grub-editenv list"), "GRUB's own default is tried at the next boot"
    assert host.sh(CHOICE) == choice

    machine.reboot(NAME)
    assert "rdinit" not in host.sh("cat /proc/cmdline")
    is_counted_no_more(host, choice)


def test_a_boot_that_hangs_is_undone_once_somebody_has_pressed_reset(host: Booted) -> None:
    """No watchdog, no panic: apply waits as long as it was told to, says so, and leaves the host, which nobody can
    reach."""
    code, told = apply(host, BOOTS)
    assert code == 0, told
    code, told = apply(host, HANGS, host_reboot_timeout=240)
    (row,) = told["hosts"]
    assert (code, row["state"], row["rolled_back"]) == (4, "unreachable", ""), told
    assert row["task"] == "Reboot the host", row
    assert row["message"].startswith("Timed out waiting for last boot time check"), row
    assert "gpuprov rollback" in row["fix"], row

    machine.reset(NAME)
    assert "gpuprov.kept" in host.sh("cat /proc/cmdline")
    code, results = host.gpuprov("verify", spec_of(HANGS))
    found = {one["check"]: one for one in results}["host.first_boot"]
    assert (code, found["status"]) == (1, "fail"), found
    assert "did not come up" in found["found"], found
    code, told = host.gpuprov("rollback", spec_of(HANGS), NAME, "--yes")
    assert code == 0, told
    machine.reboot(NAME)
    assert "rdinit" not in host.sh("cat /proc/cmdline")
    code, results = host.gpuprov("verify", spec_of(BOOTS))
    assert code == 0, [one for one in results if one["status"] in ("fail", "error")]


def test_a_boot_that_ends_in_an_emergency_shell_is_ended(host: Booted) -> None:
    code, told = apply(host, BOOTS)
    assert code == 0, told
    host.sh(NEEDS_LOOP)
    code, told = apply(host, MAINTENANCE)
    (row,) = told["hosts"]
    assert code == 3, told
    assert (
        "was to start; it was not complete after 180 s (maintenance)): GRUB has started it again" in row["message"]
    ), row
    assert row["rolled_back"].endswith("verify is green"), row
    assert "gpuprov.kept" in host.sh("cat /proc/cmdline")
    assert "/mnt" in host.sh("findmnt --noheadings --output TARGET --source /dev/loop0")
    machine.reboot(NAME)
    assert "module_blacklist" not in host.sh("cat /proc/cmdline")
