"""rdma: what the role brings about on a host."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.rdma.desired import decide
from gpuprov.capabilities.rdma.fragment import Opensm, Rdma, Selector, Soft
from gpuprov.capabilities.rdma.limits import RAISE
from gpuprov.capabilities.rdma.preflight import netdevs
from gpuprov.capabilities.rdma.roce.checks import ways
from gpuprov.capabilities.rdma.roce.fragment import Roce
from tests.capabilities import at_boot, contexts, erdma_host, ofed_host, rdma_host, roce_host
from tests.capabilities.asking import BARE
from tests.rows import run_each

RXE = Rdma(fabric="soft", soft=Soft(netdevs=("ens4",)))
UNITS = "/etc/systemd/system"
HOME = "/usr/local/lib/gpuprov/rdma"
PARTS = ["gpuprov-rdma-soft.service", "gpuprov-roce.service", "gpuprov-erdma.service"]
BARE_HOST = {
    "roce": roce_host.said(),
    "erdma": erdma_host.said(config=None, files=()),
    "nccl": erdma_host.nccl(None),
    "ofed": BARE["ofed"],
}


def context(block: Rdma, name: str = "gpu1", **texts: str) -> Context[Rdma]:
    return contexts.context("rdma", contexts.spec(name=name, rdma=block), {**BARE_HOST, **texts})


OPENSM = "opensm.service"


def made(block: Rdma, name: str = "gpu1", **texts: str) -> dict[str, Any]:
    """As the role gets it."""
    answer: dict[str, Any] = msgspec.to_builtins(decide(context(block, name, **texts)))
    return answer


NETDEVS = ("ens3|52:54:00:4d:00:00|up|1|0000:00:03.0|", "ens4|52:54:00:4d:00:01|up|1|0000:00:04.0|")
BOTH = Rdma(fabric="soft", soft=Soft(netdevs=("52:54:00:4d:00:00", "ens4")))
SIW = rdma_host.rxe("siw0", "ens3", "52:54:00:4d:00:00", driver="siw") + rdma_host.rxe()
ROCE = Rdma(fabric="roce", roce=Roce(pfc=(3,), mtu=4200, ecn=(3,)))
OFED = Rdma(fabric="roce", stack="doca-ofed", roce=Roce(pfc=(3,)))
ETHERNET = rdma_host.device("mlx5_0", netdevs="ens1f0np0", layer="Ethernet")
INBOX = erdma_host.said(parameters={})
UNSET = {
    "roce": roce_host.said({"pfc": "none"}),
    "ofed": ofed_host.said(memory=(ofed_host.loaded("ib_core", own=True),)),
}
FEW = {"rdma_packages": rdma_host.packages("rdma-core")}
ERDMA, THEIRS = erdma_host.block(), {"rdma_devices": erdma_host.devices()}
ABSENT = "/etc/nccl.conf is left as it is until the devices are there: the host has no RDMA device of fabric erdma"
ROWS: list[tuple[str, Rdma, dict[str, Any], dict[str, Any]]] = [
    ("a software device that is missing; siw is another driver", BOTH,
        {"rdma_devices": SIW, "rdma_host": rdma_host.host(netdevs=NETDEVS)}, {"unit.differs": "ens3 rxe"}),
    *((f"RoCE: {values}", ROCE, {"rdma_devices": ETHERNET, "roce": roce_host.said(values)}, {"unit.differs": differs})
      for values, differs in (
        ({}, ""),
        ({"pfc": "none"}, "mlx5_0 port 1 pfc: none -> 3"),
        ({"mtu": "1500", "ecn": ""}, "mlx5_0 port 1 mtu: 1500 -> 4200; mlx5_0 port 1 ecn: not shown -> 3"),
      )),
    ("no setting of RoCE is asked for", Rdma(fabric="roce"), {"roce": roce_host.said()}, {"off": PARTS}),
    ("ports are set once the modules are OFED's", OFED, {"rdma_devices": ETHERNET, **UNSET}, {"unit.differs": ""}),
    ("in a container they will never be, and nothing waits for them", OFED,
        {"rdma_devices": ETHERNET, **UNSET, "container": "podman"}, {"unit.differs": "mlx5_0 port 1 pfc: none -> 3"}),
    *((f"eRDMA: {differs}", ERDMA, {"erdma": text, **THEIRS},
        {"unit.unit": "gpuprov-erdma.service", "unit.differs": differs, "initramfs": True})
      for text, differs in (
        (erdma_host.said(), ""),
        (erdma_host.said(parameters=None), "erdma: not loaded -> loaded"),
        (erdma_host.said("stale|"), "erdma: another build -> the one on disk"),
        (erdma_host.said(parameters={"compat_mode": "N"}), "compat_mode: N -> Y"),
        (erdma_host.said(parameters={}), "compat_mode: none -> Y"),
        (erdma_host.said(pairs=("rdmap0s6|eth1|1500",)), "MTU of eth1: 1500 -> 8500"),
      )),
    ("the kernel's own eRDMA", erdma_host.block(stack="inbox", compat_mode=False), {"erdma": INBOX},
     {"unit.differs": ""}),
    ("packages of the inbox stack", Rdma(), FEW,
        {"install": ["ibverbs-providers", "ibverbs-utils", "rdmacm-utils", "infiniband-diags"]}),
    ("another stack's are its own", Rdma(stack="doca-ofed"), FEW, {"install": []}),
    ("another's nccl.conf is kept beside ours", ERDMA, {**THEIRS, "nccl": erdma_host.nccl(("NCCL_IB_HCA=erdma",))},
        {"nccl.problem": "", "nccl.keep": True}),
    ("ours is not", ERDMA, {**THEIRS, "nccl": erdma_host.nccl(erdma_host.CONF, "ours|")}, {"nccl.keep": False}),
    ("no device to name", ERDMA, {"rdma_devices": ""}, {"nccl.text": "", "nccl.problem": ABSENT}),
    ("where root may lift no limit no command is run that would fail", Rdma(),
        {"rdma_host": rdma_host.host(daemons=("docker.service|8192|65536",), bound=True)}, {"limits.commands": []}),
]  # fmt: skip


@run_each(("block", "texts", "wanted"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_what_is_brought_about(block: Rdma, texts: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert contexts.pick(made(block, **texts), wanted) == wanted


def test_files_of_each_fabric() -> None:
    roce = made(ROCE, rdma_devices=ETHERNET, roce=roce_host.said())
    assert "ExecStart=@PYTHON@ -B -m rdma.roce apply 60\n" in roce["units"][f"{UNITS}/gpuprov-roce.service"]
    assert roce["files"]["/etc/gpuprov/roce.conf"].splitlines()[2:] == ["set mtu 4200", "set pfc 3", "set ecn 3"]
    options = "/etc/modprobe.d/gpuprov-erdma.conf"
    erdma = made(ERDMA, **THEIRS)
    assert erdma["files"][options].splitlines()[2:] == ["options erdma compat_mode=Y", "softdep erdma pre: ib_uverbs"]
    assert erdma["nccl"]["text"].splitlines()[2:] == list(erdma_host.CONF)
    assert "rdma.nccl.settings" in erdma["nccl"]["text"], "by which it is known again"
    own = made(erdma_host.block(stack="inbox", compat_mode=False), erdma=INBOX)
    assert (options in own["absent"], options in own["files"]) == (True, False)
    bound = made(Rdma(), rdma_host=rdma_host.host(daemons=("docker.service|8192|65536",), bound=True))["limits"]
    assert list(bound["files"]) == [f"{UNITS}/docker.service.d/50-gpuprov-rdma.conf"], (
        "its next start is another matter"
    )


def test_a_host_that_is_right_gets_nothing_but_its_files() -> None:
    answer = made(RXE, rdma_devices=rdma_host.rxe(), rdma_host=rdma_host.SOFT)
    assert answer["files"]["/etc/gpuprov/rdma-soft.conf"].endswith("\nrxe ens4\n")
    modules = ("__init__", "program", "devices", "devices_reader", "network", "soft")
    assert answer["program"] == {f"{HOME}/{name}.py": f"{name}.py" for name in modules}
    unit = answer["units"][f"{UNITS}/gpuprov-rdma-soft.service"]
    assert "\nEnvironment=PYTHONPATH=/usr/local/lib/gpuprov\nExecStart=@PYTHON@ -B -m rdma.soft apply 60\n" in unit
    assert (answer["unit"]["unit"], answer["unit"]["differs"]) == ("gpuprov-rdma-soft.service", "")
    assert (answer["install"], answer["off"], answer["initramfs"]) == ([], PARTS[1:], False)
    assert answer["limits"]["commands"] == []
    assert answer["absent"] == [
        f"{UNITS}/gpuprov-roce.service",
        "/etc/gpuprov/roce.conf",
        f"{UNITS}/gpuprov-erdma.service",
        "/etc/gpuprov/erdma.conf",
        "/etc/modprobe.d/gpuprov-erdma.conf",
        f"{UNITS}/opensm.service.d/50-gpuprov.conf",
        *(f"{HOME}/{name}" for name in ("roce.py", "roce_ports.py", "erdma.py", "erdma_state.py")),
        *(f"{HOME}/{name}" for name in ("roce.sh", "roce-read.sh", "soft.sh")),
        "/usr/local/lib/gpuprov/erdma/erdma.sh",
    ], "what an earlier gpuprov ran at boot goes, too"


def test_the_address_of_an_interface_is_not_that_of_its_vlan() -> None:
    """A VLAN has the address of the interface below it, and may come before it in the alphabet; rxe refuses VLANs."""
    netdevs_there = ("data10|52:54:00:4d:00:01|up|1||vlan", "ens4|52:54:00:4d:00:01|up|1|0000:00:04.0|")
    block = Rdma(fabric="soft", soft=Soft(netdevs=("52:54:00:4d:00:01",)))
    there = rdma_host.host(netdevs=netdevs_there)
    assert netdevs.run(context(block, rdma_host=there)).found == "ens4"
    named = Rdma(fabric="soft", soft=Soft(netdevs=("data10",)))
    assert "data10 is a VLAN" in netdevs.run(context(named, rdma_host=there)).found


def test_another_fabric_takes_away_what_sets_the_old_one() -> None:
    texts = {"rdma_host": rdma_host.SOFT, "roce": roce_host.said(), "erdma": erdma_host.said()}
    answer = made(Rdma(fabric="infiniband"), **texts)
    assert answer["off"] == PARTS
    assert {"/etc/gpuprov/rdma-soft.conf", "/etc/gpuprov/roce.conf", "/etc/modprobe.d/gpuprov-erdma.conf"} <= set(
        answer["absent"]
    )
    assert (answer["unit"], answer["program"]) == (None, {})
    assert answer["initramfs"], "one that holds erdma would keep its options"


@run_each(
    ("asked", "lost"),
    [
        ({"count": 2}, "1 of 2 RoCE devices"),
        ({"devices": (Selector(pci="5e:00.0"),)}, "no RoCE port of pci 5e:00.0"),
        ({"devices": (Selector(driver="mlx5_core"), Selector(netdev="ens9"))}, "no RoCE port of netdev ens9"),
        ({"devices": (Selector(pci="18:00.0"),)}, "no RoCE port of pci 18:00.0"),
    ],
)
def test_roce_ports_that_are_not_there_are_refused_before_anything_is_changed(asked: dict[str, Any], lost: str) -> None:
    """A host with one of its two adapters would be set as if it were whole; a port in InfiniBand mode is none."""
    there = rdma_host.device("mlx5_0", netdevs="ens1f0np0", layer="Ethernet") + rdma_host.device(
        "ibp24s0", "0000:18:00.0"
    )
    block = Rdma(fabric="roce", roce=Roce(pfc=(3,)), **asked)
    outcome = ways.run(context(block, rdma_devices=there, roce=roce_host.said()))
    assert (outcome.status, outcome.found) == ("fail", lost)


@run_each(
    ("name", "asked", "managers", "differs", "off"),
    [
        ("gpu1", Opensm(hosts=("gpu1",)), 0, "opensm: without a process -> one for each port", PARTS),
        ("gpu1", Opensm(hosts=("gpu1",)), 2, "", PARTS),
        ("gpu2", Opensm(hosts=("gpu1",)), 2, "", [*PARTS, OPENSM]),
        ("gpu2", Opensm(elsewhere=True), 0, "", [*PARTS, OPENSM]),
        ("gpu2", Opensm(), 2, "", PARTS),
    ],
)
def test_opensm(name: str, asked: Opensm, managers: int, differs: str, off: list[str]) -> None:
    answer = made(Rdma(fabric="infiniband", opensm=asked), name, rdma_host=rdma_host.host(managers=managers))
    here = name in asked.hosts
    assert (answer["opensm"]["here"], answer["opensm"]["differs"], answer["off"]) == (here, differs, off)
    assert (f"{UNITS}/opensm.service.d/50-gpuprov.conf" in answer["files"]) == here


def test_limits_of_services() -> None:
    daemons = (
        "containerd.service|65536|infinity",
        "docker.service|unlimited|65536",
        "slurmd.service|unlimited|infinity",
    )
    answer = made(Rdma(), rdma_host=rdma_host.host(daemons=daemons))["limits"]
    (path,) = answer["files"]
    assert path == f"{UNITS}/docker.service.d/50-gpuprov-rdma.conf"
    assert answer["files"][path].endswith("LimitMEMLOCK=infinity\n")
    assert [argv[-2:] for argv in answer["commands"]] == [["containerd.service", "unlimited"]]
    enough = made(Rdma(memlock="64"), rdma_host=rdma_host.host(daemons=daemons))["limits"]
    assert enough == {"files": {}, "commands": []}
    more = made(Rdma(memlock="128"), rdma_host=rdma_host.host(daemons=daemons))["limits"]
    assert more["files"][path].endswith("LimitMEMLOCK=131072\n")
    assert more["commands"][0][-2:] == ["containerd.service", "131072"]
    assert made(Rdma(memlock=""), rdma_host=rdma_host.host(daemons=daemons))["limits"] == {"files": {}, "commands": []}


def test_a_running_service_is_lifted(tmp_path: Path) -> None:
    env = at_boot.stand_in(tmp_path, {"systemctl": "echo 11", "prlimit": f'echo "$*" >{tmp_path}/log'})
    subprocess.run(["sh", "-c", RAISE, "sh", "containerd.service", "131072"], check=True, timeout=20, env=env)
    assert (tmp_path / "log").read_text() == "--pid 11 --memlock=131072:131072\n"
