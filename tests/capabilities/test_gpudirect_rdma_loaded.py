"""gpudirect_rdma: parameters of the peer module, what loads it at boot, what the kernel told of it."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.gpudirect_rdma.fragment import GpudirectRdma
from tests.capabilities import gpudirect_host as gh
from tests.capabilities.asking import PODMAN, Row, judge
from tests.capabilities.gpudirect_host import DMABUF, NONE, kernel, peer

PARAMETERS = "gpudirect_rdma.parameters"
BOOT = "gpudirect_rdma.boot"
LOG = "gpudirect_rdma.log"
ON = {"gpudirect": DMABUF}
OLD = GpudirectRdma(method="nv_peer_mem")
LEGACY = GpudirectRdma(method="nvidia_peermem", peerdirect_support=1)

ROWS = [
    Row("as the module has them", PARAMETERS, None, {}, "pass", "peerdirect_support=0 persistent_api_support=1"),
    Row(
        "a parameter for old OFED",
        PARAMETERS,
        LEGACY,
        {},
        "fail",
        "modprobe says peerdirect_support=0",
        "gpuprov apply",
        change="setting nvidia_peermem: peerdirect_support=0 -> peerdirect_support=1 persistent_api_support=1",
    ),
    Row(
        "configured and not loaded",
        PARAMETERS,
        LEGACY,
        {"modprobe_config": "options nvidia-peermem peerdirect_support=1\n"},
        "fail",
        "loaded with peerdirect_support=0",
    ),
    Row(
        "configured and loaded",
        PARAMETERS,
        LEGACY,
        {
            "modprobe_config": "options nvidia-peermem peerdirect_support=1\n",
            **peer(values={"peerdirect_support": "1", "persistent_api_support": "1"}),
        },
        "pass",
    ),
    Row(
        "a value that keeps it out",
        PARAMETERS,
        None,
        {"modprobe_config": "options nvidia_peermem peerdirect_support=2\n"},
        "fail",
        "peerdirect_support=2: the module answers Invalid argument",
        "grep -r peerdirect_support",
    ),
    Row(
        "Debian's own name",
        PARAMETERS,
        None,
        {"modprobe_config": "options nvidia-current-peermem persistent_api_support=7\n"},
        "fail",
        "persistent_api_support=7",
    ),
    Row(
        "an older module",
        PARAMETERS,
        GpudirectRdma(method="nvidia_peermem", persistent_api_support=0),
        {
            "modprobe_config": "options nvidia_peermem persistent_api_support=0\n",
            **peer(kernel(parameters="peerdirect_support ")),
        },
        "fail",
        "has no persistent_api_support",
        "from 560 on",
    ),
    Row("no parameters", PARAMETERS, None, ON, "n/a", "the method is dmabuf"),
    Row("nv_peer_mem's", PARAMETERS, OLD, {}, "pass", "none of nvidia_peermem's"),
    Row(
        "after openibd at boot", BOOT, None, {}, "pass", "gpuprov-gpudirect.service loads nvidia_peermem, after openibd"
    ),
    Row("without openibd", BOOT, None, peer(openibd=NONE, drop_in=""), "pass", "loads nvidia_peermem"),
    Row(
        "no unit",
        BOOT,
        None,
        peer(unit=NONE, starts=""),
        "fail",
        "gpuprov-gpudirect.service is not there",
        "gpuprov apply",
        change="file /etc/systemd/system/gpuprov-gpudirect.service:  -> nvidia_peermem",
    ),
    Row("a unit of the other", BOOT, None, peer(starts="nv_peer_mem"), "fail", "it loads nv_peer_mem"),
    Row(
        "switched off",
        BOOT,
        None,
        peer(unit=("loaded", "active", "disabled")),
        "fail",
        "is disabled",
        "systemctl enable",
    ),
    Row(
        "failed", BOOT, None, peer(unit=("loaded", "failed", "enabled")), "fail", "failed", "see gpudirect_rdma.loaded"
    ),
    Row(
        "openibd does not load it",
        BOOT,
        None,
        peer(drop_in=""),
        "fail",
        "openibd loads no peer module",
        "gpuprov apply",
        change="file /etc/systemd/system/openibd.service.d/10-nvidia-peermem.conf:  -> nvidia_peermem",
    ),
    Row("dma-buf at boot", BOOT, None, ON, "n/a", "the method is dmabuf"),
    Row("a quiet log", LOG, None, {}, "pass", "no lost context"),
    Row(
        "a lost context",
        LOG,
        None,
        peer(log=(gh.LOG,)),
        "fail",
        "detected invalid context",
        "restart what was using RDMA",
    ),
    Row("the machine's log", LOG, None, {**PODMAN, **peer(log=(gh.LOG,))}, "skip", "the machine's"),
]


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.check}-{row.name}") for row in ROWS])
def test_loading(row: Row) -> None:
    judge(row)
