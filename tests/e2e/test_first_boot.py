"""A machine that does not come up from a reboot of apply starts again as it was, by its own GRUB, and on_failure: rollback ends it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov.simulate import hosts, inventory, machine
from gpuprov.simulate.description import Description

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-first-boot"
DESCRIPTION = Description(kind="machine", memory=1024)
CHOICE = "grep -E '^(next_entry|saved_entry)=' /boot/grub/grubenv; grep GRUB_DEFAULT /etc/default/grub || true"
GOOD: dict[str, Any] = {"sysctl": {"vm.swappiness": 11}}
PANICS: dict[str, Any] = {**GOOD, "command_line": {"rdinit": "/nothing", "root": "/dev/nothing"}}
"""Neither an initramfs that starts nor a root file system: the kernel panics."""


class Machine:
    """The machine, and gpuprov on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sh(self, script: str) -> str:
        return hosts.run(NAME, script)

    def gpuprov(self, command: str, kernel: dict[str, Any], *more: str) -> tuple[int, Any]:
        """Exit code and JSON with this block of the kernel."""
        told = yaml.safe_load((self.folder / "inventory.yaml").read_text(encoding="utf-8"))
        spec = {"kernel": kernel, "reboot": "if-needed", "on_failure": "rollback"}
        told["all"]["vars"] = {"gpuprov": spec}
        place = self.folder / f"{command}.yaml"
        place.write_text(yaml.safe_dump(told), encoding="utf-8")
        ran = subprocess.run(
            [sys.executable, "-m", "gpuprov", command, "--json", *more, str(place)],
            capture_output=True,
            text=True,
            check=False,
            timeout=2400,
        )
        print(command, kernel, ran.returncode, ran.stdout, ran.stderr)
        assert ran.stdout, ran.stderr
        return ran.returncode, json.loads(ran.stdout)


@pytest.fixture(scope="module", name="host")
def _host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("first")
    try:
        inventory.write([hosts.up(NAME, DESCRIPTION)], folder / "inventory.yaml", DESCRIPTION)
        yield Machine(folder)
    finally:
        hosts.down(NAME)


def test_a_boot_that_panics_is_undone_by_grub_and_then_by_rollback(host: Machine) -> None:
    choice = host.sh(CHOICE)
    code, told = host.gpuprov("apply", GOOD, "--yes")
    assert code == 0, told
    assert host.sh("ls /boot/grub/gpuprov 2>/dev/null || true") == "", "no boot was to come"
    first = host.sh("cat /proc/sys/kernel/random/boot_id")

    code, told = host.gpuprov("apply", PANICS, "--yes")
    (row,) = told["hosts"]
    assert code == 3, told
    assert "did not come up with what this run changed" in row["message"], row
    assert row["rolled_back"].startswith("rolled back to "), row
    assert row["rolled_back"].endswith("verify is green"), row
    assert host.sh("cat /proc/sys/kernel/random/boot_id") != first
    line = host.sh("cat /proc/cmdline")
    assert "gpuprov.kept" in line
    assert "rdinit" not in line
    assert "gpuprov_boot=once" in host.sh("grub-editenv list"), "GRUB's own default is tried at the next boot"
    assert host.sh(CHOICE) == choice

    machine.reboot(NAME)
    line = host.sh("cat /proc/cmdline")
    assert "gpuprov.first panic=30" in line, "a first boot, and a good one"
    assert "rdinit" not in line
    host.sh("while systemctl is-active --quiet gpuprov-first-boot; do sleep 1; done")
    assert "gpuprov_boot" not in host.sh("grub-editenv list")
    assert host.sh("ls /boot/grub/gpuprov 2>/dev/null || true") == ""
    assert host.sh("cat /proc/sys/kernel/panic").strip() == "0", "as it was before"
    assert host.sh(CHOICE) == choice
