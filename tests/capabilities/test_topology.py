"""topology: the wiring that a spec asks for is there, and what is not there is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import pytest

from gpuprov.capabilities import topology
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.topology.fragment import Topology
from gpuprov.facts.probes.base import Output
from gpuprov.spec.build import convert
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import CHECKS, GOOD, PODMAN, Row, facts, judge
from tests.hardware.topology.machines import Machine, hgx_h100
from tests.hardware.topology.others import crowded, dgx2, dgx_a100, grace, hgx_b200, l40s, shared, vm
from tests.rows import run_each

HCA, RAILS, SOCKET, COUNT, PCIE, NVLINKS, VISIBLE = (
    f"topology.{name}" for name in ("gpu_hca", "rails", "same_socket", "hcas", "pcie", "nvlinks", "visible")
)
ANY = Topology(pcie="any", nvlinks="any")
NEAR, MATCHED, OWN = Topology(gpu_hca="PIX"), Topology(rails="matched"), Topology(same_socket=True)
NODE = Topology(gpu_hca="NODE", rails="matched")


def on(machine: Machine) -> Mapping[str, Output | str]:
    return machine.texts


def far() -> Machine:
    """A GPU on one socket, its only HCA on the other."""
    made = Machine()
    made.gpu("pci0000:16/0000:16:01.0/0000:17:00.0", "26b9", 0)
    made.hca("pci0000:97/0000:97:01.0/0000:98:00.0", "mlx5_0", 1)
    return made


def silent() -> Machine:
    """8 H100 whose HCAs have no driver, and a software device."""
    made = hgx_h100()
    made.devices = ["device|rxe0|||||1: CA||||eth0||"]
    for cells in made.functions.values():
        cells[11] = ""
    return made


def unsaid(machine: Machine) -> Machine:
    """The same machine whose nvidia-smi says nothing."""
    machine.smi = False
    return machine


def bridgeless() -> Machine:
    """Two A30 without a bridge, of whose NVLinks nvidia-smi says nothing at all."""
    made = Machine(sockets={0: 0})
    for number in range(2):
        made.gpu(f"pci0000:1{number}/0000:1{number}:01.0/0000:2{number}:00.0", "20b7", 0)
    return made


def speechless(machine: Machine) -> dict[str, Output]:
    """What the machine prints, without a line of nvidia-smi nvlink -s."""
    texts = machine.texts
    kept = [line for line in texts["topology_nvlinks"].text.splitlines() if not line.startswith("link|")]
    return {**texts, "topology_nvlinks": Output("\n".join(kept))}


def lost() -> Machine:
    """8 H100, the last of which nvidia-smi does not show."""
    made = hgx_h100()
    made.gpus.pop()
    return made


def mig() -> Machine:
    made = hgx_h100(lost=tuple(range(8)))
    made.gpus = [row.replace("Disabled", "Enabled") for row in made.gpus]
    return made


def slow_hca() -> Machine:
    made = l40s()
    made.functions["pci0000:16/0000:16:03.0/0000:1f:00.0"][6] = "8.0 GT/s PCIe"
    return made


AROUND = {name: GOOD[name] for name in ("container", "loaded_driver")}
BARE = {"topology_pci": "", "rdma_devices": "", "topology_nvlinks": ""}

ROWS = [
    Row("a GPU", VISIBLE, None, on(hgx_h100()), "pass", "8 GPUs, 8 HCAs"),
    Row("no GPU", VISIBLE, None, BARE, "fail", "no NVIDIA GPU", "topology: false"),
    Row("HCAs not asked for", HCA, None, BARE, "n/a", "any"),
    Row("near HCAs", HCA, NEAR, on(hgx_h100()), "pass", "8 GPUs, at most PIX"),
    Row("a misplaced HCA", HCA, NEAR, on(hgx_h100(misplaced=True)), "fail", "GPU3 NODE to ibp111s0", "slot"),
    Row("a misplaced HCA that is near enough", HCA, Topology(gpu_hca="NODE"), on(hgx_h100(misplaced=True)), "pass",
        "at most NODE"),
    Row("across sockets", HCA, Topology(gpu_hca="NODE"), on(far()), "fail", "GPU0 SYS to mlx5_0"),
    Row("anywhere", HCA, Topology(gpu_hca="SYS"), on(far()), "pass", "at most SYS"),
    Row("no HCA", HCA, NEAR, on(silent()), "fail", "no HCA on the PCI bus; without an RDMA device: 0000:18:00.0",
        "rdma:"),
    Row("software devices only", HCA, NEAR, on(silent()), "fail", "rxe0 is not a PCI function", "rdma:"),
    Row("no GPU to be near to", HCA, NEAR, BARE, "fail", "no NVIDIA GPU", "topology.visible"),
    Row("rails not asked for", RAILS, None, BARE, "n/a", "any"),
    Row("rails that match", RAILS, MATCHED, on(hgx_h100()), "pass", "8 GPUs with 8 HCAs"),
    Row("rails behind two switches", RAILS, MATCHED, on(hgx_b200()), "pass", "8 GPUs with 8 HCAs"),
    Row("rails too far", RAILS, Topology(gpu_hca="PIX", rails="matched"), on(hgx_b200()), "fail", "GPU0 has none"),
    Row("rails shared evenly", RAILS, MATCHED, on(shared()), "pass", "4 GPUs with 2 HCAs, each shared by 2"),
    Row("rails shared unevenly", RAILS, MATCHED, on(crowded()), "fail", "mlx5_1 is shared by GPU2 and GPU3", "slots"),
    Row("a rail's HCA is misplaced", RAILS, MATCHED, on(hgx_h100(misplaced=True)), "fail",
        "GPU3 has none: ibp111s0 is NODE", "slots"),
    Row("and is named", RAILS, MATCHED, on(hgx_h100(misplaced=True)), "fail",
        "paired with no GPU: ibp111s0 (0000:6f:00.0)"),
    Row("no switch", RAILS, MATCHED, on(l40s()), "fail", "GPU0 has none: mlx5_0 is PHB", "gpu_hca: NODE"),
    Row("rails without switches", RAILS, NODE, on(grace()), "pass", "4 GPUs with 4 HCAs"),
    Row("rails without HCAs", RAILS, MATCHED, on(silent()), "fail", "no HCA"),
    Row("sockets not asked for", SOCKET, None, BARE, "n/a", "false"),
    Row("its own socket", SOCKET, OWN, on(hgx_h100()), "pass", "8 GPUs"),
    Row("another NUMA node of its socket", SOCKET, OWN, on(dgx_a100()), "pass", "8 GPUs"),
    Row("another socket", SOCKET, OWN, on(far()), "fail", "GPU0 to mlx5_0", "slot"),
    Row("one socket", SOCKET, OWN, on(vm()), "pass", "2 GPUs"),
    Row("no HCA on a socket", SOCKET, OWN, on(silent()), "fail", "no HCA"),
    Row("not counted", COUNT, None, BARE, "n/a", "0"),
    Row("as many as asked for", COUNT, Topology(hcas=12), on(hgx_b200()), "pass", "12 HCAs: mlx5_0"),
    Row("one too few", COUNT, Topology(hcas=9), on(hgx_h100()), "fail", "8 HCAs: ibp24s0", "rdma:"),
    Row("one too many", COUNT, Topology(hcas=7), on(hgx_h100()), "fail", "8 HCAs"),
    Row("none has a driver", COUNT, Topology(hcas=8), on(silent()), "fail",
        "no HCA on the PCI bus; without an RDMA device"),
    Row("links not asked for", PCIE, ANY, BARE, "n/a", "any"),
    Row("full links", PCIE, None, on(hgx_h100()), "pass", "16 devices"),
    Row("a narrowed link", PCIE, None, on(hgx_h100(narrow=True)), "fail", "0000:bc:00.0) is 32 GT/s x8 of 32 GT/s x16",
        "LnkSta"),
    Row("idle GPUs", PCIE, None, on(l40s()), "pass", "6 devices; 4 idle GPUs' links are slow now"),
    Row("a slow HCA beside idle GPUs", PCIE, None, on(slow_hca()), "fail",
        "mlx5_0 (0000:1f:00.0) is 8 GT/s x16 of 32 GT/s x16"),
    Row("no GPU with a link", PCIE, None, BARE, "fail", "no NVIDIA GPU", "topology.visible"),
    Row("NVLinks not asked for", NVLINKS, ANY, BARE, "n/a", "any"),
    Row("all NVLinks", NVLINKS, None, on(hgx_h100()), "pass", "18 on each of 8 GPUs"),
    Row("a GPU without its NVLinks", NVLINKS, None, on(hgx_b200(lost=(2,))), "fail", "GPU2 has 0 of 18",
        "nvidia-fabricmanager"),
    Row("a number of NVLinks", NVLINKS, Topology(nvlinks="6"), on(dgx2()), "pass", "6 on each of 16 GPUs"),
    Row("fewer than that", NVLINKS, Topology(nvlinks="8"), on(dgx2()), "fail", "GPU0 has 6 of 8"),
    Row("more than that", NVLINKS, Topology(nvlinks="16"), on(hgx_h100()), "pass", "18 on each"),
    Row("a model without NVLink", NVLINKS, None, on(l40s()), "n/a", "L40S has no NVLink"),
    Row("a number of a model without NVLink", NVLINKS, Topology(nvlinks="4"), on(l40s()), "fail", "GPU0 has 0 of 4"),
    Row("no nvidia-smi", NVLINKS, None, on(unsaid(hgx_h100())), "fail", "nvidia-smi is not installed", "nvidia_driver"),
    Row("cards without a bridge", NVLINKS, None, on(bridgeless()), "pass", "0 on each of 2 GPUs"),
    Row("cards of which nothing is said", NVLINKS, None, speechless(bridgeless()), "skip",
        "said nothing; A30 may have no bridge"),
    Row("a number of which nothing is said", NVLINKS, Topology(nvlinks="4"), speechless(bridgeless()), "fail",
        "said nothing"),
    Row("a board of which nothing is said", NVLINKS, None, speechless(hgx_h100()), "fail",
        "nvidia-smi nvlink -s said nothing"),
    Row("a lost GPU", NVLINKS, None, on(lost()), "fail", "nvidia-smi does not show GPU7", "nvidia_driver.user_space"),
    Row("a container without a driver", NVLINKS, None, {**on(unsaid(hgx_h100())), **PODMAN, "loaded_driver": ""},
        "skip", "podman"),
    Row("a container with a driver", NVLINKS, None, {**on(hgx_b200(lost=(2,))), **PODMAN}, "fail", "GPU2 has 0 of 18"),
    Row("MIG on every GPU", NVLINKS, None, on(mig()), "skip", "MIG"),
    Row("no GPU with NVLinks", NVLINKS, None, BARE, "fail", "no NVIDIA GPU"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_topology(row: Row) -> None:
    judge(row)


def test_a_vm_that_does_not_tell_sockets() -> None:
    machine = vm()
    machine.sockets = {0: 0, 1: 1}
    outcome = CHECKS[SOCKET].run(Context(HostSpec(name="gpu1"), OWN, facts(**machine.texts)))
    assert outcome.status == "fail"
    assert "does not tell on which socket GPU0, GPU1" in outcome.found
    assert "same_socket: false" in outcome.fix


def test_links_that_are_not_told() -> None:
    machine = vm()
    for cells in machine.functions.values():
        cells[6:10] = ["Unknown", "0", "Unknown", "255"]
    outcome = CHECKS[PCIE].run(Context(HostSpec(name="gpu1"), Topology(), facts(**machine.texts)))
    assert outcome.status == "skip"


@pytest.mark.install
@pytest.mark.parametrize(
    ("machine", "block"),
    [
        (hgx_h100(), Topology(gpu_hca="PIX", rails="matched", same_socket=True, hcas=8)),
        (hgx_b200(), Topology(gpu_hca="PXB", rails="matched", same_socket=True, hcas=12)),
        (hgx_h100(misplaced=True), Topology(gpu_hca="NODE", rails="matched", same_socket=True, hcas=8)),
        (hgx_h100(narrow=True), Topology(gpu_hca="PIX", rails="matched", same_socket=True, hcas=8, pcie="any")),
        (hgx_b200(lost=(2,)), Topology(gpu_hca="PXB", rails="matched", same_socket=True, hcas=12, nvlinks="any")),
        (unsaid(hgx_h100()), Topology(gpu_hca="PIX", rails="matched", same_socket=True, hcas=8, nvlinks="any")),
        (dgx_a100(), Topology(gpu_hca="PXB", rails="matched", same_socket=True, hcas=8)),
        (l40s(), Topology(gpu_hca="NODE", rails="matched", same_socket=True, hcas=2)),
        (vm(), Topology(gpu_hca="PHB", rails="matched", hcas=2)),
        (grace(), Topology(gpu_hca="NODE", rails="matched", same_socket=True, hcas=4)),
        (far(), Topology(gpu_hca="SYS", hcas=1)),
        (silent(), Topology()),
    ],
)  # fmt: skip
def test_export_says_what_holds(machine: Machine, block: Topology) -> None:
    found = topology.export(facts(**machine.texts))
    assert found == block
    assert convert(msgspec.to_builtins(found), Topology) == (block, [])
    for check in topology.CAPABILITY.checks:
        outcome = check.run(Context(HostSpec(name="gpu1"), block, facts(**AROUND, **machine.texts)))
        assert outcome.status in ("pass", "skip", "n/a"), outcome


def no_links() -> Machine:
    made = l40s()
    made.devices = []
    return made


@run_each("make", [Machine, no_links])
def test_export_says_nothing_of_a_host_where_nothing_is_wired(make: Callable[[], Machine]) -> None:
    assert topology.export(facts(**make().texts)) is None
