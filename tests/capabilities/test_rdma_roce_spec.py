"""RoCE, known offline: what a spec must not say, what does not fit together, and the files that the role writes."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.rdma.fragment import Rdma, Selector
from gpuprov.capabilities.rdma.roce.checks import rules
from gpuprov.capabilities.rdma.roce.desired import UNIT, at_boot
from gpuprov.capabilities.rdma.roce.fragment import Roce
from gpuprov.capabilities.rdma.roce.lines import lines
from gpuprov.catalog.rdma import roce as catalogue
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.spec.model import HostSpec
from tests.capabilities import roce_host
from tests.capabilities.test_rdma_roce import ASKED
from tests.rows import run_each


def told(block: Rdma) -> list[str]:
    return [str(problem) for problem in rules(HostSpec(name="h", capabilities={"rdma": block}), block)]


def ofed(**values: Any) -> Rdma:
    return Rdma(fabric="roce", stack="doca-ofed", roce=Roce(**values))


@run_each(
    ("block", "said"),
    [
        (ofed(), ""),
        (Rdma(fabric="roce", stack="doca-ofed", roce=ASKED), ""),
        (ofed(pfc=("none",), ecn=("none",), tos=0, mtu=68), ""),
        (Rdma(fabric="infiniband"), ""),
        (ofed(pfc=(3, "none")), "rdma.roce.pfc has none beside priorities; pfc: [none], or the priorities alone"),
        (ofed(ecn=(3, 4, 3)), "rdma.roce.ecn names a priority twice"),
        (ofed(mtu=67), "rdma.roce.mtu is 67; allowed: 68 to 65535, or -1"),
        (ofed(mtu=0), "rdma.roce.mtu is 0"),
        (ofed(trust="pcp", dscp2prio={"26": 3}), "rdma.roce.dscp2prio maps DSCPs, and trust is pcp"),
        (ofed(mode="v1", trust="dscp"), "warning: rdma.roce.mode is v1, whose packets have no IP header"),
        (ofed(tos=106, traffic_class=104), ""),
        (ofed(tos=106, traffic_class=96),
         "warning: rdma.roce.traffic_class 96 is DSCP 24, and tos 106 is DSCP 26: traffic_class wins"),
        (ofed(trust="dscp", pfc=(3,), tos=106), ""),
        (ofed(trust="dscp", pfc=(3,), tos=192),
         'warning: rdma.roce.tos 192 is DSCP 48, of priority 6, which has no PFC; dscp2prio: {"48": 3}, or'),
        (ofed(trust="dscp", pfc=(5,), dscp2prio={"26": 5}, tos=106), ""),
        (ofed(trust="dscp", pfc=(3,), dscp2prio={"26": 5}, tos=106),
         "tos 106 is DSCP 26, of priority 5, which has no PFC"),
        (ofed(trust="dscp", ecn=(4,), traffic_class=106),
         "traffic_class 106 is DSCP 26, of priority 3, which has no ECN"),
        (ofed(trust="pcp", pfc=(3,), tos=192), ""),
        (ofed(pfc=("none",), tos=192), ""),
        (Rdma(fabric="roce", roce=Roce(ecn=(3,))),
         "warning: rdma.roce.ecn: the kernel's own drivers of most releases have nothing to set it by"),
        (Rdma(fabric="roce", roce=Roce(traffic_class=106)), "rdma.roce.traffic_class: the kernel's own drivers"),
        (Rdma(fabric="roce", roce=Roce(tos=106, pfc=(3,), cnp_dscp=48)), ""),
    ],
)  # fmt: skip
def test_what_a_spec_must_not_say(block: Rdma, said: str) -> None:
    found = told(block)
    assert len(found) == bool(said), found
    assert said in (found or [""])[0]


BLOCKS = [
    Rdma(fabric="roce", roce=ASKED),
    Rdma(fabric="roce", roce=Roce(tos=0, pfc=("none",), ecn=("none",), dscp2prio={"48": 6, "8": 1}, cnp_802p_prio=0),
         count=4,
         devices=(Selector(pci="3b:00.0", driver="mlx5_core"), Selector(netdev="b8:3f:d2:00:00:01"))),
    Rdma(fabric="roce", roce=Roce(pfc=(4, 3), ecn=(5,), mode="v1", trust="pcp", mtu=9000)),
    Rdma(fabric="roce"),
]  # fmt: skip


@run_each("block", BLOCKS)
def test_the_role_writes_what_is_asked_for(block: Rdma) -> None:
    asked = lines(block)
    texts = {"roce": roce_host.said(), "rdma_devices": "", "ofed": ""}
    made = at_boot(Context(HostSpec(name="gpu1"), block, Facts({name: Output(text) for name, text in texts.items()})))
    if not asked:
        assert made is None
        return
    assert made
    written = made.files[catalogue.CONFIG].splitlines()
    assert tuple(line for line in written if not line.startswith("#")) == asked


def test_the_unit_comes_after_the_interfaces_and_openibd() -> None:
    unit = UNIT.splitlines()
    after = next(line for line in unit if line.startswith("After=")).removeprefix("After=").split()
    assert {"openibd.service", "network.target", "systemd-udev-settle.service"} <= set(after)
    assert "PartOf=openibd.service" in unit, "openibd's restart takes the settings away"
    assert {"Type=oneshot", "RemainAfterExit=yes", "WantedBy=multi-user.target openibd.service"} <= set(unit)


def test_every_setting_is_in_the_catalogue() -> None:
    assert {one.key for one in catalogue.read_roce_file().settings} == set(Roce.__struct_fields__)
