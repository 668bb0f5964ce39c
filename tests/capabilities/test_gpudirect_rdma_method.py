"""`gpudirect_rdma`: which method a host gets, and why."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.gpudirect_rdma.decision import ground
from gpuprov.capabilities.gpudirect_rdma.fragment import GpudirectRdma
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.spec.model import HostSpec
from tests.capabilities import gpudirect_host as gh
from tests.capabilities.asking import PODMAN, Row, facts, judge
from tests.capabilities.gpudirect_host import DMABUF, OPEN, kernel, peer, said

METHOD = "gpudirect_rdma.method"
ON = {"gpudirect": DMABUF}
DMABUF_ASKED, PEER, OLD = (GpudirectRdma(method=name) for name in ("dmabuf", "nvidia_peermem", "nv_peer_mem"))
GEFORCE = "0000:19:00.0 0x10de 0x2684 0x10de 0x16f3 0x030000 nvidia\n"
SPARK = "000f:01:00.0 0x10de 0x2e12 0x10de 0x21ec 0x030000 nvidia\n"
A100 = "0000:1a:00.0 0x10de 0x20b2 0x10de 0x1463 0x030200 nvidia\n"
UNKNOWN = "0000:1a:00.0 0x10de 0xffff 0x10de 0x1463 0x030200 nvidia\n"
VOLTA = {"nvidia_functions": "0000:19:00.0 0x10de 0x1db1 0x10de 0x1212 0x030200 nvidia\n"}


ROWS = [
    Row(
        "auto, proprietary modules",
        METHOD,
        None,
        {},
        "pass",
        "nvidia_peermem: dma-buf needs open kernel modules",
        change="setting gpudirect_rdma.method: auto -> nvidia_peermem, since dma-buf needs open kernel modules, and the host has, "
        "or gets, proprietary ones",
    ),
    Row("auto, open modules", METHOD, None, ON, "pass",
        "NVIDIA recommends: H100-SXM5-80GB (Hopper), open kernel modules, driver 535, kernel 6.1.0"),
    Row("auto, Volta", METHOD, None, {**ON, **VOLTA, **peer(kernel(license_=gh.OWN))}, "pass",
        "nvidia_peermem: V100-SXM2 (Volta) has no open kernel modules"),
    Row("auto, a GeForce", METHOD, None, {**ON, "nvidia_functions": GEFORCE}, "fail", "RTX4090 has no GPUDirect RDMA",
        "take gpudirect_rdma out"),
    Row("auto, a DGX Spark", "gpudirect_rdma.dmabuf", None, {**ON, "nvidia_functions": SPARK}, "fail",
        "GB10 has no GPUDirect RDMA", "take gpudirect_rdma out; programs register memory of cudaHostAlloc"),
    Row("peermem, a GeForce", METHOD, PEER, {**ON, "nvidia_functions": GEFORCE}, "fail",
        "RTX4090 has no GPUDirect RDMA"),
    Row("auto, a GeForce beside an A100", METHOD, None, {**ON, "nvidia_functions": GEFORCE + A100}, "pass", "dmabuf"),
    Row("auto, a GeForce beside an unknown GPU", METHOD, None, {**ON, "nvidia_functions": GEFORCE + UNKNOWN}, "pass",
        "dmabuf"),
    Row("auto, an old kernel", METHOD, None, peer(kernel("4.18.0-513.el8.x86_64", license_=OPEN)), "pass",
        "nvidia_peermem: kernel 4.18.0-513.el8.x86_64 is older than 5.12"),
    Row("auto, an old driver", METHOD, None, peer(kernel(nvidia="510.108.03")), "pass",
        "nvidia_peermem: driver 510 is older than 515"),
    Row("auto, neither", METHOD, None, peer(kernel(symvers="", exports="no", symbols="no")), "fail",
        "no ib_core with peer memory", "rdma: {stack: doca-ofed}"),
    Row("auto, no modules yet", METHOD, None, peer(kernel(nvidia="", module="", symvers="", exports="no")), "skip",
        "the host's kernel modules decide"),
    Row("auto in a container", METHOD, None, {**ON, **PODMAN}, "pass",
        "a podman container has the modules of its machine"),
    Row("auto in a virtual machine", METHOD, None, {**ON, "machine": "kind|kvm\nvendor|QEMU\nflag|1\n"}, "pass",
        "one PCIe root complex, with ACS and ATS"),
    Row("dmabuf, proprietary modules", METHOD, DMABUF_ASKED, {}, "fail", "proprietary", "kernel_modules: open"),
    Row("dmabuf, Volta", METHOD, DMABUF_ASKED, {**ON, **VOLTA}, "fail", "(Volta) has no open kernel modules",
        "method nvidia_peermem"),
    Row("dmabuf, an old kernel", METHOD, DMABUF_ASKED, peer(kernel("5.10.0-30-amd64", license_=OPEN)), "fail",
        "kernel 5.10.0-30-amd64 is older than 5.12"),
    Row("dmabuf, one of two kernels old", METHOD, DMABUF_ASKED,
        peer(kernel("5.10.0-30-amd64", license_=OPEN), kernel(license_=OPEN)), "fail", "5.10.0-30-amd64 is older"),
    Row("dmabuf, a kernel without", METHOD, DMABUF_ASKED,
        peer(kernel(license_=OPEN, options=("CONFIG_PCI_P2PDMA",)), ofed=""), "fail",
        "has no CONFIG_DMA_SHARED_BUFFER; kernel", "another kernel"),
    Row("OFED has its own configuration", METHOD, DMABUF_ASKED, peer(kernel(license_=OPEN, options=gh.OPTIONS[:1])),
        "pass", "dmabuf: the spec asks for it"),
    Row("peermem, inbox", METHOD, PEER, ON, "fail", "which is OFED's, for kernel 6.1.0-47-amd64",
        "rdma: {stack: doca-ofed}; or method dmabuf"),
    Row("peermem, a kernel that has it", METHOD, PEER,
        peer(kernel(symvers="/lib/modules/{}/build/Module.symvers", core="(builtin)"), ofed=""), "pass",
        "nvidia_peermem: the spec asks for it"),
    Row("nv_peer_mem, open modules", METHOD, OLD, {"gpudirect": said(kernel(license_=OPEN))}, "fail",
        "before open kernel modules", "method nvidia_peermem"),
]  # fmt: skip


def test_a_driver_of_any_version_keeps_the_flavour_that_is_there() -> None:
    """L40S take both; what a spec without a version leads to for branch 535 is proprietary, and this host has open
    ones."""
    l40s = {"nvidia_functions": "0000:19:00.0 0x10de 0x26b9 0x10de 0x1851 0x030200 nvidia\n"}
    host = HostSpec(name="gpu1", capabilities={"nvidia_driver": NvidiaDriver()})
    assert ground(host, facts(**l40s, gpudirect=said(kernel(license_=OPEN)))).flavour == "open"
    assert ground(host, facts(**l40s, gpudirect=said(kernel()))).flavour == "proprietary"


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_method(row: Row) -> None:
    judge(row)
