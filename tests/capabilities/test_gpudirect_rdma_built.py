"""gpudirect_rdma: what the peer modules were built against, why one of them is not loaded, gdrcopy, and the method that
a spec gets."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.gpudirect_rdma.decision import ground
from gpuprov.capabilities.gpudirect_rdma.fragment import Gdrcopy, GpudirectRdma
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.spec.model import HostSpec
from tests.capabilities import gpudirect_host as gh
from tests.capabilities.asking import NO_GPU, PODMAN, Row, facts, judge
from tests.capabilities.gpudirect_host import DMABUF, NEXT, OPEN, kernel, peer, said
from tests.rows import run_each

BUILT = "gpudirect_rdma.built"
LOADED = "gpudirect_rdma.loaded"
ON = {"gpudirect": DMABUF}
PEER, OLD = (GpudirectRdma(method=name) for name in ("nvidia_peermem", "nv_peer_mem"))
WITHOUT = kernel(symbols="no", rebuild="it was built before OFED, without peer memory")
BAD = ("nvidia", "ib_core")

ROWS = [
    Row("built after OFED", BUILT, None, {}, "pass", "nvidia_peermem for 6.1.0-47-amd64"),
    Row("not needed", BUILT, None, ON, "n/a", "the method is dmabuf"),
    Row(
        "built before OFED",
        BUILT,
        None,
        peer(WITHOUT),
        "fail",
        "it was built before OFED, without peer memory",
        "builds it again, by DKMS",
        change="module nvidia_peermem for 6.1.0-47-amd64: it was built before OFED, without peer memory -> built again",
    ),
    Row("built before, ready-made", BUILT, None,
        peer(kernel(symbols="no", rebuild="it was built before OFED", dkms="")), "fail", "before OFED", "build: dkms"),
    Row("no OFED headers", BUILT, PEER, peer(kernel(symbols="no", symvers="")), "fail", "no OFED headers", "doca-ofed"),
    Row("only the next kernel", BUILT, None,
        peer(kernel(), kernel(NEXT, symbols="no", rebuild="it was built before OFED")), "fail", f"{NEXT}: /lib"),
    Row("another OFED", BUILT, None, peer(kernel(rebuild="it was built against another OFED")), "fail",
        "against another OFED", "again, by DKMS"),
    Row("OFED not for the next kernel", BUILT, None,
        peer(kernel(), kernel(NEXT, exports="no", core="/lib/modules/{}/kernel/drivers/infiniband/core/ib_core.ko")),
        "fail", "ib_core.ko has no peer memory", "dkms status mlnx-ofed-kernel"),
    Row("no RDMA for the next kernel", BUILT, None, peer(kernel(), kernel(NEXT, exports="no", core="")), "fail",
        "no ib_core at all has no peer memory"),
    Row("headers alone", BUILT, None, {"gpudirect": gh.said(kernel(bootable=False, exports="no", core=""))}, "pass"),
    Row("cannot be looked into", BUILT, None, peer(kernel(symbols="unknown")), "fail", "cannot be looked into", "zstd"),
    Row("no module", BUILT, PEER, peer(kernel(module="")), "fail", "no nvidia-peermem", "from 470 on"),
    Row("nv_peer_mem is not there", BUILT, OLD, {}, "fail", "no nv_peer_mem",
        "install nvidia-peer-memory-dkms yourself"),
    Row("no kernel", BUILT, PEER, {"gpudirect": "running|6.1.0\n"}, "fail", "no kernel with headers"),
    Row("loaded", LOADED, None, {}, "pass", "ib_core used by it"),
    Row("loaded in a container", LOADED, None, PODMAN, "skip", "podman container"),
    Row("not needed now", LOADED, None, ON, "n/a", "the method is dmabuf"),
    Row("loads never", LOADED, None, peer(WITHOUT, loaded=BAD), "fail",
        "without peer memory: modprobe answers Invalid argument", "by DKMS",
        change="module nvidia_peermem:  -> loaded"),
    Row("a bad parameter", LOADED, None, peer(loaded=BAD,
        log=("nvidia-peermem nv_mem_param_peerdirect_conf_check:620 ERROR invalid peerdirect_support param value 2",
        )), "fail", "a value that the module does not know", "/etc/modprobe.d: 0 and 1"),
    Row("Unknown symbol", LOADED, None, peer(loaded=BAD, exported=False,
        log=("nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -2)",)), "fail",
        "the ib_core that is loaded has no peer memory", "restart openibd"),
    Row("another version", LOADED, None, peer(loaded=BAD,
        log=("nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client",
        "nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -22)")), "fail",
        "another OFED than the one that is loaded", "by DKMS"),
    Row("a client refused", LOADED, None, peer(loaded=BAD,
        log=("nvidia-peermem nv_mem_client_init:1 ERROR nv_mem_client_init -- error while registering nc client",)),
        "fail", "refuses the client", "never nv_peer_mem and nvidia_peermem"),
    Row("inbox ib_core is loaded", LOADED, None, peer(loaded=BAD, exported=False), "fail", "has no peer memory",
        "restart openibd"),
    Row("nobody loaded it", LOADED, None, peer(loaded=BAD), "fail", "the kernel says nothing of it",
        "modprobe nvidia_peermem"),
    Row("no driver", LOADED, None, peer(loaded=("ib_core",)), "fail", "neither is the NVIDIA driver",
        "modprobe nvidia"),
    Row("both are loaded", LOADED, None, peer(loaded=("nvidia", "ib_core", "nvidia_peermem", "nv_peer_mem")), "fail",
        "nv_peer_mem is loaded, too", "gpuprov apply unloads it", change="module nv_peer_mem: loaded -> unloaded"),
    Row("no GPU", LOADED, None, NO_GPU, "skip", "no NVIDIA GPU"),
    Row("loaded beside another ib_core", LOADED, None, peer(holders="ib_uverbs,mlx5_ib,"), "fail",
        "ib_core is used by ib_uverbs, mlx5_ib", "restart openibd"),
]  # fmt: skip

OFFERED = "gpudirect_rdma.gdrcopy_offered"
COPIES = "gpudirect_rdma.gdrcopy"
COPIES_BOOT = "gpudirect_rdma.gdrcopy_boot"
COPY = GpudirectRdma(gdrcopy=Gdrcopy(install=True))
TESTS = GpudirectRdma(gdrcopy=Gdrcopy(install=True, tests=True))
THERE = {"gdrcopy": gh.COPIES, "gdrcopy_packages": gh.INSTALLED}
GDRCOPY = [
    Row("gdrcopy is not asked for", OFFERED, None, {}, "n/a", "not in the spec"),
    Row("gdrcopy is offered", OFFERED, COPY, {"gdrcopy_index": gh.INDEX}, "pass", "gdrdrv-dkms libgdrapi"),
    Row("gdrcopy is not offered", OFFERED, COPY, {}, "fail", "no package source of the host has gdrdrv-dkms libgdrapi",
        "developer.download.nvidia.com"),
    Row("gdrcopy is installed already", OFFERED, COPY, {"gdrcopy_packages": gh.INSTALLED}, "pass"),
    Row("its tests are not offered", OFFERED, TESTS, {"gdrcopy_packages": gh.INSTALLED}, "fail", "gdrcopy-tests"),
    Row("gdrcopy runs", COPIES, COPY, THERE, "pass", "/dev/gdrdrv 237 666"),
    Row("gdrcopy, not asked for", COPIES, None, {}, "n/a", "not in the spec"),
    Row("not installed", COPIES, COPY, {}, "fail", "not installed: gdrdrv-dkms libgdrapi", "gpuprov apply",
        change="package libgdrapi:  -> installed"),
    Row("half installed", COPIES, COPY,
        {**THERE, "gdrcopy_packages": gh.INSTALLED.replace("ii |gdrdrv", "iF |gdrdrv")}, "fail",
        "incomplete: gdrdrv-dkms", "dpkg --configure"),
    Row("gdrdrv is not loaded", COPIES, COPY, {**THERE, "gdrcopy": f"kernel|{gh.K}|2.5.1\n"}, "fail", "not loaded",
        "systemctl restart gdrdrv.service"),
    Row("no device node", COPIES, COPY, {**THERE, "gdrcopy": "loaded|\nmajor|237\n"}, "fail",
        "there is no /dev/gdrdrv"),
    Row("a stale device node", COPIES, COPY, {**THERE, "gdrcopy": "loaded|\nmajor|237\nnode|240 666\n"}, "fail",
        "major number 240, the module 237", change="setting /dev/gdrdrv: 240 -> 237"),
    Row("a closed device node", COPIES, COPY, {**THERE, "gdrcopy": "loaded|\nmajor|237\nnode|237 600\n"}, "fail",
        "mode 600"),
    Row("in a container", COPIES, COPY, {**PODMAN, **THERE, "gdrcopy": ""}, "pass", "a container has"),
    Row("gdrcopy at boot", COPIES_BOOT, COPY, {"gdrcopy": gh.COPIES}, "pass", f"gdrdrv for {gh.K}"),
    Row("no gdrdrv for the next kernel", COPIES_BOOT, COPY, {**THERE, "gdrcopy": f"{gh.COPIES}kernel|{NEXT}|\n"},
        "fail", f"none for {NEXT}", "dkms autoinstall -k "),
    Row("no gdrdrv at all", COPIES_BOOT, COPY, {}, "fail", f"none for {gh.K}", "gpuprov apply"),
    Row("gdrcopy at boot, not asked for", COPIES_BOOT, None, {}, "n/a", "not in the spec"),
]  # fmt: skip

METHOD = "gpudirect_rdma.method"
DMABUF_ASKED = GpudirectRdma(method="dmabuf")
GEFORCE = "0000:19:00.0 0x10de 0x2684 0x10de 0x16f3 0x030000 nvidia\n"
SPARK = "000f:01:00.0 0x10de 0x2e12 0x10de 0x21ec 0x030000 nvidia\n"
A100 = "0000:1a:00.0 0x10de 0x20b2 0x10de 0x1463 0x030200 nvidia\n"
UNKNOWN = "0000:1a:00.0 0x10de 0xffff 0x10de 0x1463 0x030200 nvidia\n"
VOLTA = {"nvidia_functions": "0000:19:00.0 0x10de 0x1db1 0x10de 0x1212 0x030200 nvidia\n"}
METHODS = [
    Row(
        "auto, proprietary modules",
        METHOD,
        None,
        {},
        "pass",
        "nvidia_peermem: dma-buf needs open kernel modules",
        change="setting gpudirect_rdma.method: auto -> nvidia_peermem, since dma-buf needs open kernel modules, and "
        "the host has, or gets, proprietary ones",
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


@run_each("row", [pytest.param(row, id=f"{row.check}-{row.name}") for row in (*ROWS, *GDRCOPY, *METHODS)])
def test_peer_modules(row: Row) -> None:
    judge(row)


def test_a_driver_of_any_version_keeps_the_flavour_that_is_there() -> None:
    """L40S take both; what a spec without a version leads to for branch 535 is proprietary, and this host has open
    ones."""
    l40s = {"nvidia_functions": "0000:19:00.0 0x10de 0x26b9 0x10de 0x1851 0x030200 nvidia\n"}
    host = HostSpec(name="gpu1", capabilities={"nvidia_driver": NvidiaDriver()})
    assert ground(host, facts(**l40s, gpudirect=said(kernel(license_=OPEN)))).flavour == "open"
    assert ground(host, facts(**l40s, gpudirect=said(kernel()))).flavour == "proprietary"
