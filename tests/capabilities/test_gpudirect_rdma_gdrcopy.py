"""gpudirect_rdma.gdrcopy: packages, module and device node, now and at the next boot."""

from __future__ import annotations

import pytest

from gpuprov.capabilities.gpudirect_rdma.fragment import Gdrcopy, GpudirectRdma
from tests.capabilities import gpudirect_host as gh
from tests.capabilities.asking import PODMAN, Row, judge
from tests.capabilities.gpudirect_host import NEXT

OFFERED = "gpudirect_rdma.gdrcopy_offered"
COPIES = "gpudirect_rdma.gdrcopy"
COPIES_BOOT = "gpudirect_rdma.gdrcopy_boot"
COPY = GpudirectRdma(gdrcopy=Gdrcopy(install=True))
TESTS = GpudirectRdma(gdrcopy=Gdrcopy(install=True, tests=True))
THERE = {"gdrcopy": gh.COPIES, "gdrcopy_packages": gh.INSTALLED}

ROWS = [
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
        "not whole: gdrdrv-dkms", "dpkg --configure"),
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


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.check}-{row.name}") for row in ROWS])
def test_gdrcopy(row: Row) -> None:
    judge(row)
