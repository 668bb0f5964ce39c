"""gpudirect_rdma: which method a host has and why, dma-buf, what is left of another method, the check of the PCI
topology."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gpuprov.capabilities.base import Context, Outcome
from gpuprov.capabilities.gpudirect_rdma.fragment import Gdrcopy, GpudirectRdma
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.pcie.fragment import Pcie
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities import contents_host, contexts, pcie_host
from tests.capabilities.asking import CHECKS, GOOD, PODMAN, Row, judge
from tests.capabilities.gpudirect_host import DMABUF, NEXT, OPEN, kernel, peer, said
from tests.facts.probes import captured

METHOD = "gpudirect_rdma.method"
DMA = "gpudirect_rdma.dmabuf"
ALONE = "gpudirect_rdma.alone"
TOPOLOGY = "gpudirect_rdma.topology_check"
ON = {"gpudirect": DMABUF}
ON_OPEN: dict[str, Output | str] = {**ON, "loaded_driver": captured("loaded_driver", "open")}
DMABUF_ASKED, OLD = (GpudirectRdma(method=name) for name in ("dmabuf", "nv_peer_mem"))
COPY = GpudirectRdma(gdrcopy=Gdrcopy(install=True))
PEERS = ("nvidia", "ib_core", "nvidia_peermem", "nv_peer_mem")


ROWS = [
    Row("dma-buf works", DMA, None, ON_OPEN, "pass", "no module is needed for it"),
    Row("dma-buf in a container", DMA, None, {**ON, **PODMAN}, "pass", "dma-buf"),
    Row("not dma-buf", DMA, None, {}, "n/a", "the method is nvidia_peermem"),
    Row("leftovers are told", DMA, None, {**ON_OPEN, **peer(kernel(license_=OPEN))}, "pass",
        "nvidia_peermem is loaded, too, and not needed"),
    Row("no P2PDMA is told", DMA, None, ON_OPEN, "pass",
        "CONFIG_PCI_P2PDMA is not set, which NVIDIA's prerequisites do not ask for"),
    Row("closed modules", DMA, DMABUF_ASKED, {}, "fail", "gets, proprietary ones", "kernel_modules: open"),
    Row("the loaded one is proprietary", DMA, DMABUF_ASKED, ON, "fail",
        "loaded NVIDIA module 535.261.03 is proprietary", "reboot"),
    Row("no module for a kernel", DMA, DMABUF_ASKED,
        {**ON_OPEN, **peer(kernel(license_=OPEN), kernel(NEXT, nvidia="", module=""))}, "fail",
        f"no NVIDIA module for {NEXT}"),
    Row("an RDMA stack without dma-buf", DMA, None, {**ON_OPEN, **peer(kernel(license_=OPEN, uverbs="no"))}, "fail",
        "no ib_umem_dmabuf_get", "newer DOCA-OFED"),
    Row("no method", DMA, None, peer(kernel(symvers="", exports="no", symbols="no")), "fail",
        "and no ib_core with peer memory"),
    Row("one peer module", ALONE, None, {}, "pass", "nvidia_peermem, and no other"),
    Row("both loaded", ALONE, None, peer(loaded=PEERS), "fail", "register the same client", "rmmod nv_peer_mem",
        change="module nv_peer_mem: loaded -> unloaded"),
    Row("the other one loaded", ALONE, None, peer(loaded=("nvidia", "ib_core", "nv_peer_mem")), "fail",
        "nv_peer_mem loaded", "rmmod nv_peer_mem"),
    Row("both loaded under dma-buf", ALONE, None,
        {"gpudirect": DMABUF + "loaded|nvidia_peermem|0\nloaded|nv_peer_mem|0\n"}, "fail", "the same client"),
    Row("nv_peer_mem itself", ALONE, OLD,
        peer(kernel(module="nv_peer_mem"), loaded=("nvidia", "ib_core", "nv_peer_mem")), "pass"),
    Row("no method to be alone", ALONE, None, peer(kernel(symvers="", exports="no", symbols="no")), "skip",
        "see gpudirect_rdma.dmabuf"),
    Row("topology left to the driver", TOPOLOGY, None, {}, "pass", "NVreg_GrdmaPciTopoCheckOverride=0"),
    Row("overridden by hand", TOPOLOGY, None,
        {"modprobe_config": "options nvidia-current NVreg_GrdmaPciTopoCheckOverride=1\n"}, "fail", "modprobe says 1",
        "grep -r"),
    Row("not there yet", TOPOLOGY, GpudirectRdma(topology_check="allow"), {}, "fail", "modprobe says 0",
        change="setting NVreg_GrdmaPciTopoCheckOverride: 0 -> 1"),
    Row("an old driver", TOPOLOGY, GpudirectRdma(topology_check="allow"),
        {"modprobe_config": "options nvidia NVreg_GrdmaPciTopoCheckOverride=1\n"}, "fail", "no such parameter",
        "from 570"),
    Row("loaded before", TOPOLOGY, GpudirectRdma(topology_check="allow"),
        {"modprobe_config": "options nvidia NVreg_GrdmaPciTopoCheckOverride=1\n",
        "driver_parameters": "GrdmaPciTopoCheckOverride: 0\n"}, "fail", "loaded with 0", "reboot",
        reboot="1 is wanted"),
    Row("overridden", TOPOLOGY, GpudirectRdma(topology_check="deny"),
        {"modprobe_config": "options nvidia NVreg_GrdmaPciTopoCheckOverride=2\n",
        "driver_parameters": "GrdmaPciTopoCheckOverride: 2\n"}, "pass", "=2"),
    Row("overridden, not loaded", TOPOLOGY, GpudirectRdma(topology_check="deny"),
        {"modprobe_config": "options nvidia NVreg_GrdmaPciTopoCheckOverride=2\n", "loaded_driver": ""}, "pass",
        "for when"),
]  # fmt: skip


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.check}-{row.name}") for row in ROWS])
def test_gpudirect(row: Row) -> None:
    judge(row)


def asked(
    check: str, blocks: dict[str, Fragment], block: GpudirectRdma | None = None, **changed: str
) -> tuple[str, str]:
    host = contexts.spec(blocks, gpudirect_rdma=block or GpudirectRdma())
    outcome = contexts.answer(check, host, changed)
    return outcome.status, outcome.found


@pytest.mark.parametrize(
    ("blocks", "text", "told"),
    [
        ({"nvidia_driver": NvidiaDriver(kernel_modules="open")}, said(), "dmabuf: dma-buf is supported"),
        ({"nvidia_driver": NvidiaDriver(version="580")}, said(), "dmabuf: dma-buf is supported"),
        ({"nvidia_driver": NvidiaDriver(version="535")}, DMABUF, "nvidia_peermem: dma-buf needs open"),
        ({"nvidia_driver": NvidiaDriver(kernel_modules="proprietary"), "rdma": Rdma(stack="doca-ofed")}, DMABUF, "nvidia_peermem"),
        ({"rdma": Rdma(stack="doca-ofed")}, said(kernel(symvers="", exports="no", symbols="no")), "nvidia_peermem: dma-buf"),
        ({"rdma": Rdma(fabric="soft")}, said(), "software RDMA devices copy by the CPU"),
        ({"nvidia_driver": NvidiaDriver(build="precompiled")}, said(), "precompiled modules were built without OFED"),
    ],
)  # fmt: skip
def test_auto_judges_by_what_the_host_will_have(blocks: dict[str, Fragment], text: str, told: str) -> None:
    if "535" in getattr(blocks.get("nvidia_driver"), "version", ""):
        text = text.replace(
            "core|6.1.0-47-amd64|/lib/modules/6.1.0-47-amd64/kernel/drivers/infiniband/core/ib_core.ko|no",
            "core|6.1.0-47-amd64|x|yes",
        )
    _, found = asked(METHOD, blocks, gpudirect=text)
    assert told in found


def test_open_modules_that_are_not_there_yet() -> None:
    driver: dict[str, Fragment] = {"nvidia_driver": NvidiaDriver(kernel_modules="open")}
    assert asked(DMA, driver) == ("fail", "proprietary NVIDIA modules for 6.1.0-47-amd64")


def test_every_answer_is_clean() -> None:
    """A check that is asked of a host without anything says so, and does not break."""
    for name, check in CHECKS.items():
        if name.startswith("gpudirect_rdma."):
            status, found = asked(
                name,
                {},
                COPY,
                gpudirect="running|6.1\n",
                gdrcopy="",
                gdrcopy_packages="",
                gdrcopy_index="",
                contents=contents_host.nothing(),
                receipt="",
            )
            assert status != "error"
            assert found, check.id


EFA = Rdma(fabric="efa")
ALLOWED: dict[str, Output | str] = {
    "modprobe_config": "options nvidia NVreg_GrdmaPciTopoCheckOverride=1\n",
    "driver_parameters": "GrdmaPciTopoCheckOverride: 1\n",
}


@pytest.mark.parametrize(
    ("version", "status", "found"),
    [
        ("580.95.05", "fail", "580.95.05 is loaded: the oldest driver that does is 580.126.20"),
        ("580.173.02", "pass", "=1"),
    ],
)
def test_the_loaded_driver_is_one_that_does_on_the_platform(version: str, status: str, found: str) -> None:
    host = HostSpec(name="p6e", gpu=GpuSpec(model="GB200"), capabilities={"rdma": EFA})
    outputs = {**GOOD, **ALLOWED, "loaded_driver": captured("loaded_driver", "open").text.replace("565.57.01", version)}
    outcome = _run(host, GpudirectRdma(topology_check="allow"), outputs)
    assert outcome.status == status
    assert found in outcome.found


IN_THE_WAY = "ACS is on in 0000:17:00.0"
TRANSLATES = "the IOMMU translates for 0000:19:00.0 0000:18:00.0 (DMA-FQ)"


@pytest.mark.parametrize(
    ("blocks", "changed", "found"),
    [
        ({"rdma": Rdma()}, {}, (IN_THE_WAY, TRANSLATES, "see pcie.acs and pcie.iommu")),
        ({"rdma": Rdma(), "pcie": Pcie(acs="disabled")}, {}, (TRANSLATES,)),
        ({"rdma": Rdma(), "pcie": Pcie(iommu="passthrough")}, {}, (IN_THE_WAY,)),
        ({"rdma": Rdma(), "pcie": Pcie(acs="disabled", iommu="passthrough")}, {}, ()),
        ({"rdma": Rdma()}, {"machine": "kind|kvm\n"}, ()),
        ({"rdma": Rdma()}, PODMAN, ()),
        ({"rdma": EFA}, {}, ()),
        ({"rdma": Rdma()}, {"pcie": pcie_host.said()}, ()),
    ],
)
def test_acs_and_iommu_on_bare_metal_are_told(
    blocks: dict[str, Fragment], changed: dict[str, str], found: tuple[str, ...]
) -> None:
    """By the rules of `pcie`, and no failure: the spec does not say what they are to be."""
    outputs = {**GOOD, "pcie": pcie_host.said(acs=pcie_host.ON, domain="DMA-FQ"), **changed}
    outcome = _run(HostSpec(name="h", capabilities=blocks), GpudirectRdma(), outputs)
    assert outcome.status == "pass"
    assert ("told:" in outcome.found) == bool(found)
    assert all(words in outcome.found for words in found), outcome.found


def _run(host: HostSpec, block: GpudirectRdma, outputs: Mapping[str, Output | str]) -> Outcome:
    read = Facts({name: text if isinstance(text, Output) else Output(text) for name, text in outputs.items()})
    return CHECKS[TOPOLOGY].run(Context(host, block, read))
