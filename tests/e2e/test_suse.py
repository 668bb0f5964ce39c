"""SLES 15 with the real rpm and zypper: a driver that somebody installed, one that gpuprov brings, one that it
moves."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov.catalog.drivers.sets import find_packages
from gpuprov.rules.resolve import fitting
from gpuprov.simulate import inventory
from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import GPUPROV
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-suse"
OLD, NEW = "580.95.05", "580.178.04"
HOST = Description(distribution="sles15", gpu=Gpus(model="L40S", count=2), driver=f"{OLD},{NEW}")
KERNEL = "6.4.0-150700.53.40-default"


def names() -> list[str]:
    """The set with open modules."""
    found = find_packages("sles", "15.7")
    assert found
    return [name for name in fitting(found.open, OLD) if not name.startswith(("nvidia-video", "nvidia-gl"))]


def spec(version: str, **more: Any) -> dict[str, Any]:
    return {"nouveau": {}, "nvidia_driver": {"version": version, "kernel_modules": "open", **more}, "persistence": {}}


class Site:
    """The host, and gpuprov as somebody calls it."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine, self.folder = machine, folder

    def run(self, command: str, wanted: dict[str, Any] | None, *options: str) -> subprocess.CompletedProcess[str]:
        """gpuprov with this spec for the host."""
        file = self.folder / "hosts.yaml"
        file.write_text(inventory.text([self.machine.host], wanted), encoding="utf-8")
        environment = {**os.environ, "XDG_STATE_HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder)}
        words = [GPUPROV, command, str(file), *options]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=1500)
        print(words, done.stdout[-4000:], done.stderr[-4000:], done.returncode)
        return done

    def checks(self, wanted: dict[str, Any]) -> dict[str, str]:
        """The status of each check of the driver."""
        rows = json.loads(self.run("verify", wanted, "--json").stdout)["results"]
        return {row["check"]: row["status"] for row in rows if row["check"].startswith("nvidia_driver.")}


@pytest.fixture
def sles(site: Machine, tmp_path: Path) -> Site:
    return Site(site, tmp_path)


def installed(site: Machine) -> dict[str, str]:
    rows = site.sh("rpm -qa --qf '%{NAME} %{VERSION}\\n'").splitlines()
    return {name: version for name, version in (row.split() for row in rows) if name in names()}


def test_what_an_administrator_installed_is_read(sles: Site) -> None:
    site = sles.machine
    wanted = " ".join(f"{name}={OLD}-1" for name in names())
    site.sh(f"zypper --non-interactive install --oldpackage --no-recommends {wanted} >/var/log/by-hand 2>&1")
    assert installed(site) == dict.fromkeys(names(), OLD)
    assert site.sh(f"modinfo -k {KERNEL} -F version nvidia").strip() == OLD, "DKMS built for SUSE's name of the kernel"
    assert sles.checks(spec(OLD))["nvidia_driver.held"] == "fail"
    site.sh(f"zypper --non-interactive addlock {' '.join(names())}")
    found = sles.checks(spec(OLD))
    assert set(found.values()) <= {"pass", "skip"}, found
    assert {"nvidia_driver.held", "nvidia_driver.packages", "nvidia_driver.modules"} & found.keys()
    exported = yaml.safe_load(sles.run("export", None).stdout)
    (host,) = exported["all"]["hosts"].values()
    assert host["gpuprov"]["nvidia_driver"] == {"version": OLD, "kernel_modules": "open"}
    ran = sles.run("plan", spec(NEW), "--quick")
    (moved,) = (line for line in ran.stdout.splitlines() if f"~ {OLD}-1 -> {NEW}-1: " in line)
    assert "nvidia-open-driver-G06" in moved, ran


def test_a_branch_that_the_host_has_not_is_looked_for_in_nvidias_repository_for_sles(sles: Site) -> None:
    ran = sles.run("plan", spec("590"), "--quick")
    assert (
        "resolved when apply has added https://developer.download.nvidia.com/compute/cuda/repos/sles15/x86_64/"
        in ran.stdout
    ), ran


def test_gpuprov_moves_the_set_and_locks_it(sles: Site) -> None:
    """The version that an administrator installed and locked goes, as a set, in one transaction; a second apply does
    nothing."""
    ran = sles.run("apply", spec(NEW), "--yes")
    assert ran.returncode == 0, ran
    assert installed(sles.machine) == dict.fromkeys(names(), NEW)
    locked = sles.machine.sh("sed -n 's/^solvable_name: //p' /etc/zypp/locks").split()
    assert sorted(locked) == sorted(names())
    assert sles.machine.sh(f"modinfo -k {KERNEL} -F version nvidia").strip() == NEW
    image = f"/boot/initrd-{KERNEL}"
    assert "gpuprov.conf" in sles.machine.sh(f"lsinitrd {image} 2>/dev/null | grep modprobe.d/gpuprov || :"), image
    again = sles.run("apply", spec(NEW), "--yes")
    assert again.returncode == 0, again
    assert "unchanged" in again.stdout, again
