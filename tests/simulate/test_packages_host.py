"""A real apt, dpkg and DKMS with the repository of a simulated host."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from gpuprov.catalog.drivers.sets import find_packages
from gpuprov.core.errors import GpuprovError
from gpuprov.rules.resolve import fitting
from gpuprov.simulate import hosts
from gpuprov.simulate.description import Description, Gpus

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
DESCRIBED = Description(gpu=Gpus(model="H100-SXM5-80GB"), nvswitch=3, driver="580.126.20, 580")
OLD, NEW = "580.126.20-1", "580.178.04-1"


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    name = f"e2e-pkg-{os.getpid()}"
    hosts.up(name, DESCRIBED)
    yield name
    hosts.down(name)


def install(host: str, version: str, *more: str) -> str:
    names = find_packages("debian", "12")
    assert names
    wanted = [f"{name}={version}" for name in fitting(names.open, version)] + list(more)
    return hosts.run(
        host, f"DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends {' '.join(wanted)} 2>&1"
    )


def test_set_fails_installs_and_upgrades(host: str) -> None:
    madison = hosts.run(host, "apt-cache madison nvidia-open-kernel-dkms nvidia-smi nvidia-fabricmanager")
    assert [line.split("|")[1].strip() for line in madison.splitlines()] == [NEW, OLD] * 3
    hosts.run(host, "echo '3 404' > /var/lib/gpuprov-sim/faults/mirror-fails")
    with pytest.raises(GpuprovError, match="404"):
        install(host, OLD)
    hosts.run(host, "rm /var/lib/gpuprov-sim/faults/mirror-fails")
    install(host, OLD, "nvidia-persistenced")
    assert "nvidia-current-open/580.126.20" in hosts.run(host, "dkms status")
    install(host, NEW, f"nvidia-fabricmanager={NEW}")
    assert "nvidia-current-open/580.178.04" in hosts.run(host, "dkms status")
    assert "stand-in" in hosts.run(host, "modinfo -k $(ls /lib/modules) -F description nvidia-current-open")
    hosts.run(host, "systemctl enable nvidia-fabricmanager 2>&1")
    hosts.reboot(host)
    assert hosts.run(host, "systemctl is-active nvidia-persistenced nvidia-fabricmanager").split() == ["active"] * 2
    assert hosts.run(host, "cat /run/gpuprov-sim/fabric") == "Completed\n"
    query = "nvidia-smi --query-gpu=driver_version,persistence_mode --format=csv,noheader"
    assert hosts.run(host, query) == "580.178.04, Enabled\n"
