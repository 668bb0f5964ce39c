"""gpudirect_rdma: parameters of the peer module, what loads it at boot, what the kernel told of it."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.gpudirect_rdma.desired import FORERUNNER
from gpuprov.capabilities.gpudirect_rdma.fragment import Gdrcopy, GpudirectRdma
from gpuprov.catalog.rdma.gpudirect import DROP_IN, UNIT, UNIT_FILE
from tests.capabilities import gpudirect_host as gh
from tests.capabilities.asking import PODMAN, Row, judge
from tests.capabilities.contents_host import Also, unit
from tests.capabilities.gpudirect_host import DMABUF, NONE, kernel, peer

PARAMETERS = "gpudirect_rdma.parameters"
FILES, ENABLED, ACTIVE = (f"gpudirect_rdma.{name}" for name in ("files", "enabled", "active"))
LOG = "gpudirect_rdma.log"
ON = {"gpudirect": DMABUF}
OLD = GpudirectRdma(method="nv_peer_mem")
COPIES = "gdrdrv.service"
COPY = GpudirectRdma(gdrcopy=Gdrcopy(install=True))
LEGACY = GpudirectRdma(method="nvidia_peermem", peerdirect_support=1)

ROWS = [
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
    Row("whole, with openibd's drop-in", FILES, None, {}, "pass", "2 files as gpuprov writes them"),
    Row("without openibd", FILES, None, peer(openibd=NONE), "pass", "1 file as gpuprov writes them"),
    Row("no unit", ENABLED, None, {"contents": unit(UNIT, "inactive", "")}, "fail", "is not-found", "gpuprov apply"),
    Row("a unit of the other", FILES, None, {"contents": Also(f"sum|0  {UNIT_FILE}\n")}, "fail", f"{UNIT_FILE}: another text"),
    Row("switched off", ENABLED, None, {"contents": unit(UNIT, "active", "disabled")}, "fail", "is disabled", "systemctl enable"),
    Row("nothing at boot for dma-buf", ENABLED, None, ON, "n/a", "no unit"),
    Row("a unit left behind", ENABLED, None, {**ON, "contents": unit(UNIT, "active", "enabled")}, "fail",
        f"{UNIT} is enabled", f"systemctl disable --now {UNIT}"),
    Row("a drop-in left behind", FILES, None, {**ON, "contents": Also(f"entry|f|644|0|0|{DROP_IN}\n")}, "fail", f"{DROP_IN}: there"),
    Row("the forerunner's service", ENABLED, None, {"contents": unit(FORERUNNER, "inactive", "enabled")}, "fail",
        f"{FORERUNNER} is enabled", f"systemctl disable --now {FORERUNNER}"),
    Row("it runs", ACTIVE, None, {"contents": unit(FORERUNNER, "active", "disabled")}, "fail", "is active", "systemctl stop"),
    Row("switched off", ACTIVE, None, {"contents": unit(FORERUNNER, "inactive", "disabled")}, "n/a", "no unit"),
    Row("it is the method", ENABLED, OLD, peer(kernel(module="nv_peer_mem")), "pass", f"{UNIT} enabled"),
    Row("gdrcopy at boot", ENABLED, COPY, {}, "pass", "gdrdrv.service enabled"),
    Row("gdrcopy's service is off", ENABLED, COPY, {"contents": unit(COPIES, "inactive", "disabled")}, "fail", "is disabled"),
    Row("no service of gdrcopy", ENABLED, COPY, {"contents": unit(COPIES, "inactive", "")}, "fail", f"{COPIES} is not-found"),
    Row("a quiet log", LOG, None, {}, "pass", "no lost context"),
    Row("a lost context", LOG, None, peer(log=(gh.LOG,)), "fail", "detected invalid context",
        "restart what was using RDMA"),
    Row("the machine's log", LOG, None, {**PODMAN, **peer(log=(gh.LOG,))}, "skip", "the machine's"),
]  # fmt: skip


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.check}-{row.name}") for row in ROWS])
def test_loading(row: Row) -> None:
    judge(row)
