"""Drift where dnf and zypper keep the log, and what the host's own readings say of what no package manager logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuprov.simulate import container, hosts
from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import Lab, Ran
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
MODEL = "H100-SXM5-80GB"
SPEC: dict[str, Any] = {
    "gpu": {"model": MODEL, "count": 2},
    "nouveau": {},
    "nvidia_driver": {"version": "580"},
    "persistence": {},
    "readings": {},
}
REMOVED = {
    "rocky9": "dnf -y remove nvidia-persistenced",
    "sles15": "zypper --non-interactive remove nvidia-persistenced",
}
UNLOCKED = (
    "! command -v zypper >/dev/null || zypper --non-interactive removelock $(zypper locks | grep -o 'nvidia[^ ]*')"
)
"""zypper removes nothing that a locked package requires."""
READ = "systemctl start gpuprov-readings.service"
TIMER = "systemctl is-enabled gpuprov-readings.timer; systemctl is-active gpuprov-readings.timer"


@pytest.fixture(params=REMOVED)
def case(request: pytest.FixtureRequest) -> Iterator[tuple[Machine, str]]:
    name = f"e2e-drift-{request.param}"
    container.down(name)
    try:
        described = Description(distribution=request.param, gpu=Gpus(model=MODEL, count=2), driver="580")
        yield Machine(hosts.up(name, described)), REMOVED[request.param]
    finally:
        container.down(name)


def test_who_did_what_and_what_nobody_logged(lab: Lab, case: tuple[Machine, str]) -> None:
    site, removed = case
    folder = lab.inventory(SPEC, site)

    def drift() -> tuple[Ran, dict[str, Any]]:
        ran = lab.run("drift", folder, "--json")
        (host,) = ran.json["hosts"]
        return ran, host

    done = lab.run("apply", folder, "--yes")
    assert done.code == 0, done
    assert site.sh(TIMER).split() == ["enabled", "active"]
    ran, host = drift()
    assert (ran.code, host["state"]) == (0, "as applied"), ran

    file = site.sh("grep -lr '^blacklist nouveau' /etc/modprobe.d").split()[0]
    site.sh(f"{READ}; rm {file}; {READ}")
    ran, host = drift()
    assert (ran.code, host["state"]) == (1, "drifted"), ran
    told = [*host["noted"], *(cause for one in host["differences"] for cause in one["causes"])]
    assert any(f"{file} removed" in package for cause in told for package in cause["packages"]), host
    assert all(cause["after"] <= cause["at"] for cause in told if cause["after"])

    site.sh(f"({UNLOCKED}; {removed}) >&2")
    ran, host = drift()
    causes = [cause for one in host["differences"] for cause in one["causes"]]
    named = [cause for cause in causes if "remove" in cause["command"] and "nvidia-persistenced" in cause["command"]]
    assert named, host
    assert all("nvidia-persistenced" in " ".join(cause["packages"]) for cause in named), named
    assert host["next_boot"] == "wrong", host
