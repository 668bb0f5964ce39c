"""Two machines with kernels of their own and a network between them: rxe made, kept across a reboot, missed when gone;
rping."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpuprov.simulate import hosts, machine
from gpuprov.simulate.description import Description
from gpuprov.simulate.disk_files import FABRIC_INTERFACE
from tests.e2e.booted import Booted, booted

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAMES = ("e2e-rdma1", "e2e-rdma2")
DESCRIPTION = Description(kind="machine", memory=1024)
SPEC = {"rdma": {"fabric": "soft", "soft": {"netdevs": [FABRIC_INTERFACE]}}}
LISTEN = (
    "systemd-run --quiet --unit listener python3 -c 'import socket, time\ns = socket.socket(socket.AF_INET, "
    "socket.SOCK_DGRAM)\n"
)
LISTEN += 's.bind(("", 4791))\ntime.sleep(10000)\''


@pytest.fixture(scope="module", name="fleet")
def _fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    with booted(tmp_path_factory.mktemp("rdma"), DESCRIPTION, *NAMES) as made:
        yield made


def failing(told: Any) -> set[str]:
    return {row["check"] for row in told if row["status"] == "fail"}


def test_what_cannot_be_is_refused_before_anything_is_changed(fleet: Booted) -> None:
    siw = {"rdma": {"fabric": "soft", "soft": {"driver": "siw", "netdevs": [FABRIC_INTERFACE]}}}
    code, told = fleet.gpuprov("apply", siw, "--yes")
    assert code == 3
    assert "no kernel of Debian is built with siw" in json.dumps(told)
    for name in NAMES:
        hosts.run(name, LISTEN)
    code, told = fleet.gpuprov("apply", SPEC, "--yes")
    assert code == 3
    assert "4791" in json.dumps(told)
    assert "python3" in json.dumps(told)
    for name in NAMES:
        assert hosts.run(name, "ls /etc/gpuprov 2>/dev/null || true; rdma link; systemctl stop listener") == ""


def test_devices_are_made_and_are_there_after_a_reboot(fleet: Booted) -> None:
    code, told = fleet.gpuprov("apply", SPEC, "--yes")
    assert code == 0, told
    code, told = fleet.gpuprov("apply", SPEC, "--yes")
    assert [host["state"] for host in told["hosts"]] == ["unchanged"] * 2
    for name in NAMES:
        hosts.reboot(name)
        hosts.run(name, "systemctl is-system-running --wait || true")
        assert f"netdev {FABRIC_INTERFACE}" in hosts.run(name, "rdma link")
        assert "unlimited" in hosts.run(name, "su - gpuadmin -c 'ulimit -l'")
    assert fleet.gpuprov("verify", SPEC)[0] == 0


def test_data_goes_from_one_to_the_other(fleet: Booted) -> None:
    server, client = NAMES
    address = machine.fabric_address(server)
    hosts.run(server, f"systemd-run --quiet --unit rping-server timeout 300 rping -s -a {address} -C 10")
    assert "ping data" in hosts.run(client, f"sleep 5; timeout 120 rping -c -v -a {address} -C 10")


@pytest.mark.parametrize(
    ("plant", "check"),
    [
        ('rdma link delete "$(ls /sys/class/infiniband)"', "rdma.soft"),
        ("systemctl disable gpuprov-rdma-soft 2>&1", "rdma.enabled"),
        (f"ip link set {FABRIC_INTERFACE} down", "rdma.ports"),
    ],
)
def test_a_fault_is_found_under_the_name_of_its_check(fleet: Booted, plant: str, check: str) -> None:
    hosts.run(NAMES[0], plant)
    code, told = fleet.gpuprov("verify", SPEC)
    assert code == 1
    assert check in failing(told)
    hosts.run(NAMES[0], f"ip link set {FABRIC_INTERFACE} up; networkctl reconfigure {FABRIC_INTERFACE}")
    assert fleet.gpuprov("apply", SPEC, "--yes")[0] == 0
