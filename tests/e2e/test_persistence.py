"""From the package's way of persistence to the other, and back, on a host with systemd: nothing of the way before
stays."""

from __future__ import annotations

import pytest

from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import Lab, loaded
from tests.e2e.machine import FORGET_ARCHIVE

pytestmark = pytest.mark.e2e
NAME = "e2e-persistence"
DAEMON, LEGACY = "nvidia-persistenced.service", "gpuprov-persistence.service"
STATES = "systemctl show -p Id,LoadState,ActiveState,UnitFileState --value {} | paste -sd' '"


def test_the_other_way_is_off_and_gone(lab: Lab) -> None:
    gpu = {"model": "H100-SXM5-80GB", "count": 1}
    with loaded(NAME, Description(gpu=Gpus(model="H100-SXM5-80GB", count=1)), "nvidia-modprobe") as machine:
        machine.sh(FORGET_ARCHIVE)
        for mode, on, off in (("legacy", LEGACY, DAEMON), ("daemon", DAEMON, LEGACY)):
            folder = lab.inventory({"gpu": gpu, "persistence": {"mode": mode}}, machine)
            before = lab.run("verify", folder, "--json")
            assert {row["check"] for row in before.json if row["status"] == "fail"} >= {"persistence.enabled"}, before
            applied = lab.run("apply", folder, "--yes")
            assert applied.code == 0, applied
            assert "enabled" in machine.sh(f"systemctl is-enabled {on}")
            left = machine.sh(STATES.format(off)).split()
            assert not {"active", "enabled"} & set(left), left
            assert machine.sh(f"ls /etc/systemd/system/*.wants/{off} 2>/dev/null || true").strip() == ""
            again = lab.run("apply", folder, "--yes")
            assert (again.code, "unchanged" in again.text) == (0, True), again
