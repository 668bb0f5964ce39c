"""gpudirect_rdma: what the peer modules were built against, and why one of them is not loaded."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.gpudirect_rdma.fragment import GpudirectRdma
from tests.capabilities import gpudirect_host as gh
from tests.capabilities.asking import NO_GPU, PODMAN, Row, judge
from tests.capabilities.gpudirect_host import DMABUF, NEXT, kernel, peer

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


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.check}-{row.name}") for row in ROWS])
def test_peer_modules(row: Row) -> None:
    judge(row)
