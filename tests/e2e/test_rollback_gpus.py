"""What is set goes back with a rollback: MIG, MPS, GPU and PCIe settings, changed, added since, and by an apply that
fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuprov.simulate import container, hosts
from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import Lab, loaded
from tests.e2e.machine import Machine
from tests.e2e.test_mig import HALVES, WHOLE, devices, layout
from tests.e2e.test_rollback import IMPOSSIBLE
from tests.e2e.test_sharing import MODES, daemon, limits

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
POWER = "nvidia-smi --query-gpu=power.limit --format=csv,noheader"
DRIVER: dict[str, Any] = {"nvidia_driver": {"version": "535"}}


def mig(instances: dict[str, int], power: int) -> dict[str, Any]:
    told = layout(instances, instances)
    del told["container_toolkit"]
    return {**told, "gpu_settings": {"power_limit": power}}


def mps(percentage: int) -> dict[str, Any]:
    return {
        **DRIVER,
        "mps": {"scope": "gpu", "active_thread_percentage": percentage, "pinned_memory_limit": {"all": "8G"}},
    }


@pytest.fixture(name="partitioned")
def _partitioned(lab: Lab) -> Iterator[Machine]:
    with loaded(
        "e2e-rollback-mig", Description(gpu=Gpus(model="A100-SXM4-80GB", count=2)), "nvidia-modprobe"
    ) as machine:
        yield machine


@pytest.fixture(name="shared")
def _shared(lab: Lab) -> Iterator[Machine]:
    with loaded("e2e-rollback-mps", Description(gpu=Gpus(model="L40S", count=2)), "nvidia-cuda-mps") as machine:
        yield machine


@pytest.fixture(name="wired")
def _wired(lab: Lab) -> Iterator[Machine]:
    name = "e2e-rollback-pcie"
    container.down(name)
    try:
        yield Machine(hosts.up(name, Description(gpu=Gpus(model="H100-SXM5-80GB", count=2), hcas=2)))
    finally:
        container.down(name)


def test_mig_and_settings_go_back(lab: Lab, partitioned: Machine) -> None:
    site, own = partitioned, partitioned.sh(POWER)
    plain = lab.run("apply", lab.inventory(DRIVER, site), "--yes")
    assert plain.code == 0, plain
    for instances, power in ((HALVES, 300), (WHOLE, 250)):
        done = lab.run("apply", lab.inventory(mig(instances, power), site), "--yes")
        assert done.code == 0, done
    assert list(devices(site, 1).values()) == ["7g.80gb"]
    inventory = lab.inventory(mig(WHOLE, 250), site)
    back = lab.run("rollback", site.name, inventory, "--yes")
    assert back.code == 0, back
    assert sorted(devices(site, 0).values()) == sorted(devices(site, 1).values()) == ["3g.40gb", "3g.40gb"]
    assert site.sh(POWER) == "300.00 W\n" * 2
    assert not lab.run("verify", lab.inventory(mig(HALVES, 300), site), "--json").failed()
    planned = lab.run("plan", lab.inventory({**mig(HALVES, 300), "readings": {}}, site))
    assert (
        "rollback could not undo readings: packages, and settings whose value before is not known, stay" in planned.text
    ), planned
    first = lab.run("rollback", site.name, inventory, "--yes")
    assert first.code == 0, first
    assert "gpu_settings goes, as far as the receipt lists it" in first.text, "it is named before it is asked"
    assert site.sh("ls -d /etc/systemd/system/gpuprov-gpu-settings.service 2>/dev/null || true") == ""
    assert "gpu_settings" not in site.receipt()["capabilities"]
    assert devices(site, 0) == devices(site, 1) == {}, "MIG was added since"
    query = "nvidia-smi --query-gpu=mig.mode.current,mig.mode.pending --format=csv,noheader"
    assert site.sh(query) == "Disabled, Disabled\n" * 2
    assert site.sh(POWER) == own, "the value before the first apply"


def test_mps_goes_back_by_hand_and_by_itself(lab: Lab, shared: Machine) -> None:
    site = shared
    plain = lab.run("apply", lab.inventory(DRIVER, site), "--yes")
    assert plain.code == 0, plain
    first = lab.run("apply", lab.inventory(mps(50), site), "--yes")
    assert first.code == 0, first
    before = daemon(site, "gpu0")["pid"]
    failing = {**mps(30), **IMPOSSIBLE, "on_failure": "rollback"}
    failed = lab.run("apply", lab.inventory(failing, site), "--yes", "--json")
    assert failed.code == 3, failed
    (host,) = failed.json["hosts"]
    assert host["rolled_back"].endswith("verify is green"), host
    assert limits(site, "gpu0") == limits(site, "gpu1") == ("50.0", "8G")
    assert daemon(site, "gpu0")["pid"] == before or host["changed"], "a daemon that was not touched goes on"
    back = lab.run("rollback", site.name, lab.inventory(mps(50), site), "--yes")
    assert back.code == 0, back
    assert site.sh(MODES) == "Default\nDefault\n"
    assert site.sh("systemctl list-units --no-legend 'gpuprov-mps@*'").strip() == ""


REQUESTS = "lspci -vv -d {}: 2>/dev/null | grep -o 'MaxReadReq [0-9]*' | sort -u"
NVIDIA, MELLANOX = (REQUESTS.format(vendor) for vendor in ("10de", "15b3"))
LEFT = "ls /etc/gpuprov/pcie.conf /etc/systemd/system/gpuprov-pcie.service 2>/dev/null || true"
STAY = (
    "pcie: registers and interrupts that the checkpoint does not name, and whose value before is not known, stay "
    "as they are"
)


def pcie(**asked: int) -> dict[str, Any]:
    return {"nouveau": {}, **({"pcie": asked} if asked else {})}


def test_pcie_settings_go_back(lab: Lab, wired: Machine) -> None:
    site = wired
    own = site.sh(NVIDIA), site.sh(MELLANOX)
    assert own == ("MaxReadReq 512\n",) * 2
    for asked in (pcie(), pcie(max_read_request=2048), pcie(max_read_request=4096, gpu_max_read_request=1024)):
        inventory = lab.inventory(asked, site)
        planned = lab.run("plan", inventory)
        assert (STAY in planned.text) == ("pcie" in asked), "before it is done"
        done = lab.run("apply", inventory, "--yes")
        assert done.code == 0, done
    assert (site.sh(NVIDIA), site.sh(MELLANOX)) == ("MaxReadReq 1024\n", "MaxReadReq 4096\n")

    changed = lab.run("rollback", site.name, inventory, "--yes")
    assert changed.code == 0, changed
    assert STAY in changed.text
    assert (site.sh(NVIDIA), site.sh(MELLANOX)) == ("MaxReadReq 1024\n", "MaxReadReq 2048\n")
    assert site.sh("grep -v '^#' /etc/gpuprov/pcie.conf") == "max_read_request 2048\n"
    assert not lab.run("verify", lab.inventory(pcie(max_read_request=2048), site), "--json").failed()

    first = lab.run("rollback", site.name, inventory, "--yes")
    assert first.code == 0, first
    assert STAY in first.text
    assert site.sh(LEFT) == "", "pcie was added since"
    assert "gpuprov-pcie" not in site.sh(
        "systemctl list-unit-files --no-legend; systemctl list-units --all --no-legend"
    )
    assert (site.sh(NVIDIA), site.sh(MELLANOX)) == own, "put back at once"
    hosts.reboot(site.name)
    assert (site.sh(NVIDIA), site.sh(MELLANOX)) == own
