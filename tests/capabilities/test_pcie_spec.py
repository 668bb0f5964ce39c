"""pcie, known offline: what a spec must not say, the kernel parameters of a mode, export."""

from __future__ import annotations

import pytest

from gpuprov.capabilities import pcie
from gpuprov.capabilities.pcie.fragment import Pcie
from gpuprov.catalog import pcie as catalogue
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import GpuSpec, HostSpec
from tests.capabilities.asking import facts
from tests.capabilities.pcie_host import ON, RDMA, said

ALL = ("acs disabled", "max_read_request 512", "gpu_max_read_request 512", "relaxed_ordering enabled", "affinity local")

EVERY = Pcie(
    acs="disabled", max_read_request=512, gpu_max_read_request=512, relaxed_ordering="enabled", affinity="local"
)


def told(block: Pcie, gpu: str = "H100-SXM5-80GB") -> list[str]:
    host = HostSpec(name="h", gpu=GpuSpec(model=gpu), capabilities={"pcie": block})
    return [str(problem) for problem in pcie.rules(host, block)]


@pytest.mark.parametrize(
    ("block", "gpu", "said_"),
    [
        (Pcie(acs="disabled", max_read_request=4096), "H100-SXM5-80GB", ""),
        (Pcie(max_read_request=3000), "H100-SXM5-80GB", "pcie.max_read_request is 3000; allowed: 128, 256, 512"),
        (Pcie(gpu_max_read_request=64), "H100-SXM5-80GB", "pcie.gpu_max_read_request is 64"),
        (Pcie(iommu="disabled", cpu="arm"), "H100-SXM5-80GB", "no kernel parameter switches the IOMMU of an Arm"),
        (Pcie(iommu="disabled"), "NVIDIA GB200", "no kernel parameter"),
        (Pcie(iommu="disabled"), "H100-SXM5-80GB", ""),
        (Pcie(acs="disabled"), "GB300", "each port needs a mask of its own; acs: rdma_topo"),
        (Pcie(acs="rdma_topo"), "GB300", ""),
        (Pcie(acs="rdma_topo", iommu="disabled"), "B300", "only with an IOMMU"),
        (Pcie(), "H100-SXM5-80GB", "warning: pcie asks for nothing"),
    ],
)
def test_rules(block: Pcie, gpu: str, said_: str) -> None:
    found = told(block, gpu)
    assert [one for one in found if said_ in one] == found
    assert len(found) == bool(said_)


@pytest.mark.parametrize(
    ("block", "gpu", "words"),
    [
        (Pcie(iommu="passthrough"), "", {"intel_iommu": "on", "iommu": "pt"}),
        (Pcie(iommu="passthrough", cpu="amd"), "", {"iommu": "pt"}),
        (Pcie(iommu="passthrough"), "GH200-96GB", {"iommu.passthrough": "1"}),
        (Pcie(iommu="strict", cpu="intel"), "GH200-96GB", {"intel_iommu": "on", "iommu": "nopt", "iommu.strict": "1"}),
        (Pcie(iommu="disabled"), "", {"intel_iommu": "off", "amd_iommu": "off"}),
        (Pcie(acs="disabled"), "", None),
    ],
)
def test_what_is_asked_of_the_kernel(block: Pcie, gpu: str, words: dict[str, str] | None) -> None:
    host = HostSpec(name="h", gpu=GpuSpec(model=gpu) if gpu else None)
    assert pcie.contribute(host, block) == (Kernel(command_line=words) if words else None)


@pytest.mark.parametrize(
    ("text", "block"),
    [
        (said(), None),
        (said(config=ALL, unit=("loaded", "inactive", "disabled")), None),
        (said(config=ALL), EVERY),
        (said(config=("acs disabled", "max_read_request 4096"), acs=ON), None),
        (said(config=("acs disabled", "max_read_request 4096"), acs=ON, request=0x5910), Pcie(max_read_request=4096)),
        (said(config=("max_read_request many", "odd")), None),
    ],
)  # fmt: skip
def test_export(text: str, block: Pcie | None) -> None:
    assert pcie.export(facts(pcie=text, rdma_devices=RDMA)) == block


def test_registers_have_the_names_that_lspci_gives_them() -> None:
    assert catalogue.format_acs(0x1D) == "SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+"
    assert catalogue.format_acs(0) == ""
    assert catalogue.find_excluded_processor("8086:2f0e") == "Intel Haswell Xeon"
    assert catalogue.find_excluded_processor("8086:6f0f") == ""
    assert catalogue.find_excluded_processor("8086:{{ x }}") == ""
