"""gpudirect_rdma, known offline: warnings of the spec, what is asked of the kernel, a host's reality as a spec."""

from __future__ import annotations

from gpuprov.capabilities import gpudirect_rdma
from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.capabilities.gpudirect_rdma.fragment import OVERRIDES, Gdrcopy, GpudirectRdma
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.pcie.fragment import Pcie
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.vgpu_guest.fragment import VgpuGuest
from gpuprov.catalog import gpus
from gpuprov.catalog.rdma import gpudirect as catalogue
from gpuprov.facts.probes.rdma import gpudirect as probe
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities import gpudirect_host as gh
from tests.capabilities.asking import BARE, GOOD, facts
from tests.rows import run_each

OFED, INBOX, ERDMA = Rdma(stack="doca-ofed"), Rdma(), Rdma(fabric="erdma")
PEER, OLD = GpudirectRdma(method="nvidia_peermem"), GpudirectRdma(method="nv_peer_mem")
OPEN, CLOSED = NvidiaDriver(kernel_modules="open"), NvidiaDriver(kernel_modules="proprietary")
AUTO = "gpudirect_rdma.method auto is nvidia_peermem here: "
STACK = "gpudirect_rdma: nvidia_peermem needs "
BARE_METAL = (
    "on bare metal, PCIe ACS and an IOMMU that translates are in its way, and no pcie block says what they are to be;"
)


@run_each(
    ("block", "gpu", "others", "told"),
    [
        (GpudirectRdma(), "", {"rdma": INBOX}, []),
        (GpudirectRdma(), "H100-SXM5-80GB",
            {"rdma": INBOX, "nvidia_driver": NvidiaDriver(version="580"), "pcie": Pcie()}, []),
        (GpudirectRdma(), "H100-SXM5-80GB", {"rdma": INBOX},
            [f"{BARE_METAL} pcie: {{acs: disabled, iommu: passthrough}}"]),
        (GpudirectRdma(), "H100-SXM5-80GB", {"rdma": Rdma(fabric="roce")}, [BARE_METAL]),
        (GpudirectRdma(), "H100-SXM5-80GB", {"rdma": Rdma(fabric="efa")}, []),
        (GpudirectRdma(), "H100-SXM5-80GB", {"rdma": INBOX, "vgpu_guest": VgpuGuest()}, []),
        (GpudirectRdma(), "H100-PCIe", {"rdma": INBOX}, []),
        (GpudirectRdma(topology_check="allow"), "GB200", {"rdma": INBOX}, [f"{BARE_METAL} pcie: {{acs: rdma_topo"]),
        (GpudirectRdma(), "GB300", {"rdma": INBOX, "pcie": Pcie(acs="rdma_topo")},
            ["topology_check is driver, and for GB300 with infiniband"]),
        (GpudirectRdma(), "GB200", {"rdma": INBOX, "pcie": Pcie(), "nvidia_driver": NvidiaDriver(version="595")}, []),
        (GpudirectRdma(), "", {}, ["gpudirect_rdma without rdma: nothing says which devices"]),
        (GpudirectRdma(), "V100-SXM2", {"rdma": OFED, "pcie": Pcie()},
            [f"{AUTO}V100-SXM2 (Volta) has no open kernel modules"]),
        (GpudirectRdma(), "", {"rdma": OFED, "nvidia_driver": CLOSED}, [f"{AUTO}dma-buf needs open kernel modules"]),
        (GpudirectRdma(), "T4", {"rdma": INBOX, "nvidia_driver": NvidiaDriver(version="535")},
            [f"{AUTO}dma-buf needs open",
            f"{STACK}DOCA-OFED, or a kernel that has peer memory, and rdma.stack is inbox"]),
        (PEER, "", {"rdma": OFED}, []),
        (PEER, "", {"rdma": ERDMA},
            [f"{STACK}OFED's headers when Alibaba's driver is built, and rdma.stack is erdma-vendor"]),
        (PEER, "", {"rdma": OFED, "nvidia_driver": NvidiaDriver(build_host="builder")},
            ["nvidia_peermem comes from builder, and works only if OFED is there before"]),
        (OLD, "", {"rdma": OFED, "nvidia_driver": CLOSED}, ["nv_peer_mem is deprecated since CUDA 11.5"]),
        (GpudirectRdma(), "",
            {"rdma": INBOX, "nvidia_driver": OPEN, "cuda_toolkit": CudaToolkit(versions=("11.4", "12.4"))},
            ["dma-buf is known to CUDA 11.7 and newer, and cuda_toolkit.versions has 11.4;"]),
    ],
)  # fmt: skip
def test_warnings(block: GpudirectRdma, gpu: str, others: dict[str, Fragment], told: list[str]) -> None:
    host = HostSpec(name="h", gpu=GpuSpec(model=gpu) if gpu else None, capabilities={**others, "gpudirect_rdma": block})
    found = [str(problem) for problem in gpudirect_rdma.CAPABILITY.rules(host, block)]
    assert all(problem.startswith("warning: ") for problem in found), found
    assert len(found) == len(told), found
    for want, got in zip(told, found, strict=True):
        assert want in got


@run_each("block", [GpudirectRdma(), GpudirectRdma(method="dmabuf"), PEER, OLD])
@run_each("gpu", ["GB10", "RTX3090", "RTX4090", "RTX5090", "NVIDIA GeForce RTX 4090"])
def test_gpus_without_it_are_refused(gpu: str, block: GpudirectRdma) -> None:
    """NVIDIA says so of the DGX Spark, and has it for Tesla-class and Quadro-class GPUs."""
    host = HostSpec(
        name="h", gpu=GpuSpec(model=gpu), capabilities={"rdma": Rdma(fabric="roce"), "gpudirect_rdma": block}
    )
    told = [str(one) for one in gpudirect_rdma.CAPABILITY.rules(host, block) if one.severity == "error"]
    assert len(told) == 1
    assert "has no GPUDirect RDMA: " in told[0]
    assert "; take gpudirect_rdma out" in told[0]


def test_gpus_with_it_are_not_refused() -> None:
    known = gpus.list_gpus()
    without = {gpu.key for gpu in known if catalogue.find_excluded(gpu)}
    assert without == {"GB10", *(gpu.key for gpu in known if "GeForce" in gpu.name)}
    assert not without & {"RTX-A6000", "RTX-PRO-6000-BLACKWELL-SERVER", "L40S", "GB200", "QUADRO-RTX-6000", "T4"}


EFA = {"rdma": Rdma(fabric="efa")}
ALLOW, DENY = (GpudirectRdma(topology_check=word) for word in ("allow", "deny"))


@run_each(
    ("block", "gpu", "version", "path", "words"),
    [
        (GpudirectRdma(), "GB200", "580", "topology_check",
            "NCCL silently falls back to sockets; topology_check: allow"),
        (GpudirectRdma(), "GB300", "any", "topology_check", "is driver, and for GB300 with efa"),
        (DENY, "GB200", "580.126.20", "topology_check", "is deny"),
        (ALLOW, "GB200", "580.105.08", "version",
            "is 580.105.08, and for GB200 with efa the oldest driver that does is 580.126.20"),
        (ALLOW, "GB300", "570", "version", "on and before 595"),
        (GpudirectRdma(), "GB300", "595.91.07", "version", "from 595 on have no NVreg_GrdmaPciTopoCheckOverride"),
        (ALLOW, "GB200", "580", "", ""),
        (ALLOW, "GB200", "580.126.20", "", ""),
        (ALLOW, "GB300", "590", "", ""),
        (GpudirectRdma(), "B300", "580", "", ""),
        (GpudirectRdma(), "H100-SXM5-80GB", "570", "", ""),
    ],
)  # fmt: skip
def test_what_a_platform_needs(block: GpudirectRdma, gpu: str, version: str, path: str, words: str) -> None:
    """Of GB200 and GB300 with EFA NVIDIA's recipes know which driver does, and with which option."""
    host = HostSpec(
        name="h", gpu=GpuSpec(model=gpu), capabilities={**EFA, "nvidia_driver": NvidiaDriver(version=version)}
    )
    found = [one for one in gpudirect_rdma.CAPABILITY.rules(host, block) if one.severity == "error"]
    assert [str(one.path[-1]) for one in found] == [path] * bool(path)
    assert not words or words in str(found[0])


@run_each("version", ["595", "595.91.07", "610.43.03"])
def test_an_option_that_newer_drivers_have_no_more_is_refused(version: str) -> None:
    host = HostSpec(name="h", capabilities={"rdma": INBOX, "nvidia_driver": NvidiaDriver(version=version)})
    (problem,) = (one for one in gpudirect_rdma.CAPABILITY.rules(host, ALLOW) if one.severity == "error")
    assert "drivers from 595 on have no NVreg_GrdmaPciTopoCheckOverride any more; a driver before 595" in str(problem)


@run_each(
    ("block", "module", "options"),
    [
        (GpudirectRdma(method="nvidia_peermem", peerdirect_support=1), "nvidia-current-peermem",
            {"peerdirect_support": 1}),
        (GpudirectRdma(persistent_api_support=0), "nvidia-peermem", {"persistent_api_support": 0}),
        (GpudirectRdma(method="dmabuf", topology_check="allow"), "nvidia", {"NVreg_GrdmaPciTopoCheckOverride": 1}),
        (GpudirectRdma(method="dmabuf", topology_check="deny"), "nvidia-current-open",
            {"NVreg_GrdmaPciTopoCheckOverride": 2}),
    ],
)  # fmt: skip
def test_what_is_asked_of_the_kernel(block: GpudirectRdma, module: str, options: object) -> None:
    asked = gpudirect_rdma.CAPABILITY.contribute(HostSpec(name="h"), block)
    assert asked is not None
    assert (asked.blacklist, asked.module_options.get(module, {}), asked.modules_load) == ((), options, ())
    assert gpudirect_rdma.CAPABILITY.contribute(HostSpec(name="h"), GpudirectRdma(method="dmabuf")) is None


@run_each(
    ("changed", "found"),
    [
        ({}, PEER),
        ({"gpudirect": gh.said(values={"peerdirect_support": "1", "persistent_api_support": "1"})},
            GpudirectRdma(method="nvidia_peermem", peerdirect_support=1)),
        ({"gpudirect": gh.said(starts="nv_peer_mem", loaded=("nvidia", "ib_core", "nv_peer_mem"))}, OLD),
        ({"gpudirect": gh.DMABUF}, GpudirectRdma(method="dmabuf")),
        ({"gpudirect": gh.DMABUF, "driver_parameters": "GrdmaPciTopoCheckOverride: 1\n"},
            GpudirectRdma(method="dmabuf", topology_check="allow")),
        ({"gpudirect": gh.DMABUF, "gdrcopy_packages": gh.INSTALLED},
            GpudirectRdma(method="dmabuf", gdrcopy=Gdrcopy(install=True))),
        ({"gpudirect": gh.DMABUF, "rdma_devices": ""}, None),
        ({"gpudirect": gh.DMABUF, "nvidia_functions": "000f:01:00.0 0x10de 0x2e12 0x10de 0x21ec 0x030000 nvidia\n"},
            None),
        ({"gpudirect": gh.said(unit=gh.NONE, starts="")}, None),
        ({"gpudirect": BARE["gpudirect"]}, None),
    ],
)  # fmt: skip
def test_export(changed: dict[str, str], found: GpudirectRdma | None) -> None:
    names = {one.name for one in gpudirect_rdma.CAPABILITY.export_probes}
    texts = {name: text for name, text in {**GOOD, **changed}.items() if name in names}
    assert gpudirect_rdma.CAPABILITY.export(facts(**texts)) == found


def test_one_name_in_catalogue_and_probe() -> None:
    assert catalogue.UNIT_FILE in probe.GPUDIRECT.script


def test_the_catalogue() -> None:
    data = catalogue.read_gpudirect_file()
    assert {one.key for one in data.methods} == {"dmabuf", "nvidia_peermem", "nv_peer_mem"}
    for module in catalogue.get_method("nvidia_peermem").modules:
        assert module in probe.GPUDIRECT.script
    tables = (data.methods, data.parameters, data.platforms, data.excluded, data.kernel_options, data.messages)
    used = {source for table in (*tables, data.gdrcopy, data.facts) for one in table for source in one.source}
    assert used | set(data.bad_context.source) == set(data.sources)
    assert set(OVERRIDES.values()) == {0, 1, 2}
    assert catalogue.find_gdrcopy("suse") is None


@run_each(
    ("log", "key"),
    [
        ((), None),
        (("usb 1-1: new device",), None),
        (("nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -2)",), "symbol"),
        (("nvidia_peermem: Unknown symbol ib_unregister_peer_memory_client (err -22)",), "version"),
        (("nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -2)",
            "nvidia-peermem f:1 ERROR invalid persistent_api_support param value 9"), "parameter"),
    ],
)  # fmt: skip
def test_the_last_word_of_the_kernel_decides(log: tuple[str, ...], key: str | None) -> None:
    said = catalogue.find_message(log)
    assert (said.key if said else None) == key


def test_efa_has_no_part_in_peer_memory() -> None:
    host = HostSpec(name="h", capabilities={"rdma": Rdma(fabric="efa"), "gpudirect_rdma": PEER})
    (problem,) = gpudirect_rdma.CAPABILITY.rules(host, PEER)
    assert problem.severity == "error"
    assert problem.message.startswith("gpudirect_rdma.method nvidia_peermem: EFA has no part in peer memory")
    assert "rdma.efa.gpudirect: true" in problem.fix
