"""Traps of RDMA on simulated hosts: verify finds each of them by the right check, and sees nothing else once they are
gone."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuprov.simulate import faults, hosts, inventory
from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import GPUPROV

pytestmark = pytest.mark.e2e
GPU = Gpus(model="H100-SXM5-80GB", count=4)
INFINIBAND = Description(gpu=GPU, nvswitch=3, hcas=4)
ROCE = Description(gpu=GPU, nvswitch=3, hcas=4, fabric="roce", rate=200)
RDMA: dict[str, Any] = {"count": 4, "memlock": "", "nccl": {"manage": False}}
OTHERS = {
    "topology": {"rails": "matched", "gpu_hca": "PXB", "same_socket": True, "hcas": 4, "nvlinks": "any"},
    "health": {"link_downed": 2, "transport_errors": 0},
}
PLANTED = {  # fault -> words of what its check found, and of the fix
    "ib-port-down=0": ("ibP1p20s0 port 1 is DOWN (Polling)", "the cable, and the switch's port"),
    "ib-rate-low=1": ("ibP1p36s0 port 1: 100 Gb/s", "the cable, its seat"),
    "hca-misplaced=2": ("GPU2 has none", "the machine's manual"),
    "pcie-link-narrow=gpu3": ("x4", ""),
    "rdma-timeouts=2": ("port 1: local_ack_timeout_err 12", "switches, cables"),
    "rdma-port-flaps=3": ("ibP1p68s0 port 1 went down 14 times", "replace the cable"),
}


class Host:
    """A simulated host and its inventory; `verify` gives the results by check."""

    def __init__(self, folder: Path, name: str, description: Description, spec: dict[str, Any]) -> None:
        self.name, self.folder = name, folder
        inventory.write([hosts.up(name, description)], folder / "hosts.yaml")
        (folder / "spec.yaml").write_text(json.dumps({"all": {"vars": {"gpuprov": spec}}}))

    def verify(self) -> dict[str, dict[str, str]]:
        environment = {**os.environ, "XDG_STATE_HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder)}
        command = [GPUPROV, "verify", str(self.folder / "hosts.yaml"), str(self.folder / "spec.yaml"), "--json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode in (0, 1), done.stderr
        return {row["check"]: row for row in json.loads(done.stdout)["results"]}

    def run(self, script: str) -> str:
        return hosts.run(self.name, script)


@pytest.fixture(scope="module")
def infiniband(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    yield from host(tmp_path_factory, INFINIBAND, {"fabric": "infiniband", "rate": 400, "opensm": {"elsewhere": True}})


@pytest.fixture(scope="module")
def roce(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    yield from host(tmp_path_factory, ROCE, {"fabric": "roce", "rate": 200, "nccl": {}})


def host(factory: pytest.TempPathFactory, description: Description, asked: dict[str, Any]) -> Iterator[Host]:
    name = f"e2e-{description.fabric}"
    gpu = {"model": GPU.model, "count": GPU.count}
    hosts.down(name)
    try:
        yield Host(
            factory.mktemp(name),
            name,
            description,
            {"gpu": gpu, "rdma": {**RDMA, **asked}, **OTHERS},
        )
    finally:
        hosts.down(name)


def failing(results: dict[str, dict[str, str]]) -> set[str]:
    return {name for name, row in results.items() if row["status"] not in ("pass", "skip")}


def test_planted_traps_are_found_and_healed_ones_are_gone(infiniband: Host) -> None:
    before = infiniband.verify()
    caught = {item: faults.find(item.partition("=")[0]).caught_by for item in PLANTED}
    assert not failing(before) & {*caught.values(), "rdma.devices", "topology.hcas", "topology.gpu_hca"}, before
    for item in PLANTED:
        faults.plant(infiniband.name, item, hosts.run)
    after = infiniband.verify()
    for item, (found, fix) in PLANTED.items():
        row = after[caught[item]]
        assert row["status"] == "fail", (item, row)
        assert found in row["found"], row
        assert fix in row["fix"], row
    for item in PLANTED:
        faults.heal(infiniband.name, item.partition("=")[0], hosts.run)
    assert failing(infiniband.verify()) == failing(before)


def test_programs_see_the_tree_and_set_registers(infiniband: Host) -> None:
    assert infiniband.run("systemctl is-system-running").strip() == "running"
    assert infiniband.run("lspci -d 15b3: | grep -c 'ConnectX-7'").strip() == "4"
    assert "LnkSta:\tSpeed 32GT/s, Width x16" in infiniband.run("lspci -vv -s 0001:14:00.0 2>/dev/null")
    assert (
        infiniband.run("readlink -f /sys/class/infiniband/ibP1p20s0/device")
        .strip()
        .startswith("/sys/devices/pci0001:10/")
    )
    acs = "setpci -s 0001:12:00.0 ECAP_ACS+6.w"
    infiniband.run(f"{acs}=0; setpci -s 0001:14:00.0 CAP_EXP+8.w=5930")
    read = (
        f"{acs}; lspci -vv -s 0001:14:00.0 2>/dev/null | grep -o 'MaxReadReq [0-9]*'; ls /sys/class/net "
        "/sys/class/block >/dev/null"
    )
    assert infiniband.run(read).split() == ["0000", "MaxReadReq", "4096"]
    hosts.reboot(infiniband.name)
    assert infiniband.run(read).split() == ["001d", "MaxReadReq", "512"], "neither outlives a boot"


def test_a_link_that_flaps(roce: Host) -> None:
    assert roce.verify()["health.link_flaps"]["status"] == "pass"
    faults.plant(roce.name, "rdma-link-flaps", hosts.run)
    row = roce.verify()["health.link_flaps"]
    assert (row["status"], row["found"].partition(",")[0]) == (
        "fail",
        "enP1p20s0np0 of roceP1p20s0 went down and came back 3 times",
    )
    faults.heal(roce.name, "rdma-link-flaps", hosts.run)
    assert roce.verify()["health.link_flaps"]["status"] == "pass"


def test_errors_that_grow(roce: Host) -> None:
    check = "health.link_error_rates"
    assert check not in roce.verify(), "the host takes no readings"
    faults.plant(roce.name, "rdma-errors-grow", hosts.run)
    row = roce.verify()[check]
    assert (row["status"], row["found"].partition(" in ")[0]) == ("fail", "roceP1p20s0 port 1: symbol_error +500")
    faults.heal(roce.name, "rdma-errors-grow", hosts.run)
    assert check not in roce.verify()


def test_a_roce_port_that_lost_its_address(roce: Host) -> None:
    assert roce.run("cat /sys/class/net/enP1p20s0np0/operstate").strip() == "up"
    assert roce.run("ip -4 -o address show dev enP1p20s0np0").split()[3].startswith("198.18.")
    before = roce.verify()
    assert not failing(before) & {"rdma.devices", "rdma.ports", "rdma.rate", "rdma.nccl_gid", "rdma.roce_gids"}, before
    faults.plant(roce.name, "roce-gid-missing=3", hosts.run)
    row = roce.verify()["rdma.nccl_gid"]
    assert (row["status"], row["found"]) == ("fail", "none on roceP1p68s0 port 1")
    assert "its network interface must be up" in row["fix"]
    faults.heal(roce.name, "roce-gid-missing", hosts.run)
    assert failing(roce.verify()) == failing(before)
