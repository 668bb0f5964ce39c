"""A machine that does not come up from a reboot of apply starts again as it was, by its own GRUB, and on_failure: rollback ends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuprov.simulate import machine
from gpuprov.simulate.description import Description
from tests.e2e.booted import Booted, booted

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-first-boot"
DESCRIPTION = Description(kind="machine", memory=1024)
CHOICE = "grep -E '^(next_entry|saved_entry)=' /boot/grub/grubenv; grep GRUB_DEFAULT /etc/default/grub || true"
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
GOOD: dict[str, Any] = {"sysctl": {"vm.swappiness": 11}}
BOOTS: dict[str, Any] = {**GOOD, "command_line": {"audit": "0"}}
PANICS: dict[str, Any] = {**GOOD, "command_line": {"rdinit": "/nothing", "root": "/dev/nothing"}}
"""Neither an initramfs that starts nor a root file system: the kernel panics."""


@pytest.fixture(scope="module", name="host")
def _host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    with booted(tmp_path_factory.mktemp("first"), DESCRIPTION, NAME) as made:
        yield made


def apply(host: Booted, kernel: dict[str, Any], **site: object) -> tuple[int, Any]:
    """Exit code and JSON of an apply with this block of the kernel."""
    spec = {"kernel": kernel, "reboot": "if-needed", "on_failure": "rollback"}
    return host.gpuprov("apply", spec, "--yes", **site)


def is_counted_no_more(host: Booted, choice: str) -> None:
    """The first boot was found good: GRUB starts its own default, and nothing of gpuprov is in its way."""
    assert "gpuprov.first panic=30" in host.sh("cat /proc/cmdline")
    host.sh("while systemctl is-active --quiet gpuprov-first-boot; do sleep 1; done")
    assert "gpuprov_boot" not in host.sh("grub-editenv list")
    assert host.sh("ls /boot/grub/gpuprov 2>/dev/null || true") == ""
    assert host.sh("cat /proc/sys/kernel/panic").strip() == "0", "as it was before"
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
    assert "audit=0" in line
    assert "gpuprov" not in line
    assert "panic" not in line


def test_a_boot_that_panics_is_undone_by_grub_and_then_by_rollback(host: Booted) -> None:
    choice = host.sh(CHOICE)
    code, told = apply(host, GOOD)
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
