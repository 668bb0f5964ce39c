"""What is read off a host's RoCE ports and its DOCA-OFED, as a spec; and that the host then is as that spec says."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.ofed.fragment import Ofed
from gpuprov.capabilities.rdma.roce import reality as roce_reality
from gpuprov.capabilities.rdma.roce.fragment import Roce
from gpuprov.capabilities.rdma.roce.lines import list_values
from gpuprov.spec.build import convert
from tests.capabilities import ofed_host
from tests.capabilities.asking import facts
from tests.capabilities.roce_host import PORT, said
from tests.capabilities.test_rdma_roce import ASKED, DEVICE, ETHERNET, GOOD

BLOCK = Rdma(fabric="roce")
OTHER = DEVICE.replace("mlx5_0", "mlx5_1").replace("3b", "5e").replace("ens1f0np0", "ens2")


def read(state: str, devices: str = GOOD, block: Rdma = BLOCK) -> Roce:
    told = roce_reality.roce(facts(roce=state, rdma_devices=devices), block)
    found, findings = convert(told, Roce)
    assert not findings
    assert isinstance(found, Roce)
    return found


def test_a_port_is_what_its_export_asks_for() -> None:
    assert read(said()) == Roce(**{**{key: getattr(ASKED, key) for key in Roce.__struct_fields__}, "dscp2prio": {}})
    mapped = read(said({"dscp.26": "5", "dscp.48": "6"}))
    assert mapped.dscp2prio == {"26": 5}, "DSCP 48 has priority 6 by itself"
    assert set(list_values(mapped)) >= {"trust", "dscp.26", "pfc", "ecn", "mtu"}


def test_what_is_not_shown_or_differs_is_left_out() -> None:
    found = read(said({"traffic_class": "unset", "ecn": "notification 3, reaction none", "mode": ""}))
    assert (found.traffic_class, found.ecn, found.mode) == (-1, (), "")
    assert read(said({"pfc": "none", "ecn": "none"})).pfc == ("none",)
    second = PORT.replace("mlx5_0", "mlx5_1").replace("ens1f0np0", "ens2")
    two = said(more=(second, "value|mlx5_1|1|tos|0", "value|mlx5_1|1|pfc|3"))
    devices = f"{GOOD}\n{OTHER}\n{ETHERNET.replace('mlx5_0', 'mlx5_1')}"
    assert read(two, devices) == Roce(pfc=(3,))


def test_nothing_to_read() -> None:
    assert read(said(port="")) == Roce()
    assert read(said(), "") == Roce()
    assert read(said(), block=Rdma(fabric="infiniband")) == Roce()


@pytest.mark.parametrize(
    ("state", "packages", "expected"),
    [
        (ofed_host.said(), ofed_host.packages(),
         Ofed(version="25.10-1.7.1", openib_conf={"ONBOOT": True, "UMAD_LOAD": True, "FORCE_MODE": False, "SET_IPOIB_CM": "auto"})),
        (ofed_host.said(conf=None), f"{ofed_host.packages()}ii |openssh-server|1:9.6p1|openssh|amd64\n", Ofed(version="25.10-1.7.1")),
        (ofed_host.said(info="", conf=None), ofed_host.packages(state="ii "), Ofed(version="25.10-1.7.1.1", hold=False)),
        (ofed_host.said(conf="ONBOOT=no SRP_LOAD=maybe OTHER=yes"), ofed_host.packages(), Ofed(version="25.10-1.7.1")),
        (ofed_host.ABSENT, "native|amd64\n", None),
    ],
)  # fmt: skip
def test_doca_ofed(state: str, packages: str, expected: Ofed | None) -> None:
    told = roce_reality.ofed(facts(ofed=state, ofed_packages=packages, package_locking="", os_release=ofed_host.UBUNTU))
    if expected is None:
        assert told is None
        return
    assert convert(told, Ofed) == (expected, [])
