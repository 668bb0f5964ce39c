"""Capabilities that are taken out of the spec: plan names what they left, and --prune takes it away, on a host with
systemd."""

from __future__ import annotations

import pytest

from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import Lab, loaded
from tests.e2e.machine import FORGET_ARCHIVE

pytestmark = pytest.mark.e2e
NAME = "e2e-prune"
GPU = {"model": "H100-SXM5-80GB", "count": 1}
ALL = {
    "persistence": {"mode": "legacy"},
    "kernel": {"sysctl": {"net.core.somaxconn": 8192}},
    "mps": {},
    "readings": {},
}
LISTED = (
    "grep -oE '(file [0-9a-f]{64}|unit|hold) [^\"]+' /var/lib/gpuprov/receipt.json | sed -E 's/ [0-9a-f]{64}//' | sort"
)
MODE = "nvidia-smi --query-gpu=compute_mode --format=csv,noheader"
KEPT = "/etc/tmpfiles.d/gpuprov-mps.conf"


def test_what_the_spec_asks_for_no_longer_is_named_and_taken_away(lab: Lab) -> None:
    with loaded(NAME, Description(gpu=Gpus(model="H100-SXM5-80GB", count=1)), "nvidia-modprobe") as machine:
        machine.sh(FORGET_ARCHIVE)
        backlog = machine.sh("sysctl -n net.core.somaxconn").strip()
        folder = lab.inventory({"gpu": GPU, **ALL}, machine)
        applied = lab.run("apply", folder, "--yes")
        assert applied.code == 0, applied
        listed = machine.sh(LISTED).splitlines()
        assert {"file /etc/gpuprov/mps.json", "file /etc/sysctl.d/90-gpuprov.conf", "unit gpuprov-readings.timer"} <= {
            *listed
        }
        assert machine.sh(MODE).strip() == "Exclusive_Process"
        machine.sh(f"echo '# of the site' >> {KEPT}")

        folder = lab.inventory({"gpu": GPU, "persistence": ALL["persistence"]}, machine)
        plan = lab.run("plan", folder)
        assert plan.code == 0, plan
        assert "no longer asked for (--prune takes it away)" in plan.text, plan
        assert "/etc/gpuprov/mps.json" in plan.text
        assert f"net.core.somaxconn = 8192 (before: {backlog})" in plan.text
        unchanged = lab.run("apply", folder, "--yes")
        assert (unchanged.code, "unchanged" in unchanged.text) == (0, True), unchanged
        assert machine.sh("systemctl is-active gpuprov-mps@host.service").strip() == "active"
        assert "no longer asked for" in lab.run("drift", folder).text

        planned = lab.run("plan", folder, "--prune", "--json")
        (host,) = planned.json["hosts"]
        going = {one["name"] for one in (*host["files"], *host["services"])}
        assert {"/etc/gpuprov/mps.json", "/etc/sysctl.d/90-gpuprov.conf", "gpuprov-mps@host.service"} <= going
        assert KEPT not in going
        assert [(one["name"], one["before"], one["after"]) for one in host["settings"]] == [
            ("net.core.somaxconn", "8192", backlog)
        ]
        pruned = lab.run("apply", folder, "--prune", "--yes")
        assert pruned.code == 0, pruned
        gone = [one.partition(" ")[2] for one in listed if one.startswith("file /")]
        mine = [path for path in gone if path != KEPT and "persistence" not in path]
        assert machine.sh(f"ls -d {' '.join(mine)} 2>/dev/null || true") == ""
        assert machine.sh(f"tail -n 1 {KEPT}").strip() == "# of the site"
        assert machine.sh("systemctl is-active gpuprov-mps@host.service gpuprov-readings.timer || true").split() == [
            "inactive",
            "inactive",
        ]
        assert machine.sh(MODE).strip() == "Default"
        assert machine.sh("sysctl -n net.core.somaxconn").strip() == backlog
        assert list(machine.receipt()["capabilities"]) == ["persistence"]
        again = lab.run("plan", folder, "--prune")
        assert (again.code, "no longer" in again.text) == (0, False), again
        assert lab.run("verify", folder).code == 0

        folder = lab.inventory({"gpu": GPU, "health": {}}, machine)
        left = lab.run("apply", folder, "--prune", "--yes")
        assert left.code in (0, 1), left
        there = machine.sh("find /etc /usr/local/lib -name '*gpuprov*' ! -path '*gpuprov-sim*'").split()
        assert there == [KEPT], "nothing else of gpuprov's is left"
