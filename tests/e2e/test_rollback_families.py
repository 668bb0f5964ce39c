"""Back to a driver that the mirror has dropped, with the real rpm, dnf and zypper: from the files that the host kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from gpuprov.simulate import container, hosts
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.parts.packages import PLACE, UNIT
from gpuprov.simulate.repository.build import repository
from tests.e2e.lab import Lab, podman
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
MODEL = "H100-SXM5-80GB"
NEW = "580.178.04"
DROPPED = f"umount {PLACE} 2>/dev/null; mount --bind /srv/dropped {PLACE} && systemctl restart {UNIT}"
INSTALLED = "rpm -qa --qf '%{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE} %{SHA256HEADER}\\n' | grep -i nvidia | sort"
OTHERS = "ls -A /var/lib/gpuprov/offered /etc/yum.repos.d/gpuprov-kept.repo /etc/zypp/repos.d/gpuprov-kept.repo 2>/dev/null || true"


@dataclass(frozen=True)
class Case:
    """A distribution: an older driver there, a lock of the site and where locks are, and what the host has of packages beside."""

    distribution: Any
    old: str
    lock: str
    locks: str
    forget: str


CASES = {
    # From one stream of the module to another, and the lists are gone with the mirror's packages.
    "rocky9": Case(
        "rocky9",
        "570.133.20",
        "echo 'site-tool-0:5*' >> /etc/dnf/plugins/versionlock.list",
        "cat /etc/dnf/plugins/versionlock.list",
        "rm -rf /var/cache/dnf/*",
    ),
    # The host's lists still name what the mirror has dropped.
    "sles15": Case(
        "sles15",
        "580.95.05",
        "zypper --non-interactive addlock site-tool >/dev/null",
        "cat /etc/zypp/locks",
        "rm -rf /var/cache/zypp/packages/*",
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Iterator[tuple[Machine, Case]]:
    """A host that is offered both drivers."""
    case = CASES[request.param]
    described = Description(distribution=case.distribution, gpu=Gpus(model=MODEL, count=2), driver=f"{case.old},{NEW}")
    name = f"e2e-back-{request.param}"
    container.down(name)
    try:
        machine = Machine(hosts.up(name, described))
        folder = repository(replace(described, driver=NEW))
        podman("cp", f"{folder}/.", f"{container.PREFIX}{name}:/srv/dropped")
        yield machine, case
    finally:
        container.down(name)


def spec(version: str) -> dict[str, Any]:
    return {
        "gpu": {"model": MODEL, "count": 2},
        "nouveau": {},
        "nvidia_driver": {"version": version, "kernel_modules": "open"},
        "persistence": {},
    }


def test_the_mirror_has_dropped_the_old_driver(lab: Lab, case: tuple[Machine, Case]) -> None:
    machine, site = case
    ran = lab.run("apply", lab.inventory(spec(site.old), machine), "--yes")
    assert ran.code == 0, ran
    before = machine.sh(INSTALLED)
    (made,) = (
        json.loads(line) for line in machine.sh("cat /var/lib/gpuprov/checkpoints/*/checkpoint.json").splitlines()
    )
    assert made["packages"], made
    assert len(made["files"]) == len(made["packages"]), made
    assert not set(made["files"]) ^ set(machine.sh("ls /var/lib/gpuprov/packages").split())
    machine.sh(site.lock)
    moved = lab.inventory(spec(NEW), machine)
    plan = lab.run("plan", moved)
    assert "not kept as files" not in plan.text, plan
    ran = lab.run("apply", moved, "--yes")
    assert ran.code == 0, ran
    assert NEW in machine.sh(INSTALLED)
    machine.sh(f"{DROPPED}; {site.forget}")
    ran = lab.run("rollback", machine.name, moved, "--yes")
    assert ran.code == 0, ran
    assert f"rolled back to {made['run']}" in ran.text
    assert machine.sh(INSTALLED) == before
    assert machine.sh(OTHERS) == "", "what offered the files is gone"
    locks = machine.sh(site.locks)
    assert NEW not in locks
    assert "site-tool" in locks, "the site's own lock stays"
    assert lab.run("verify", lab.inventory(spec(site.old), machine)).code == 0
