"""The PCI tree and the RDMA devices of simulated containers, read by the probes that read real hosts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuprov.facts.probes import rdma
from gpuprov.facts.probes.gpus import fabric, topology
from gpuprov.facts.probes.host import pcie
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.devices import devices
from gpuprov.simulate.parts.rdma import NETWORK
from gpuprov.simulate.parts.silicon_files import bus_container as program
from tests.simulate.sysfs_host import NAME, SysfsHost

pytestmark = pytest.mark.install

HGX = Description(gpu=Gpus(model="H100-SXM5-80GB", count=8), nvswitch=3, hcas=8)
SMALL = Description(gpu=Gpus(model="H100-SXM5-80GB", count=2), nvswitch=3, hcas=2)
ROCE = Description(gpu=Gpus(model="H100-SXM5-80GB", count=2), nvswitch=3, hcas=2, fabric="roce", rate=200)
B200 = Description(gpu=Gpus(model="B200", count=2), nvswitch=4, hcas=2)
Make = Callable[[Description], SysfsHost]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    return lambda description: SysfsHost(tmp_path, description, monkeypatch)


def test_each_gpu_of_a_board_shares_a_switch_with_its_hca(make: Make) -> None:
    host = make(HGX)
    tree = host.read(topology.PCI)
    here = {(one.role, one.index): tree.functions[one.address] for one in devices(NAME, HGX)}
    for rail in range(8):
        gpu, hca = here["gpu", rail], here["hca", rail]
        assert gpu.bridges[:-1] == hca.bridges[:-1]
        assert len(gpu.bridges) == 3
        assert gpu.numa_node == hca.numa_node == rail // 4
        assert hca.rdma
        assert gpu.link == topology.Link(width=16, speed=32, max_width=16, max_speed=32)
    assert len({here["gpu", rail].root for rail in range(8)}) == 8
    assert len(rdma.list_hcas(host.read(rdma.DEVICES))) == 8


def test_infiniband_devices_are_named_and_shown_as_a_real_host_has_them(make: Make) -> None:
    host = make(SMALL)
    one, other = host.read(rdma.DEVICES)
    assert (one.name, other.name) == ("ibP1p20s0", "ibP1p36s0")
    assert (one.driver, one.identifier, one.node_type, one.netdevs) == ("mlx5_core", "15b3:1021", "CA", ())
    assert re.fullmatch("([0-9a-f]{4}:){3}[0-9a-f]{4}", one.node_guid)
    assert one.node_guid != other.node_guid
    (port,) = one.ports
    assert (port.state, port.physical, port.link_layer, port.rate) == ("ACTIVE", "LinkUp", "InfiniBand", 400)
    assert (port.lid, port.sm_lid) == (2, 1)
    assert [(gid.index, gid.kind) for gid in port.gids] == [(0, "IB/RoCE v1")]
    assert (host.sys / "class/infiniband_verbs/uverbs0/ibdev").read_text() == "ibP1p20s0\n"
    assert (host.sys / "class/infiniband/ibP1p20s0/device/numa_node").read_text() == "0\n"


def test_roce_devices_have_interfaces_and_gids_by_type_and_address(make: Make) -> None:
    host = make(ROCE)
    one, _ = host.read(rdma.DEVICES)
    assert (one.name, one.netdevs, one.identifier) == ("roceP1p20s0", ("enP1p20s0np0",), "15b3:101b")
    (port,) = one.ports
    assert (port.link_layer, port.lid, port.sm_lid, port.rate) == ("Ethernet", 0, 0, 200)
    assert [(gid.index, gid.kind, bool(gid.ipv4)) for gid in port.gids] == [
        (0, "IB/RoCE v1", False), (1, "RoCE v2", False), (2, "IB/RoCE v1", True), (3, "RoCE v2", True),
    ]  # fmt: skip
    assert port.gids[3].ipv4.startswith(str(NETWORK.network_address).rpartition(".0.")[0])
    assert len(list((host.sys / "class/infiniband/roceP1p20s0/ports/1/gids").iterdir())) == 255
    assert (host.sys / "class/net/enP1p20s0np0/device").resolve().name == one.address


def test_bridges_to_nvswitches_are_mlx5_devices_and_no_hcas(make: Make) -> None:
    host = make(B200)
    found = host.read(rdma.DEVICES)
    assert len(found) == 6
    bridges = [one for one in found if one.bridge]
    assert [one.address for one in bridges] == list(host.read(fabric.BRIDGES))
    assert {one.identifier for one in found} == {"15b3:1021"}, "only the VPD tells them apart"
    assert {port.state for one in bridges for port in one.ports} == {"INIT"}
    assert len(rdma.list_hcas(found)) == 2
    assert len(host.read(pcie.PCIE).of("hca")) == 2


@pytest.mark.parametrize("description", [SMALL, ROCE], ids=["infiniband", "roce"])
def test_faults_change_what_is_shown_and_healing_takes_it_back(make: Make, description: Description) -> None:
    host = make(description)
    before = host.files()
    rows = [("gpu-lost", "1"), ("hca-missing", "1"), ("hca-misplaced", "1"), ("hca-link-layer", "0"),
            ("pcie-link-narrow", "gpu1"), ("pcie-link-narrow", "hca0"), ("ib-port-down", "0"), ("ib-rate-low", "1"),
            ("ib-port-init", "0"), ("rdma-port-flaps", "1"), ("roce-gid-missing", "0")]  # fmt: skip
    laid_out = program.WRITTEN.read_text()
    for name, parameter in rows:
        host.plant(name, parameter)
        assert (program.WRITTEN.read_text() != laid_out) is (name != "roce-gid-missing" or description is ROCE), name
        host.heal(name)
        assert program.WRITTEN.read_text() == laid_out, name
    assert host.files() == before
    for name, _ in rows[2:]:
        host.plant(name, "gpu0" if name == "pcie-link-narrow" else "0")
    for name in {name for name, _ in rows[2:]}:
        host.heal(name)
    assert host.files() == before
