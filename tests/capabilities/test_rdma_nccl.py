"""/etc/nccl.conf: its lines by the devices that are there, and what stands before it or is out of date."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.rdma.efa.fragment import Efa
from gpuprov.capabilities.rdma.fragment import Rdma, Selector, Soft
from gpuprov.capabilities.rdma.nccl import checks as nccl
from gpuprov.capabilities.rdma.nccl import conf as nccl_conf
from gpuprov.capabilities.rdma.nccl.fragment import Nccl
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.facts.probes.rdma import parse
from tests.capabilities import contexts
from tests.capabilities import erdma_host as host
from tests.capabilities.asking import expect
from tests.capabilities.rdma_host import rxe
from tests.rows import run_each

IB = "\n".join(
    f"device|ibp{n}s0|0000:{n}:00.0|mlx5_core|0x15b3|0x1021|1: "
    f"CA|9c63:c003:0050:{n}00|28.43|0|||{'bridge' if n == '4e' else ''}\n"
    f"port|ibp{n}s0|1|4: ACTIVE|5: LinkUp|InfiniBand|400 Gb/sec (4X NDR)|0x1|0x1\n"
    f"gid|ibp{n}s0|1|0|fe80:0000:0000:0000:9c63:c003:0050:{n}00|IB/RoCE v1|"
    for n in ("18", "2a", "4e")
)
ETH = host.devices(
    name="rocep26s0",
    driver="mlx5_core",
    gids=(
        "0|fe80:0000:0000:0000:0016:3eff:fe02:aa10|IB/RoCE v1|eth1",
        "3|0000:0000:0000:0000:0000:ffff:c0a8:042d|RoCE v2|eth1",
    ),
)
SECOND = host.devices(
    name="rocep27s0", driver="mlx5_core", gids=("2|0000:0000:0000:0000:0000:ffff:c0a8:052d|RoCE v2|eth2",)
).replace("00:06.0", "00:07.0")
MIXED = ETH + "port|rocep26s0|2|4: ACTIVE|5: LinkUp|InfiniBand|100 Gb/sec (4X EDR)|0x1|0x1\n"
SIW = "device|siw0||siw|||4: RNIC|||-1|eth0||\n"
ROCE = Rdma(fabric="roce")
GID = ("NCCL_IB_GID_INDEX=-1", "NCCL_IB_ADDR_FAMILY=AF_INET", "NCCL_IB_ROCE_VERSION_NUM=2")


def lines(block: Rdma, text: str) -> tuple[str, ...]:
    return nccl_conf.lines(block, parse(Output(text)))


def roce(**asked: Any) -> Rdma:
    return Rdma(fabric="roce", nccl=Nccl(**asked))


@run_each(
    ("block", "text", "told"),
    [
        (Rdma(fabric="infiniband"), IB + "\n" + ETH, ("NCCL_IB_HCA==ibp18s0,ibp2as0",)),
        (Rdma(fabric="infiniband", devices=(Selector(pci="2a:00.0"),)), IB, ("NCCL_IB_HCA==ibp2as0",)),
        (Rdma(fabric="infiniband"), IB + "\nsub|ibp2as0|smi|ibp18s0\n", ("NCCL_IB_HCA==ibp18s0",)),
        (ROCE, ETH, ("NCCL_IB_HCA==rocep26s0", *GID)),
        (ROCE, ETH + SECOND, ("NCCL_IB_HCA==rocep26s0,rocep27s0", *GID)),
        (ROCE, MIXED, ("NCCL_IB_HCA==rocep26s0:1", *GID)),
        (roce(gid="none"), ETH, ("NCCL_IB_HCA==rocep26s0",)),
        (roce(gid="index"), ETH, ("NCCL_IB_HCA==rocep26s0", "NCCL_IB_GID_INDEX=3")),
        (roce(gid="index", roce_version=1, addr_family="ipv6"), ETH.replace("fe80", "2001"),
         ("NCCL_IB_HCA==rocep26s0", "NCCL_IB_GID_INDEX=0")),
        (roce(addr_range="192.168.4.0/24"), ETH, ("NCCL_IB_HCA==rocep26s0", *GID, "NCCL_IB_ADDR_RANGE=192.168.4.0/24")),
        (host.block(), host.devices(), host.CONF),
        (host.block(compat_mode=False), host.devices("4: RNIC"), ("NCCL_IB_DISABLE=1",)),
        (Rdma(fabric="soft", soft=Soft(driver="siw")), SIW, ("NCCL_IB_DISABLE=1",)),
        (roce(gid="none", traffic_class=106, service_level=0, socket_ifname=("eth0",), gdr_level="SYS",
            relaxed_ordering="required", net_plugin="none", topo_file="/etc/topo.xml", settings={"NCCL_IB_TIMEOUT": 22,
            "NCCL_CROSS_NIC": "0"}), ETH, ("NCCL_IB_HCA==rocep26s0", "NCCL_IB_TC=106", "NCCL_IB_SL=0",
            "NCCL_SOCKET_IFNAME==eth0", "NCCL_IB_PCI_RELAXED_ORDERING=1", "NCCL_NET_GDR_LEVEL=SYS",
            "NCCL_NET_PLUGIN=none", "NCCL_TOPO_FILE=/etc/topo.xml", "NCCL_CROSS_NIC=0", "NCCL_IB_TIMEOUT=22")),
        (Rdma(fabric="infiniband", nccl=Nccl(sharp=True)), IB,
         ("NCCL_IB_HCA==ibp18s0,ibp2as0", "NCCL_COLLNET_ENABLE=1")),
    ],
)  # fmt: skip
def test_what_the_file_says(block: Rdma, text: str, told: tuple[str, ...]) -> None:
    assert lines(block, text) == told


@run_each(
    ("block", "text", "why"),
    [
        (ROCE, IB, "no RDMA device of fabric roce"),
        (Rdma(fabric="roce", devices=(Selector(netdev="eth7"),)), ETH, "roce that devices means"),
        (roce(gid="index"), ETH + SECOND, "no index in common (rocep26s0 port 1: 3; rocep27s0 port 1: 2)"),
        (roce(gid="index", addr_range="10.0.0.0/8"), ETH,
         "rocep26s0 port 1 has no GID of type RoCE v2 with an IPv4 address of 10.0.0.0/8"),
        (roce(gid="index", roce_version=1, addr_family="ipv6"), ETH, "has no GID of type RoCE v1 with an IPv6"),
        (Rdma(fabric="infiniband", devices=(Selector(driver="mlx5_core"),)), ETH,
         "no port of rocep26s0 has the link layer InfiniBand"),
        (ROCE, "".join(ETH.replace("rocep26s0", f"roce{n}") for n in range(33)),
         "33 devices, and NCCL takes at most 32"),
    ],
)  # fmt: skip
def test_what_cannot_be_written(block: Rdma, text: str, why: str) -> None:
    with pytest.raises(nccl_conf.ConfError) as caught:
        lines(block, text)
    assert why in str(caught.value)


def test_software_devices_are_those_of_the_named_interfaces() -> None:
    """As in every other part: `rdma.soft.netdevs` says which, and a device on another interface is somebody else's."""
    text = rxe("rxe_ens3", "ens3", "52:54:00:4d:00:00") + rxe("rxe_ens4", "ens4")
    named = Rdma(fabric="soft", soft=Soft(netdevs=("ens3",)))
    assert lines(named, text)[0] == "NCCL_IB_HCA==rxe_ens3"
    assert lines(Rdma(fabric="soft"), text)[0] == "NCCL_IB_HCA==rxe_ens3,rxe_ens4"
    siw = Rdma(fabric="soft", soft=Soft(driver="siw"))
    with pytest.raises(nccl_conf.ConfError, match="no RDMA device of fabric soft"):
        lines(siw, text)


def ask(check: str, wanted: Rdma, conf: str, devices: str = host.devices()) -> Outcome:
    return contexts.answer(f"rdma.nccl_{check}", contexts.spec(rdma=wanted), {"nccl": conf, "rdma_devices": devices})


COMPAT, LEFT = host.block(), host.block(nccl=Nccl(manage=False))
STALE = "NCCL_IB_HCA=erdma"
ROWS: list[tuple[str, str, Rdma, str, str, str, str]] = [
    ("no defect", "file", COMPAT, host.nccl(), "pass", "4 variables: NCCL_IB_HCA==rdmap0s6", ""),
    ("no file", "file", COMPAT, host.nccl(None), "fail", "does not exist", "apply"),
    ("an image's", "file", COMPAT, host.nccl((STALE,)), "fail", "says NCCL_IB_HCA=erdma", "apply"),
    ("a line more", "file", COMPAT, host.nccl((*host.CONF, "NCCL_IB_DISABLE=1")), "fail", "also says NCCL_IB_DISABLE=1",
     "apply"),
    ("a line less", "file", COMPAT, host.nccl(host.CONF[:1]), "fail", "lacks NCCL_IB_GID_INDEX", "apply"),
    ("the first counts", "file", COMPAT, host.nccl((STALE, *host.CONF)), "fail", "says NCCL_IB_HCA=erdma", "apply"),
    ("twice", "file", COMPAT, host.nccl((*host.CONF, host.CONF[0])), "fail", "a line twice", "apply"),
    ("left alone", "file", LEFT, host.nccl((STALE,)), "n/a", "manage is false", ""),
    ("nothing stale", "stale", COMPAT, host.nccl(), "pass", "nothing but", ""),
    ("stale", "stale", COMPAT, host.nccl((STALE,)), "fail", "NCCL_IB_HCA=erdma; the host has rdmap0s6", "apply"),
    ("stale and left alone", "stale", LEFT, host.nccl((STALE,)), "fail", "/etc/nccl.conf says", "take the line out"),
    ("a device that is gone", "stale", LEFT, host.nccl(("NCCL_IB_HCA==rdmap0s6,rdmap0s7:1",)), "fail", "rdmap0s7",
     "take the line"),
    ("a prefix", "stale", LEFT, host.nccl(("NCCL_IB_HCA=rdmap",)), "pass", "nothing", ""),
    ("excluded", "stale", LEFT, host.nccl(("NCCL_IB_HCA=^=mlx5_3",)), "pass", "nothing", ""),
    ("root's own file", "stale", COMPAT, host.nccl(host.CONF, "other|/root/.nccl.conf|NCCL_IB_HCA=mlx5"),
     "fail", "/root/.nccl.conf says", "out of /root"),
    ("overruled", "stale", COMPAT, host.nccl(host.CONF, 'other|/etc/environment|NCCL_IB_GID_INDEX="3"'),
     "fail", "/etc/environment says NCCL_IB_GID_INDEX=3, which counts before", "rdma.nccl"),
    ("switched off", "stale", COMPAT, host.nccl(host.CONF, "other|/etc/profile.d/a.sh|NCCL_IB_DISABLE=1"),
     "fail", "/etc/profile.d/a.sh says NCCL_IB_DISABLE=1: NCCL leaves the RDMA devices alone", "take the line out"),
    ("sockets alone", "stale", COMPAT, host.nccl(host.CONF, 'other|/etc/environment|NCCL_NET="Socket"'),
     "fail", "NCCL_NET=Socket", "rdma.nccl.settings"),
    ("switched on", "stale", COMPAT, host.nccl(host.CONF, "other|/etc/environment|NCCL_IB_DISABLE=0"), "pass",
     "1 other", ""),
    ("something else", "stale", COMPAT, host.nccl(host.CONF, "other|/etc/environment|NCCL_DEBUG=WARN"),
     "pass", "1 other setting", ""),
    ("a file that is not there", "stale", COMPAT, host.nccl(host.CONF, "other|/etc/environment|NCCL_CONF_FILE=/opt/n",
     "file|/opt/n|0"),
     "fail", "NCCL_CONF_FILE=/opt/n, which is not there", "environment"),
    ("a GID", "gid", COMPAT, "", "pass", "rdmap0s6 port 1: 1", ""),
    ("no GID of that network", "gid", host.block(nccl=Nccl(addr_range="10.0.0.0/8")), "",
     "fail", "none on rdmap0s6 port 1", "addr_range"),
    ("no GID policy", "gid", host.block(nccl=Nccl(gid="none")), "", "n/a", "no RoCE GID", ""),
    ("nothing named", "parts", COMPAT, host.nccl(), "n/a", "nothing is named", ""),
    ("an interface", "parts", host.block(nccl=Nccl(socket_ifname=("eth0",))), host.nccl(), "pass", "eth0", ""),
    ("no interface", "parts", host.block(nccl=Nccl(socket_ifname=("bond0",))), host.nccl(),
     "fail", "no bond0; the host has lo eth0", "socket_ifname"),
    ("no topology", "parts", host.block(nccl=Nccl(topo_file="/t.xml")), host.nccl(host.CONF, "file|/t.xml|0"),
     "fail", "/t.xml is not there", "put it there"),
    ("a topology", "parts", host.block(nccl=Nccl(topo_file="/t.xml")), host.nccl(host.CONF, "file|/t.xml|1"), "pass",
     "/t.xml", ""),
    ("no SHARP", "parts", Rdma(nccl=Nccl(sharp=True)), host.nccl(), "fail", "no libnccl-net.so",
     "nccl-rdma-sharp-plugins"),
    ("SHARP", "parts", Rdma(nccl=Nccl(sharp=True)), host.nccl(host.CONF, "plugin|libnccl-net.so"), "pass",
     "libnccl-net.so", ""),
    ("another plugin", "parts", host.block(nccl=Nccl(net_plugin="ofi")), host.nccl(host.CONF, "plugin|libnccl-net.so"),
     "fail", "no libnccl-net-ofi.so, but libnccl-net.so", "ldconfig"),
    ("before: no topology", "named", host.block(nccl=Nccl(topo_file="/t.xml")), host.nccl(None, "file|/t.xml|0"),
     "fail", "/t.xml is not there", "put it there"),
    ("before: a topology of the site", "named", host.block(nccl=Nccl(topo_file="/t.xml", topo_source="t.xml")),
     host.nccl(None), "pass", "/t.xml", ""),
    ("before: no SHARP", "named", Rdma(nccl=Nccl(sharp=True)), host.nccl(None), "fail", "no libnccl-net.so",
     "nccl-rdma-sharp"),
    ("before: no interface", "named", host.block(nccl=Nccl(socket_ifname=("bond0",))), host.nccl(None),
     "fail", "no bond0; the host has lo eth0", "socket_ifname"),
    ("before: IPoIB's interface comes", "named", Rdma(ipoib=True, nccl=Nccl(socket_ifname=("ib0",))), host.nccl(None),
     "n/a", "nothing is named", ""),
    ("before: AWS's installer brings the plugin", "named",
     Rdma(fabric="efa", efa=Efa(installer="1.43.1"), nccl=Nccl(net_plugin="ofi")), host.nccl(None), "pass", "ofi", ""),
    ("before: nobody brings the plugin", "named", Rdma(fabric="efa", nccl=Nccl(net_plugin="ofi")), host.nccl(None),
     "fail", "no libnccl-net-ofi.so", "ldconfig"),
    ("before: left alone", "named", Rdma(nccl=Nccl(manage=False)), host.nccl(None), "n/a", "manage is false", ""),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=f"{row[1]}: {row[0]}") for row in ROWS])
def test_nccl(row: tuple[str, str, Rdma, str, str, str, str]) -> None:
    _, check, wanted, text, status, found, fix = row
    expect(ask(check, wanted, text), status, found, fix)


def test_without_devices_the_file_cannot_be_right() -> None:
    outcome = ask("file", COMPAT, host.nccl(), devices="")
    assert (outcome.status, "no RDMA device of fabric erdma" in outcome.found) == ("fail", True)


def test_the_host_as_a_spec() -> None:
    facts = Facts({"nccl": Output(host.nccl()), "rdma_devices": Output(host.devices())})
    assert nccl.exported(facts, COMPAT) == {}
    facts = Facts({"nccl": Output(host.nccl(None)), "rdma_devices": Output(host.devices())})
    assert nccl.exported(facts, COMPAT) == {"manage": False}
