"""Hosts go back to what they were when verify was last green."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.e2e.lab import Lab, spec_of
from tests.e2e.machine import Machine

pytestmark = pytest.mark.e2e
IMPOSSIBLE = {"kernel": {"sysctl": {"vm.swappiness": 10}}}
"""What no container lets anybody set: the apply fails after the driver was changed."""
NO_REPOSITORY = (
    "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* /var/lib/apt/lists/*_Packages /var/lib/apt/lists/*Release"
)


def checkpoints(machine: Machine) -> list[dict[str, Any]]:
    """Those that the host keeps, the oldest first."""
    lines = machine.sh("cat /var/lib/gpuprov/checkpoints/*/checkpoint.json").splitlines()
    return sorted(map(json.loads, lines), key=lambda one: str(one["at"]))


def test_back_without_a_repository_that_has_it(lab: Lab, older: str, versions: tuple[str, str]) -> None:
    machine = lab.simulated("back", older)
    inventory = lab.inventory(spec_of(versions[1]), machine)
    first, second = checkpoints(machine)
    assert first["spec"]["nvidia_driver"]["version"] == versions[0], "the spec said 535"
    assert (
        machine.sh("stat -c '%a %U' /var/lib/gpuprov/checkpoints /var/lib/gpuprov/checkpoints/*/").split()
        == ["700", "root"] * 3
    )
    unknown = lab.run("rollback", machine.name, inventory, "--yes", "--to", "nosuch")
    assert unknown.code == 3
    assert 'no checkpoint "nosuch"' in unknown.text
    assert f"{first['run']} (" in unknown.text
    machine.sh(NO_REPOSITORY)
    ran = lab.run("rollback", machine.name, inventory, "--yes")
    assert ran.code == 0, ran
    assert f"rolled back to {first['run']}" in ran.text
    machine.has_driver(versions[0])
    assert machine.sh("ls /etc/apt/sources.list.d") == "", "what offered the files is gone"
    assert set(machine.sh("ls /var/lib/gpuprov/checkpoints").split()) == {first["run"], second["run"], "last.json"}
    again = lab.run("rollback", machine.name, inventory, "--yes")
    assert again.code == 3
    assert "nothing to go back to" in again.text


@pytest.mark.slow
def test_an_apply_that_fails_takes_its_driver_back(lab: Lab, newest: str, versions: tuple[str, str]) -> None:
    machine = lab.simulated("fails", newest)
    spec = {**spec_of(versions[1]), **IMPOSSIBLE, "on_failure": "rollback"}
    ran = lab.run("apply", lab.inventory(spec, machine), "--yes", "--json")
    assert ran.code == 3, ran
    (host,) = ran.json["hosts"]
    assert host["rolled_back"].endswith("verify is green"), host
    machine.has_driver(versions[0])
    assert machine.sh("grep -rl swappiness /etc/sysctl.d || true") == ""


@pytest.mark.slow
def test_a_rollback_that_was_killed_is_completed_by_the_next(lab: Lab, older: str, versions: tuple[str, str]) -> None:
    machine = lab.simulated("killed", older)
    inventory = lab.inventory(spec_of(versions[1]), machine)
    first, _ = checkpoints(machine)
    running = lab.start("rollback", machine.name, inventory, "--yes")
    until = time.monotonic() + 120
    while machine.sh("cat /var/lib/gpuprov/applying.json 2>/dev/null || true") == "" and time.monotonic() < until:
        time.sleep(0.5)
    second = lab.run("rollback", machine.name, inventory, "--yes")
    assert second.code == 5, second
    assert "locked by" in second.text
    running.kill()
    lab.finish(running)
    target = json.loads(machine.sh("cat /var/lib/gpuprov/checkpoints/target.json"))
    assert (target["run"], target["before"]) == (first["run"], "")
    ran = lab.run("rollback", machine.name, inventory, "--yes")
    assert ran.code == 0, ran
    assert f"rolled back to {first['run']}" in ran.text
    machine.has_driver(versions[0])


def test_a_host_without_a_checkpoint_is_refused(lab: Lab) -> None:
    machine = lab.machine("none")
    before = machine.state()
    ran = lab.run("rollback", machine.name, lab.inventory(None, machine), "--yes")
    assert ran.code == 3, ran
    assert "no checkpoint: no apply here has ended with a green verify" in ran.text
    assert machine.state() == before
