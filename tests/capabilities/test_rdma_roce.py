"""RoCE: what each state of a host is answered with, and what of it is exported."""

from __future__ import annotations

from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.rdma.fragment import Rdma, Selector
from gpuprov.capabilities.rdma.ofed.fragment import Ofed
from gpuprov.capabilities.rdma.roce import checks as roce
from gpuprov.capabilities.rdma.roce import reality as roce_reality
from gpuprov.capabilities.rdma.roce.fragment import Roce
from gpuprov.capabilities.rdma.roce.lines import lines, list_values
from gpuprov.spec.build import convert
from tests.capabilities import contexts, ofed_host
from tests.capabilities.asking import expect, facts
from tests.capabilities.roce_host import LINES, PORT, said
from tests.rows import run_each

ASKED = Roce(
    trust="dscp", pfc=(3,), dscp2prio={"26": 3}, mode="v2", tos=106, traffic_class=106, ecn=(3,),
     cnp_dscp=48, cnp_802p_prio=6, mtu=4200
)  # fmt: skip
BLOCK = Rdma(fabric="roce", stack="doca-ofed", roce=ASKED)
INBOX = Rdma(fabric="roce", stack="inbox", roce=ASKED)
NOTHING = Rdma(fabric="roce")
IB = Rdma(fabric="infiniband")
DEVICE = (
    "device|mlx5_0|0000:3b:00.0|mlx5_core|0x15b3|0x1021|1: "
    "CA|b83f:d203:0000:0001|28.43.2566|0|ens1f0np0|b8:3f:d2:00:00:01|"
)
ETHERNET = "port|mlx5_0|1|4: ACTIVE|5: LinkUp|Ethernet|400 Gb/sec (4X NDR)|0x0|0x0"
MAPPED = "gid|mlx5_0|1|3|0000:0000:0000:0000:0000:ffff:c612:0007|RoCE v2|ens1f0np0"
LOCAL = "gid|mlx5_0|1|1|fe80:0000:0000:0000:ba3f:d2ff:fe00:0001|RoCE v2|ens1f0np0"
OLD = "gid|mlx5_0|1|2|0000:0000:0000:0000:0000:ffff:c612:0007|IB/RoCE v1|ens1f0np0"
GOOD = "\n".join([DEVICE, ETHERNET, OLD, LOCAL, MAPPED])
NO_DEVICE = ""
CHECKS = {check.id.removeprefix("rdma.roce_"): check for check in roce.CHECKS}


def ask(
    name: str, block: Rdma, state: str = "", devices: str = GOOD, stack: str = "", container: str = "none"
) -> Outcome:
    texts = {
        "roce": state or said(),
        "rdma_devices": devices,
        "ofed": stack or ofed_host.said(),
        "container": container,
    }
    return contexts.answer(f"rdma.roce_{name}", contexts.spec(rdma=block), texts)


ROWS = [
    ("settings", BLOCK, {}, "pass", "on mlx5_0 port 1 (ens1f0np0)", ""),
    ("settings", IB, {}, "n/a", "the fabric is infiniband", ""),
    ("settings", NOTHING, {}, "n/a", "no setting of RoCE in the spec", ""),
    *[
        ("settings", BLOCK, {"state": said({key: value})}, "fail", f"mlx5_0 port 1 (ens1f0np0) {key} is {value}",
         "systemctl restart gpuprov-roce")
        for key, value in {"trust": "pcp", "pfc": "none", "dscp.26": "2", "mode": "v1", "tos": "0",
                           "traffic_class": "unset",
                           "ecn": "notification 3, reaction none", "cnp_dscp": "4", "cnp_802p_prio": "0",
                           "mtu": "1500"}.items()
    ],
    ("settings", BLOCK, {"state": said({"ecn": ""})}, "fail", "ecn is not shown", "journalctl -u gpuprov-roce"),
    ("settings", BLOCK, {"devices": NO_DEVICE}, "fail", "no RoCE port", "LINK_TYPE_P1=ETH"),
    ("settings", BLOCK, {"state": said(port="")}, "fail", "no RoCE port", "rdma link"),
    ("gids", BLOCK, {}, "pass", "mlx5_0 port 1 (198.18.0.7)", ""),
    ("gids", BLOCK, {"devices": f"{DEVICE}\n{ETHERNET}\n{LOCAL}"}, "pass", "no IPv4 address", ""),
    ("gids", BLOCK, {"devices": f"{DEVICE}\n{ETHERNET}\n{OLD}"}, "fail", "mlx5_0 port 1 has none",
     "ip link set ens1f0np0 up"),
    ("gids", Rdma(fabric="roce", roce=Roce(mode="v1")), {"devices": f"{DEVICE}\n{ETHERNET}\n{LOCAL}"}, "fail",
     "has none", "address"),
    ("gids", Rdma(fabric="roce", roce=Roce(mode="v1")), {}, "pass", "mlx5_0", ""),
    ("gids", Rdma(fabric="roce", devices=(Selector(pci="3b:00.0"),)),
     {"devices": GOOD.replace("Ethernet", "InfiniBand")}, "fail",
     "mlx5_0 port 1 is InfiniBand", "mlxconfig -d 0000:3b:00.0 set LINK_TYPE_P1=ETH"),
    ("gids", BLOCK, {"devices": GOOD.replace("Ethernet", "InfiniBand")}, "fail", "no RoCE port", "LINK_TYPE"),
    ("gids", BLOCK, {"devices": f"{GOOD.replace(DEVICE, DEVICE + 'bridge')}"}, "fail", "no RoCE port", ""),
    ("gids", IB, {}, "n/a", "infiniband", ""),
    ("filter", BLOCK, {}, "pass", "nft shows no rule against UDP port 4791", ""),
    ("filter", BLOCK, {"state": said(more=("filter|nft", "rule|   udp dport 4791 drop"))}, "fail",
     "udp dport 4791 drop", "every hop"),
    ("filter", BLOCK, {"state": said(more=())}, "skip", "neither nft nor iptables-save", ""),
    ("filter", Rdma(fabric="roce", roce=Roce(mode="v1")), {}, "n/a", "v1 is not UDP", ""),
    ("filter", IB, {}, "n/a", "infiniband", ""),
    ("alone", BLOCK, {}, "pass", "no lldpad", ""),
    ("alone", BLOCK, {"state": said(more=("lldpad|",))}, "fail", "lldpad runs",
     "systemctl disable --now lldpad.socket"),
    ("alone", Rdma(fabric="roce", roce=Roce(tos=106)), {"state": said(more=("lldpad|",))}, "n/a", "neither trust", ""),
    ("alone", IB, {}, "n/a", "infiniband", ""),
    ("ways", BLOCK, {}, "pass", "can be set", ""),
    ("ways", BLOCK, {"state": said(tools=("dcb",), port="")}, "skip", "come with DOCA-OFED", ""),
    ("ways", BLOCK, {"state": said({"ecn": ""}), "stack": ofed_host.said(unit=("loaded", "inactive", "enabled"))},
     "skip",
     "and openibd", ""),
    ("ways", BLOCK, {"state": said({"ecn": ""}), "stack": ofed_host.said(memory=(ofed_host.loaded("ib_core",
                                                                                                  own=True),))},
     "skip", "openibd", ""),
    ("ways", BLOCK, {"state": said({"ecn": "", "traffic_class": ""}), "container": "podman",
     "stack": ofed_host.said(memory=(ofed_host.loaded("ib_core", own=True),))}, "fail", "nothing sets traffic_class",
     "openibd"),
    ("ways", BLOCK, {"state": said({"ecn": "", "traffic_class": ""})}, "fail",
     "nothing sets traffic_class of mlx5_0 port 1",
     "have openibd load DOCA-OFED's drivers"),
    ("ways", INBOX, {"state": said({"ecn": ""}, tools=("dcb", "rdma_cm"))}, "fail", "nothing sets ecn of mlx5_0",
     "stack: doca-ofed has all; or leave ecn out"),
    ("ways", INBOX, {"state": said({"trust": "", "dscp.26": "", "pfc": ""}, tools=("rdma_cm",))}, "fail",
     "nothing sets trust of mlx5_0 port 1 (ens1f0np0); nothing sets dscp2prio", "dcb app"),
    ("ways", INBOX, {"state": said({"mode": "", "tos": ""}, tools=("dcb",))}, "pass", "can be set", ""),
    ("ways", INBOX, {"state": said({"trust": "pcp", "dscp.26": ""})}, "pass", "can be set", ""),
    ("ways", INBOX, {"devices": NO_DEVICE}, "fail", "no RoCE port", "rdma link"),
    ("ways", NOTHING, {}, "n/a", "no setting", ""),
    ("ways", IB, {}, "n/a", "infiniband", ""),
]  # fmt: skip


@run_each(("name", "block", "changed", "status", "found", "fix"), ROWS)
def test_answers(name: str, block: Rdma, changed: dict[str, str], status: str, found: str, fix: str) -> None:
    expect(ask(name, block, **changed), status, found, fix)


def test_plan_shows_each_setting() -> None:
    outcome = ask("settings", BLOCK, said({"pfc": "none", "tos": "0"}))
    assert [(c.name, c.before, c.after) for c in outcome.changes] == [
        ("mlx5_0 port 1 (ens1f0np0) pfc", "none", "3"),
        ("mlx5_0 port 1 (ens1f0np0) tos", "0", "106"),
    ]


def test_every_port_is_asked() -> None:
    second = PORT.replace("mlx5_0", "mlx5_1").replace("ens1f0np0", "ens2")
    other = DEVICE.replace("mlx5_0", "mlx5_1").replace("3b", "5e").replace("ens1f0np0", "ens2")
    devices = f"{GOOD}\n{other}\n{ETHERNET.replace('mlx5_0', 'mlx5_1')}"
    block = Rdma(fabric="roce", roce=Roce(tos=106))
    outcome = ask("settings", block, said(more=(second, "value|mlx5_1|1|tos|0")), devices)
    assert (outcome.status, outcome.found) == ("fail", "mlx5_1 port 1 (ens2) tos is 0")
    chosen = Rdma(fabric="roce", roce=Roce(tos=106), devices=(Selector(netdev="ens1f0np0"),))
    assert ask("settings", chosen, said(more=(second, "value|mlx5_1|1|tos|0")), devices).status == "pass"


def test_the_good_host_has_the_lines_of_the_block() -> None:
    assert lines(BLOCK) == LINES


PLAIN = Rdma(fabric="roce")
OTHER = DEVICE.replace("mlx5_0", "mlx5_1").replace("3b", "5e").replace("ens1f0np0", "ens2")


def read(state: str, devices: str = GOOD, block: Rdma = PLAIN) -> Roce:
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


@run_each(
    ("state", "packages", "expected"),
    [
        (ofed_host.said(), ofed_host.packages(),
         Ofed(version="25.10-1.7.1", openib_conf={"ONBOOT": True, "UMAD_LOAD": True, "FORCE_MODE": False,
                                                  "SET_IPOIB_CM": "auto"})),
        (ofed_host.said(conf=None), f"{ofed_host.packages()}ii |openssh-server|1:9.6p1|openssh|amd64\n",
         Ofed(version="25.10-1.7.1")),
        (ofed_host.said(info="", conf=None), ofed_host.packages(state="ii "),
         Ofed(version="25.10-1.7.1.1", hold=False)),
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
