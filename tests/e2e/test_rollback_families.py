"""Back to a driver that the mirror has dropped, or without a mirror, with the real rpm, dnf and zypper: from kept
files."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpuprov.simulate import container, hosts, inventory
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.parts.packages import PLACE, UNIT
from gpuprov.simulate.repository.build import repository
from tests.e2e.lab import GPUPROV, podman
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
MODEL = "H100-SXM5-80GB"
NEW = "580.178.04"
DROPPED = f"umount {PLACE} 2>/dev/null; mount --bind /srv/dropped {PLACE} && systemctl restart {UNIT}"
REFRESHED = "! command -v zypper >/dev/null || zypper --non-interactive --quiet refresh --force >&2"
"""The files of the mirror that has dropped the old driver were built anew: those that zypper's lists name had other
digests."""
UNREACHABLE = f"systemctl mask --runtime --now {UNIT}; ip route del default"
LISTS = "/var/cache/dnf/* /var/cache/zypp/raw/* /var/cache/zypp/solv/*"
INSTALLED = "rpm -qa --qf '%{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE} %{SHA256HEADER}\\n' | grep -i nvidia | sort"
OTHERS = (
    "ls -A /var/lib/gpuprov/offered /etc/yum.repos.d/gpuprov-kept.repo /etc/zypp/repos.d/gpuprov-kept.repo "
    "2>/dev/null || true"
)


@dataclass(frozen=True)
class Case:
    """A distribution: an older driver there, a lock of the site and where locks are, and what the host has of packages
    beside."""

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


def test_the_mirror_has_dropped_the_old_driver(case: tuple[Machine, Case], tmp_path: Path) -> None:
    machine, site = case

    def run(verb: str, version: str, *options: str) -> str:
        """What gpuprov says, with this version in the inventory."""
        file = tmp_path / "hosts.yaml"
        file.write_text(inventory.text([machine.host], spec(version)), encoding="utf-8")
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
        words = [GPUPROV, verb, *([machine.name] if verb == "rollback" else []), str(file), *options]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=1500)
        print(words, done.stdout[-4000:], done.stderr[-4000:], done.returncode)
        assert done.returncode == (1 if verb == "plan" else 0), done
        return " ".join((done.stdout + done.stderr).split())

    run("apply", site.old, "--yes")
    before = machine.sh(INSTALLED)
    (made,) = map(json.loads, machine.sh("cat /var/lib/gpuprov/checkpoints/*/checkpoint.json").splitlines())
    assert made["packages"], made
    assert len(made["files"]) == len(made["packages"]), made
    assert set(made["files"]) == set(machine.sh("ls /var/lib/gpuprov/packages").split())
    machine.sh(site.lock)
    assert "not kept as files" not in run("plan", NEW)
    run("apply", NEW, "--yes")
    assert NEW in machine.sh(INSTALLED)
    machine.sh(f"{DROPPED}; {site.forget}")
    said = run("rollback", NEW, "--yes")
    assert f"rolled back to {made['run']}" in said
    assert machine.sh(INSTALLED) == before
    assert machine.sh(OTHERS) == "", "what offered the files is gone"
    locks = machine.sh(site.locks)
    assert NEW not in locks
    assert "site-tool" in locks, "the site's own lock stays"
    run("verify", site.old)
    machine.sh(REFRESHED)
    run("apply", NEW, "--yes")
    machine.sh(f"{UNREACHABLE}; {site.forget}; rm -rf {LISTS}")
    said = run("rollback", NEW, "--yes")
    assert "cannot be asked" in said
    assert f"rolled back to {made['run']}" in said
    assert machine.sh(INSTALLED) == before
    assert machine.sh(OTHERS) == ""
