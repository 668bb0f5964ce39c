"""The PCI tree and the RDMA devices of simulated containers, read by the probes that read real hosts."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuprov.facts.probes import rdma
from gpuprov.facts.probes.gpus import fabric, topology
from gpuprov.facts.probes.host import pci, pcie
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.devices import devices
from gpuprov.simulate.parts.rdma import NETWORK
from gpuprov.simulate.parts.silicon_files import bus_container as program
from tests.simulate.sysfs_host import NAME, SysfsHost

pytestmark = pytest.mark.install

HGX = Description(gpu=Gpus(model="H100-SXM5-80GB", count=8), nvswitch=3, hcas=8)
SMALL = Description(gpu=Gpus(model="H100-SXM5-80GB", count=2), nvswitch=3, hcas=2)
ROCE = Description(gpu=Gpus(model="H100-SXM5-80GB", count=2), nvswitch=3, hcas=2, fabric="roce", rate=200)
CARDS = Description(gpu=Gpus(model="L40S", count=4), hcas=2, rate=100)
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


def test_cards_hang_on_root_ports(make: Make) -> None:
    host = make(CARDS)
    tree = host.read(topology.PCI)
    here = [tree.functions[one.address] for one in devices(NAME, CARDS)]
    assert [len(one.bridges) for one in here] == [1] * 6
    assert len({one.root for one in here}) == 6
    assert [one.numa_node for one in here] == [0, 0, 1, 1, 0, 1]
    assert {one.link.speed for one in here} == {16}  # L40S and ConnectX-6


@pytest.mark.parametrize(
    ("gpus", "hcas", "shared"), [(8, 4, 4), (8, 16, 16), (8, 1, 1), (1, 2, 2), (4, 4, 4), (2, 16, 16), (1, 16, 16)]
)
def test_hcas_of_a_board_are_spread_over_its_switches(gpus: int, hcas: int, shared: int) -> None:
    described = Description(gpu=Gpus(model="H100-SXM5-80GB", count=gpus), hcas=hcas)
    made = devices(NAME, described)
    assert len({one.address for one in made}) == gpus + hcas
    switches = {os.path.dirname(os.path.dirname(one.path)) for one in made if one.role == "gpu"}
    assert sum(os.path.dirname(os.path.dirname(one.path)) in switches for one in made if one.role == "hca") == shared
    assert [one.index for one in made if one.role == "hca"] == [*range(hcas)]


def test_addresses_tell_where_a_function_hangs(make: Make) -> None:
    """A bridge's buses enclose those of all that is behind it."""
    host = make(B200)
    for place in (host.sys / program.DEVICES).iterdir():
        if place.name.startswith("."):
            continue
        *above, address = place.resolve().relative_to(host.sys / "devices").parts
        assert address == place.name
        for bridge in above[1:]:
            config = (host.sys / program.DEVICES / bridge / "config").read_bytes()
            assert config[0x19] <= int(address[5:7], 16) <= config[0x1A], (bridge, address)
            assert config[0x0E] == 1


def test_gpus_without_hcas_or_switches_and_machines_stay_as_they_were(make: Make) -> None:
    plain = Description(gpu=Gpus(model="H100-SXM5-80GB", count=8))
    assert [one.address for one in devices(NAME, plain)] == [f"0001:{0x10 + index:02x}:00.0" for index in range(8)]
    machine = Description(kind="machine", gpu=plain.gpu, nvswitch=3, hcas=8)
    assert {one.path.count("/") for one in devices(NAME, machine)} == {1}
    host = make(plain)
    assert len(pci.gpus(host.read(pci.NVIDIA_FUNCTIONS))) == 8
    assert host.read(rdma.DEVICES) == ()
    assert not (host.sys / "class").exists()


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


def test_management_datagrams_need_ib_umad_at_boot(make: Make) -> None:
    host = make(SMALL)
    assert not (host.sys / "class/infiniband_mad/umad0").exists()
    (host.root / "etc/rdma/modules").mkdir(parents=True)
    (host.root / "etc/rdma/modules/infiniband.conf").write_text("# InfiniBand\nib_ipoib\nib_umad\n")
    host.run("refresh")
    assert (host.sys / "class/infiniband_mad/umad1/ibdev").read_text() == "ibP1p36s0\n"
    assert {"mlx5_ib", "ib_umad", "ib_ipoib"} <= {path.name for path in (host.sys / "module").iterdir()}
    (host.root / "etc/rdma/modules/infiniband.conf").unlink()
    host.run("refresh")
    assert not (host.sys / "module/ib_umad").exists()
    assert list((host.sys / "class/infiniband_mad").iterdir()) == []


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


def test_what_only_ofed_has_is_there_with_ofed_only(make: Make) -> None:
    host = make(ROCE)
    traffic, congestion = (host.sys / f"class/{path}" for path in
                           ("infiniband/roceP1p20s0/tc/1/traffic_class", "net/enP1p20s0np0/ecn/roce_np/enable/3"))  # fmt: skip
    assert not traffic.exists()
    assert not congestion.exists()
    (host.root / "usr/src/ofa_kernel/default").mkdir(parents=True)
    host.run("reload")
    assert congestion.read_text() == "1\n"
    traffic.write_text("106\n")
    congestion.write_text("0\n")
    host.run("forget", "roce")
    assert (traffic.read_text(), congestion.read_text()) == ("", "1\n")


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


def test_the_configuration_space_has_what_pcie_settings_are_read_from(make: Make) -> None:
    host = make(SMALL)
    found = host.read(pcie.PCIE)
    assert {one.size for one in found.functions.values()} == {4096}
    assert {one.read_request for one in found.of("hca")} == {512}
    assert all(one.relaxed for one in found.of("hca"))
    bridges = found.of("bridge")
    # Root ports and downstream ports of switches have ACS, upstream ones have none.
    assert [one.acs for one in bridges if len(one.above) == 0] == [0x1D] * 2
    assert [one.acs for one in bridges if len(one.above) == 1] == [None] * 2
    assert {one.acs for one in bridges if len(one.above) == 2} == {0x1D}


def test_settings_outlast_a_reload_and_go_with_a_boot(make: Make) -> None:
    host = make(SMALL)
    address = next(one.address for one in devices(NAME, SMALL) if one.role == "hca")

    def requests() -> int:
        return host.read(pcie.PCIE).functions[address].read_request

    def ask() -> None:
        with (host.sys / program.DEVICES / address / "config").open("r+b") as config:
            config.seek(0x49)
            config.write(b"\x59")

    ask()
    host.run("reload", "nouveau")
    host.plant("pcie-link-narrow", "hca0")
    host.heal("pcie-link-narrow")
    assert requests() == 4096
    host.run("forget", "requests")
    assert requests() == 512
    ask()
    host.run("boot")
    assert requests() == 512


def test_acs_comes_back_where_it_was_switched_off(make: Make) -> None:
    host = make(SMALL)
    for place in (host.sys / program.DEVICES).glob("0001:*"):
        with (place / "config").open("r+b") as config:
            config.seek(0x106)
            config.write(b"\0\0")
    assert {one.acs for one in host.read(pcie.PCIE).of("bridge")} == {None, 0}
    host.run("forget", "acs")
    assert {one.acs for one in host.read(pcie.PCIE).of("bridge")} == {None, 0x1D}


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


def test_a_misplaced_hca_is_on_the_other_socket_under_another_name(make: Make) -> None:
    host = make(ROCE)
    host.plant("hca-misplaced", "0")
    moved = next(one for one in host.read(rdma.DEVICES) if one.numa_node == 1 and one.address == "0001:f9:00.0")
    assert (moved.name, moved.netdevs) == ("roceP1p249s0", ("enP1p249s0np0",))
    assert [gid.netdev for gid in moved.ports[0].gids] == ["enP1p249s0np0"] * 4
    tree = host.read(topology.PCI)
    assert tree.functions["0001:f9:00.0"].root.endswith("/pci0001:f8")
    assert "0001:14:00.0" not in tree.functions
    assert not (host.sys / "devices/pci0001:10/0001:10:01.0/0001:11:00.0/0001:12:01.0/0001:14:00.0").exists()


def test_functions_follow_the_driver(make: Make) -> None:
    host = make(SMALL)
    assert {one.driver for one in host.read(pci.NVIDIA_FUNCTIONS)} == {"nvidia", "nvidia-nvswitch"}
    host.run("reload", "nouveau")
    assert {one.driver for one in host.read(pci.NVIDIA_FUNCTIONS)} == {"nouveau", ""}
    host.run("reload", "")
    assert {one.driver for one in host.read(pci.NVIDIA_FUNCTIONS)} == {""}


def test_another_host_has_other_addresses_on_the_same_rails() -> None:
    from gpuprov.simulate.parts import rdma as part

    told = [part.device(name, ROCE, one) for name in ("a", "b") for one in devices(name, ROCE) if one.role == "hca"]
    addresses = [one.netdev.address for one in told if one and one.netdev]
    assert len({*addresses}) == 4
    networks = [str(ipaddress.ip_interface(address).network) for address in addresses]
    assert networks[:2] == networks[2:] == ["198.18.0.0/20", "198.18.16.0/20"]
