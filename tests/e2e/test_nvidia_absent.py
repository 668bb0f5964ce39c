"""nvidia_absent on a simulated host with Debian's driver: packages, holds, files, units and modules go, and stay
away."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.lab import SPEC, Lab

pytestmark = pytest.mark.e2e
ABSENT: dict[str, Any] = {"nvidia_absent": {}}
OURS = "find /etc /usr/local/lib /usr/local/sbin -name '*gpuprov*' ! -path '*gpuprov-sim*'"


def test_nvidia_is_removed_and_comes_back(lab: Lab, newest: str) -> None:
    machine = lab.simulated("absent", newest)
    installed, held = machine.packages(), machine.held()
    assert {"libcuda1", "nvidia-smi"} & installed.keys()
    assert held
    refused = lab.run("check", lab.inventory({**SPEC, **ABSENT}, machine))
    assert refused.code == 2, refused
    assert "nvidia_driver needs NVIDIA's driver, and nvidia_absent removes it from this host" in refused.text
    assert "persistence: false for this host" in refused.text

    folder = lab.inventory(ABSENT, machine)
    before = machine.state()
    plan = lab.run("plan", folder, "--json")
    (host,) = plan.json["hosts"]
    going = {row["name"] for row in host["packages"] if row["after"] == "removed"}
    assert "nouveau" in {row["name"] for row in host["modules"]}, plan
    assert machine.state() == before, "a plan changes nothing"

    applied = lab.run("apply", folder, "--yes")
    assert applied.code == 0, applied
    left = machine.packages()
    assert installed.keys() - left.keys() <= going, "plan named each package that went"
    assert not {name for name in left if name.startswith(("nvidia-", "libcuda", "libnvidia-", "cuda-"))}
    assert not machine.held()
    assert machine.modules() == {} or not any(machine.modules().values())
    assert machine.sh("ldconfig -p | grep -E 'lib(cuda|nvidia-ml).so.1 ' || true") == ""
    assert "nvidia" not in machine.sh("systemctl list-unit-files --no-legend 'nvidia*' | grep -v masked || true")
    assert machine.sh(f"{OURS} | xargs -r grep -l nouveau || true") == ""
    assert "nvidia_driver" not in machine.receipt()["capabilities"]
    verified = lab.run("verify", folder)
    assert verified.code == 0, verified
    assert lab.run("apply", folder, "--yes", "--json").json["hosts"][0]["state"] == "unchanged"

    back = lab.run("apply", lab.inventory(SPEC, machine), "--yes")
    assert back.code == 0, back
    assert {"libcuda1", "nvidia-smi"} & machine.packages().keys() == {"libcuda1", "nvidia-smi"} & installed.keys()
