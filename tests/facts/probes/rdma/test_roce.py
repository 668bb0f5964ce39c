"""What RoCE ports have, read by the probe's own script from folders like sysfs and configfs, with NVIDIA's tools and
without."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.rdma import roce
from gpuprov.facts.probes.rdma.roce import parse
from gpuprov.host_code.at_boot.roce_ports import RocePort
from tests.capabilities import roce_host
from tests.capabilities.roce_host import bond, device, environment, put, read, said, second


def test_a_port_of_nvidias_ofed(tmp_path: Path) -> None:
    device(tmp_path)
    lines = read(tmp_path)
    assert "port|mlx5_0|1|ens1f0np0" in lines
    (port,) = parse(Output("\n".join(lines))).ports
    expected = {
        "mode": "v2",
        "tos": "0",
        "traffic_class": "unset",
        "mtu": "1500",
        "ecn": "0,1,2,3,4,5,6,7",
        "pfc": "none",
    }
    assert port.values == {**expected, "trust": "pcp", "cnp_dscp": "48", "cnp_802p_prio": "6"}
    assert port.name == "mlx5_0 port 1 (ens1f0np0)"


def test_what_was_set(tmp_path: Path) -> None:
    device(tmp_path)
    sys = tmp_path / "sys"
    put(sys / "class/infiniband/mlx5_0/tc/1", {"traffic_class": "Global tclass=106"})
    put(sys / "class/net/ens1f0np0/ecn", {f"roce_np/enable/{n}": "0" for n in range(8) if n != 3})
    put(sys / "kernel/config/rdma_cm/mlx5_0/ports/1", {"default_roce_mode": "IB/RoCE v1", "default_roce_tos": "106"})
    put(tmp_path / "run/gpuprov-sim/roce/ens1f0np0", {"trust": "dscp", "pfc": "0,0,0,1,1,0,0,0", "map": "26 3\n8 1"})
    (port,) = parse(Output("\n".join(read(tmp_path)))).ports
    wanted = {
        "traffic_class": "106",
        "mode": "v1",
        "tos": "106",
        "trust": "dscp",
        "pfc": "3,4",
        "dscp.26": "3",
        "dscp.8": "1",
    }
    assert wanted.items() <= port.values.items()
    assert port.values["ecn"] == "notification 3, reaction 0,1,2,3,4,5,6,7"


def test_a_port_of_the_kernels_own_drivers(tmp_path: Path) -> None:
    device(tmp_path, ofed=False)
    environment(tmp_path, ofed=False)
    (port,) = parse(Output("\n".join(read(tmp_path, ofed=False)))).ports
    assert port.values == {
        "mode": "v2", "tos": "0", "mtu": "1500", "cnp_dscp": "48", "cnp_802p_prio": "6", "pfc": "none", "trust": "pcp",
    }  # fmt: skip
    put(tmp_path / "run/gpuprov-sim/dcb", {"ens1f0np0.app": "26:3\n48:6", "ens1f0np0.pfc": "0:off 3:on 4:on 5:off"})
    (port,) = parse(Output("\n".join(read(tmp_path, ofed=False)))).ports
    assert {"trust": "dscp", "dscp.26": "3", "dscp.48": "6", "pfc": "3,4"}.items() <= port.values.items()


def test_infiniband_ports_and_nvlink_bridges_are_no_roce_ports(tmp_path: Path) -> None:
    device(tmp_path, "ibp1s0", "ib0", "0000:01:00.0", layer="InfiniBand")
    device(tmp_path, "mlx5_4", "eth4", "0000:d0:00.0")
    (tmp_path / "sys/devices/0000:d0:00.0/vpd").write_bytes(b"\x82\x00\x00V3\x06SW_MNG\x78")
    assert not [line for line in read(tmp_path) if line.startswith("port|")]


def test_a_host_without_anything(tmp_path: Path) -> None:
    state = parse(Output("\n".join(read(tmp_path))))
    assert state.ports == ()
    assert "rdma_cm" not in state.tools
    assert parse(Output("")) == roce.Roce()


def test_the_rest_of_the_probe() -> None:
    state = parse(Output(said(more=("lldpad|", "filter|nft", "rule|  udp dport 4791   drop"))))
    assert (state.lldpad, state.filter, state.blocking) == (True, "nft", ("udp dport 4791 drop",))
    assert state.ports == (RocePort(device="mlx5_0", number=1, netdev="ens1f0np0", values=roce_host.VALUES),)


def test_text_that_no_probe_prints() -> None:
    with pytest.raises(KeyError):
        parse(Output("value|mlx5_9|1|tos|3\n"))


def test_ports_below_a_bond_are_told_by_the_interface_of_the_device_itself(tmp_path: Path) -> None:
    device(tmp_path)
    put(tmp_path / "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs", {"0": "bond0"})
    put(tmp_path / "sys/class/net/bond0", {"bonding/slaves": "ens1f0np0 ens1f1np1", "mtu": "9000"})
    (port,) = parse(Output("\n".join(read(tmp_path)))).ports
    assert (port.netdev, port.values["mtu"]) == ("ens1f0np0", "1500")


@pytest.mark.install
def test_each_port_of_a_bond_is_read(tmp_path: Path) -> None:
    """The second function of the adapter has no RDMA device of its own; what is in the bond from elsewhere is not a
    port of it."""
    device(tmp_path)
    bond(tmp_path, "ens1f0np0", "ens1f1np1", "eno1")
    second(tmp_path, "ens1f1np1", "0000:3b:00.1")
    second(tmp_path, "eno1", "0000:01:00.0")
    put(tmp_path / "run/gpuprov-sim/roce/ens1f1np1", {"trust": "dscp", "pfc": "0,0,0,1,0,0,0,0"})
    first, other = parse(Output("\n".join(read(tmp_path)))).ports
    assert (first.name, first.values["trust"], first.leg) == ("mlx5_0 port 1 (ens1f0np0)", "pcp", False)
    assert (other.name, other.values["trust"], other.values["pfc"]) == ("mlx5_0 port 1 (ens1f1np1)", "dscp", "3")
    assert (other.leg, other.has("tos"), other.has("mtu"), "tos" in other.values) == (True, False, True, False)
