"""gpudirect_rdma: which method a host has and why, dma-buf, what is left of another method, the check of the PCI
topology, the peer module as it is loaded."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gpuprov.capabilities.base import Context, Outcome
from gpuprov.capabilities.gpudirect_rdma.desired import FORERUNNER
from gpuprov.capabilities.gpudirect_rdma.fragment import Gdrcopy, GpudirectRdma
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.pcie.fragment import Pcie
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog.rdma.gpudirect import DROP_IN, UNIT, UNIT_FILE
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities import contents_host, contexts, pcie_host
from tests.capabilities import gpudirect_host as gh
from tests.capabilities.asking import CHECKS, GOOD, PODMAN, Row, judge
from tests.capabilities.contents_host import Also, unit
from tests.capabilities.gpudirect_host import DMABUF, NEXT, NONE, OPEN, kernel, peer, said
from tests.facts.probes import captured
from tests.rows import run_each

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


def asked(
    check: str, blocks: dict[str, Fragment], block: GpudirectRdma | None = None, **changed: str
) -> tuple[str, str]:
    host = contexts.spec(blocks, gpudirect_rdma=block or GpudirectRdma())
    outcome = contexts.answer(check, host, changed)
    return outcome.status, outcome.found


@run_each(
    ("blocks", "text", "told"),
    [
        ({"nvidia_driver": NvidiaDriver(kernel_modules="open")}, said(), "dmabuf: dma-buf is supported"),
        ({"nvidia_driver": NvidiaDriver(version="580")}, said(), "dmabuf: dma-buf is supported"),
        ({"nvidia_driver": NvidiaDriver(version="535")}, DMABUF, "nvidia_peermem: dma-buf needs open"),
        ({"nvidia_driver": NvidiaDriver(kernel_modules="proprietary"), "rdma": Rdma(stack="doca-ofed")}, DMABUF,
         "nvidia_peermem"),
        ({"rdma": Rdma(stack="doca-ofed")}, said(kernel(symvers="", exports="no", symbols="no")),
         "nvidia_peermem: dma-buf"),
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


@run_each(
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


@run_each(
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
    assert ("noted:" in outcome.found) == bool(found)
    assert all(words in outcome.found for words in found), outcome.found


def _run(host: HostSpec, block: GpudirectRdma, outputs: Mapping[str, Output | str]) -> Outcome:
    read = Facts({name: text if isinstance(text, Output) else Output(text) for name, text in outputs.items()})
    return CHECKS[TOPOLOGY].run(Context(host, block, read))


PARAMETERS = "gpudirect_rdma.parameters"
FILES, ENABLED, ACTIVE = (f"gpudirect_rdma.{name}" for name in ("files", "enabled", "active"))
LOG = "gpudirect_rdma.log"
COPIES = "gdrdrv.service"
LEGACY = GpudirectRdma(method="nvidia_peermem", peerdirect_support=1)
LOADED = [
    Row("as the module has them", PARAMETERS, None, {}, "pass", "peerdirect_support=0 persistent_api_support=1"),
    Row("a parameter for old OFED", PARAMETERS, LEGACY, {}, "fail", "modprobe says peerdirect_support=0",
        "gpuprov apply",
        change="setting nvidia_peermem: peerdirect_support=0 -> peerdirect_support=1 persistent_api_support=1"),
    Row("configured and not loaded", PARAMETERS, LEGACY,
        {"modprobe_config": "options nvidia-peermem peerdirect_support=1\n"}, "fail",
        "loaded with peerdirect_support=0"),
    Row("configured and loaded", PARAMETERS, LEGACY,
        {"modprobe_config": "options nvidia-peermem peerdirect_support=1\n", **peer(values={"peerdirect_support": "1",
        "persistent_api_support": "1"})}, "pass"),
    Row("a value that keeps it out", PARAMETERS, None,
        {"modprobe_config": "options nvidia_peermem peerdirect_support=2\n"}, "fail",
        "peerdirect_support=2: the module answers Invalid argument", "grep -r peerdirect_support"),
    Row("Debian's own name", PARAMETERS, None,
        {"modprobe_config": "options nvidia-current-peermem persistent_api_support=7\n"}, "fail",
        "persistent_api_support=7"),
    Row("an older module", PARAMETERS, GpudirectRdma(method="nvidia_peermem", persistent_api_support=0),
        {"modprobe_config": "options nvidia_peermem persistent_api_support=0\n",
        **peer(kernel(parameters="peerdirect_support "))}, "fail", "has no persistent_api_support", "from 560 on"),
    Row("no parameters", PARAMETERS, None, ON, "n/a", "the method is dmabuf"),
    Row("nv_peer_mem's", PARAMETERS, OLD, {}, "pass", "none of nvidia_peermem's"),
    Row("its unit at boot", ENABLED, None, {}, "pass", f"{UNIT} enabled"),
    Row("whole, with openibd's drop-in", FILES, None, {}, "pass", "2 files as written by gpuprov"),
    Row("without openibd", FILES, None, peer(openibd=NONE), "pass", "1 file as written by gpuprov"),
    Row("no unit", ENABLED, None, {"contents": unit(UNIT, "inactive", "")}, "fail", "is not-found", "gpuprov apply"),
    Row("a unit of the other", FILES, None, {"contents": Also(f"sum|0  {UNIT_FILE}\n")}, "fail",
        f"{UNIT_FILE}: another text"),
    Row("switched off", ENABLED, None, {"contents": unit(UNIT, "active", "disabled")}, "fail", "is disabled",
        "systemctl enable"),
    Row("nothing at boot for dma-buf", ENABLED, None, ON, "n/a", "no unit"),
    Row("a unit left behind", ENABLED, None, {**ON, "contents": unit(UNIT, "active", "enabled")}, "fail",
        f"{UNIT} is enabled", f"systemctl disable --now {UNIT}"),
    Row("a drop-in left behind", FILES, None, {**ON, "contents": Also(f"entry|f|644|0|0|{DROP_IN}\n")}, "fail",
        f"{DROP_IN}: there"),
    Row("the forerunner's service", ENABLED, None, {"contents": unit(FORERUNNER, "inactive", "enabled")}, "fail",
        f"{FORERUNNER} is enabled", f"systemctl disable --now {FORERUNNER}"),
    Row("it runs", ACTIVE, None, {"contents": unit(FORERUNNER, "active", "disabled")}, "fail", "is active",
        "systemctl stop"),
    Row("switched off", ACTIVE, None, {"contents": unit(FORERUNNER, "inactive", "disabled")}, "n/a", "no unit"),
    Row("it is the method", ENABLED, OLD, peer(kernel(module="nv_peer_mem")), "pass", f"{UNIT} enabled"),
    Row("gdrcopy at boot", ENABLED, COPY, {}, "pass", "gdrdrv.service enabled"),
    Row("gdrcopy's service is off", ENABLED, COPY, {"contents": unit(COPIES, "inactive", "disabled")}, "fail",
        "is disabled"),
    Row("no service of gdrcopy", ENABLED, COPY, {"contents": unit(COPIES, "inactive", "")}, "fail",
        f"{COPIES} is not-found"),
    Row("a quiet log", LOG, None, {}, "pass", "no lost context"),
    Row("a lost context", LOG, None, peer(log=(gh.LOG,)), "fail", "detected invalid context",
        "restart what was using RDMA"),
    Row("the machine's log", LOG, None, {**PODMAN, **peer(log=(gh.LOG,))}, "skip", "the machine's"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=f"{row.check}-{row.name}") for row in (*ROWS, *LOADED)])
def test_gpudirect(row: Row) -> None:
    judge(row)
