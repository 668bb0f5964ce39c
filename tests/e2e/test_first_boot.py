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
PANICS = """#!/bin/sh
# Of this test: the first boot with what the second apply sets does not come up.
case "$(cat /proc/cmdline)" in *panic_here=1*) echo "gpuprov test: a broken initramfs" >/dev/console; panic "broken" ;; esac
"""
CHOICE = "grep -E '^(next_entry|saved_entry)=' /boot/grub/grubenv; grep GRUB_DEFAULT /etc/default/grub; true"


class Machine:
    """The machine, and gpuprov on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sh(self, script: str) -> str:
        return hosts.run(NAME, script)

    def gpuprov(self, command: str, words: dict[str, str], *more: str) -> tuple[int, Any]:
        """Exit code and JSON with these on the command line."""
        told = yaml.safe_load((self.folder / "inventory.yaml").read_text(encoding="utf-8"))
        spec = {"kernel": {"command_line": words}, "reboot": "if-needed", "on_failure": "rollback"}
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
        print(command, words, ran.returncode, ran.stdout, ran.stderr)
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


def test_a_good_first_boot_leaves_nothing_behind(host: Machine) -> None:
    before = host.sh(CHOICE)
    code, told = host.gpuprov("apply", {"good_here": "1"}, "--yes")
    assert code == 0, told
    line = host.sh("cat /proc/cmdline")
    assert "good_here=1" in line
    assert "gpuprov.first panic=30" in line, "the boot was counted"
    assert host.sh("cat /proc/sys/kernel/panic").strip() == "0", "as the site has it"
    assert "gpuprov_boot" not in host.sh("grub-editenv list")
    assert host.sh("ls /boot/grub/gpuprov 2>/dev/null || true") == ""
    assert host.sh(CHOICE) == before
    machine.reboot(NAME)
    assert "gpuprov.first" not in host.sh("cat /proc/cmdline"), "only the first boot is counted"


def test_a_boot_that_fails_is_undone_by_grub_and_then_by_rollback(host: Machine) -> None:
    before = host.sh(CHOICE)
    host.sh(
        f"cat > /etc/initramfs-tools/scripts/init-premount/zz-test <<'END'\n{PANICS}END\n"
        "chmod 755 /etc/initramfs-tools/scripts/init-premount/zz-test; sed -i '2i . /scripts/functions' "
        "/etc/initramfs-tools/scripts/init-premount/zz-test; update-initramfs -u >&2; sync"
    )
    machine.reboot(NAME)  # what is kept must have been booted
    first = host.sh("cat /proc/sys/kernel/random/boot_id")
    code, told = host.gpuprov("apply", {"good_here": "1", "panic_here": "1"}, "--yes")
    (row,) = told["hosts"]
    assert code == 3, told
    assert "did not come up with what this run changed" in row["message"], row
    assert row["rolled_back"].startswith("rolled back to "), row
    assert row["rolled_back"].endswith("verify is green"), row
    assert host.sh("cat /proc/sys/kernel/random/boot_id") != first
    line = host.sh("cat /proc/cmdline")
    assert "good_here=1" in line
    assert "panic_here" not in line
    assert "gpuprov.kept" in line
    assert "gpuprov_boot=once" in host.sh("grub-editenv list"), "GRUB's own default is tried at the next boot"
    assert host.sh(CHOICE) == before
    machine.reboot(NAME)
    line = host.sh("cat /proc/cmdline")
    assert "gpuprov.first" in line
    assert "panic_here" not in line
    host.sh("while systemctl is-active --quiet gpuprov-first-boot; do sleep 1; done")
    assert "gpuprov_boot" not in host.sh("grub-editenv list")
    assert host.gpuprov("verify", {"good_here": "1"})[0] == 0
