"""Each fault of HCAs, ports and PCIe links, planted in a simulated container's sysfs, fails the check that it names,
with its fix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuprov.capabilities.base import Context, Outcome
from gpuprov.capabilities.health.fragment import Health
from gpuprov.capabilities.pcie.fragment import Pcie
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl.fragment import Nccl
from gpuprov.capabilities.rdma.roce.fragment import Roce
from gpuprov.capabilities.topology.fragment import Topology
from gpuprov.explain import all_checks
from gpuprov.facts.probes import rdma
from gpuprov.facts.probes.base import Facts, Output, Probe
from gpuprov.facts.probes.gpus import health_links, topology
from gpuprov.facts.probes.host import pcie
from gpuprov.facts.probes.rdma import roce
from gpuprov.simulate import faults
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.faults.rdma import TABLE
from gpuprov.simulate.parts.silicon_files import bus_container as program
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.simulate.sysfs_host import SysfsHost

pytestmark = pytest.mark.install

GPU = Gpus(model="H100-SXM5-80GB", count=2)
INFINIBAND = Description(gpu=GPU, nvswitch=3, hcas=2)
ROCE = Description(gpu=GPU, nvswitch=3, hcas=2, fabric="roce")
BLOCKS: dict[str, Fragment] = {
    "rdma": Rdma(fabric="infiniband", count=2, rate=400),
    "health": Health(link_downed=2, port_errors=0, transport_errors=0),
    "topology": Topology(gpu_hca="PXB", rails="matched", same_socket=True, hcas=2),
    "pcie": Pcie(acs="disabled", max_read_request=4096, relaxed_ordering="enabled"),
}
SETTINGS = Roce(traffic_class=106, ecn=(3,), cnp_dscp=48)
ON_ETHERNET = {**BLOCKS, "rdma": Rdma(fabric="roce", count=2, rate=400, roce=SETTINGS, nccl=Nccl(gid="automatic"))}
READ: tuple[Probe[Any], ...] = (rdma.DEVICES, topology.PCI, pcie.PCIE, roce.ROCE, health_links.PORT_ERRORS)
CHECKS = {check.id: check for check in all_checks()}
# What the other probes print on a host without errors: the ones that sysfs does not tell.
ELSEWHERE = {
    "topology_nvlinks": "gpu|0, 00000001:13:00.0, P0, Disabled\ngpu|1, 00000001:23:00.0, P0, Disabled\n"
    + "".join(
        f"link|GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu})\n"
        + "".join(f"link|\t Link {link}: 26.562 GB/s\n" for link in range(18))
        for gpu in (0, 1)
    ),
    "rdma_host": "module|mlx5_ib|loaded\n",
    "container": "none\n",
    "machine": "kind|none\n",
}  # fmt: skip


class Asked:
    """A host with these blocks, whose checks are asked one by one."""

    def __init__(self, host: SysfsHost, blocks: dict[str, Fragment]) -> None:
        self.host, self.blocks = host, blocks
        self.read: dict[str, Output] = {}
        self.spec = HostSpec(name="gpu01", gpu=GpuSpec(model=GPU.model, count=GPU.count), capabilities=blocks)

    def ask(self, name: str) -> Outcome:
        check = CHECKS[name]
        wanted = {probe.name: probe for probe in check.probes}
        self.read |= {
            one.name: self.host.output(one) for one in READ if one.name in wanted and one.name not in self.read
        }
        outputs = {name: output for name, output in self.read.items() if name in wanted}
        texts = {one: Output(ELSEWHERE.get(one, "")) for one in wanted if one not in outputs}
        return check.run(Context(self.spec, self.blocks[check.capability], Facts(outputs | texts)))

    def configure(self) -> None:
        """As the boot units do it: ACS off, read requests of 4096 bytes, RoCE as asked for."""
        for place in (self.host.sys / program.DEVICES).glob("0001:*"):
            with (place / "config").open("r+b") as config:
                config.seek(0x106)
                config.write(b"\0\0")
                config.seek(0x48)
                config.write(b"\x30\x59")
        for name, text in {"ecn/roce_np/enable/*": "0", "ecn/roce_rp/enable/*": "0", "ecn/roce_np/enable/3": "1",
                           "ecn/roce_rp/enable/3": "1"}.items():  # fmt: skip
            for file in (self.host.sys / "class/net").glob(f"*/{name}"):
                file.write_text(f"{text}\n")
        for file in (self.host.sys / "class/infiniband").glob("*/tc/1/traffic_class"):
            file.write_text("Global tclass=106\n")


Make = Callable[[Description], Asked]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    def made(description: Description) -> Asked:
        (tmp_path / "root/usr/src/ofa_kernel/default").mkdir(parents=True)
        (tmp_path / "root/etc/modules-load.d").mkdir(parents=True)
        (tmp_path / "root/etc/modules-load.d/gpuprov.conf").write_text("ib_umad\n")
        host = SysfsHost(tmp_path, description, monkeypatch)
        asked = Asked(host, ON_ETHERNET if description.fabric == "roce" else BLOCKS)
        asked.configure()
        return asked

    return made


FAULTS: dict[
    str, tuple[Description, str, str]
] = {  # fault with its parameter -> host, words of what is found, words of the fix
    "hca-missing=1": (INFINIBAND, "1: ibP1p20s0 (0001:14:00.0)", "a missing device: lspci, dmesg"),
    "hca-misplaced=1": (INFINIBAND, "GPU1 has none: ibP1p", "compare the HCAs' slots with the machine's manual"),
    "hca-link-layer=0": (INFINIBAND, "1: ibP1p36s0", "lspci, dmesg"),
    "pcie-link-narrow=hca0": (INFINIBAND, "x4", "reseat"),
    "ib-port-down=0": (INFINIBAND, "ibP1p20s0 port 1 is DOWN (Polling)", "the cable, and the switch's port"),
    "ib-port-init=1": (
        INFINIBAND,
        "ibP1p36s0 port 1 is INIT (LinkUp), sm_lid 0",
        "no subnet manager: a managed switch",
    ),
    "ib-rate-low=0": (INFINIBAND, "ibP1p20s0 port 1: 100 Gb/s", "the cable, its seat, and the switch's port"),
    "rdma-port-flaps=1": (
        INFINIBAND,
        "ibP1p36s0 port 1 went down 14 times; ibP1p36s0 port 1: symbol_error 120, link_error_recovery 3",
        "reseat or replace the cable",
    ),
    "rdma-timeouts=1": (INFINIBAND, "ibP1p36s0 port 1: local_ack_timeout_err 12", "look at switches, cables"),
    "roce-gid-missing=0": (
        ROCE,
        "none on roceP1p20s0 port 1",
        "its network interface must be up and have that address",
    ),
    "acs-again": (INFINIBAND, "0001:12:00.0", "systemctl restart gpuprov-pcie.service"),
    "read-requests-small": (INFINIBAND, "512", "gpuprov-pcie.service"),
    "roce-settings-lost": (ROCE, "traffic_class is unset", "gpuprov-roce.service"),
}


def planted(asked: Asked, item: str) -> None:
    """As `faults.plant` does it on the host itself: the fault's file, then its script."""
    name, _, parameter = item.partition("=")
    fault, host = faults.find(name), asked.host
    asked.read.clear()
    if fault.plant.startswith("/usr/lib/gpuprov-sim/bus forget"):
        host.run("forget", fault.plant.rpartition(" ")[2])
    else:
        host.plant(name, parameter or fault.parameter)


@pytest.mark.parametrize("item", FAULTS)
def test_a_fault_fails_the_check_that_it_names(make: Make, item: str) -> None:
    description, found, fix = FAULTS[item]
    asked = make(description)
    planted(asked, item)
    after = asked.ask(faults.find(item.partition("=")[0]).caught_by)
    assert after.status == "fail", after
    assert found in after.found
    assert fix in after.fix
    assert after.fix


def test_every_fault_of_the_table_is_planted() -> None:
    """But for one of GPUs, and one with files of its own, which tests/e2e/test_rdma_traps.py plants."""
    here = {item.partition("=")[0] for item in FAULTS}
    assert here == {fault.name for fault in TABLE if fault.moment == "verify"} - {"nvlink-down", "rdma-errors-grow"}


@pytest.mark.parametrize("description", [INFINIBAND, ROCE], ids=["infiniband", "roce"])
def test_a_right_host_passes(make: Make, description: Description) -> None:
    """All checks that find a fault, and those that look at the same."""
    asked = make(description)
    found = {faults.find(item.partition("=")[0]).caught_by for item, row in FAULTS.items() if row[0] is description}
    for name in found | {"topology.same_socket", "topology.hcas", "topology.nvlinks", "topology.gpu_hca"}:
        outcome = asked.ask(name)
        assert outcome.status == "pass", (name, outcome)


def test_healing_makes_the_host_right_again(make: Make) -> None:
    asked = make(INFINIBAND)
    for item in ("ib-port-down", "hca-misplaced", "pcie-link-narrow"):
        planted(asked, item)
    assert (
        asked.ask("rdma.ports").status
        == asked.ask("topology.rails").status
        == asked.ask("topology.pcie").status
        == "fail"
    )
    for name in ("ib-port-down", "hca-misplaced", "pcie-link-narrow"):
        asked.host.heal(name)
    asked.read.clear()
    for name in ("rdma.ports", "topology.rails", "topology.pcie"):
        assert asked.ask(name).status == "pass"
