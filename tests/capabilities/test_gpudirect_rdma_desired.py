"""gpudirect_rdma: what the role brings about, and what is refused before it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.gpudirect_rdma.desired import DESIRED, GDRCOPY, copies
from gpuprov.capabilities.gpudirect_rdma.fragment import Gdrcopy, GpudirectRdma
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog.rdma import gpudirect as catalogue
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.spec.model import Fragment
from gpuprov.spec.repository import Repository
from tests.capabilities import contexts
from tests.capabilities import gpudirect_host as gh
from tests.capabilities.asking import NO_GPU, PODMAN
from tests.capabilities.gpudirect_host import NEXT, OPEN, K, kernel, said
from tests.rows import run_each

PEER = GpudirectRdma(method="nvidia_peermem")
FORERUNNER = GpudirectRdma(method="nv_peer_mem")
COPY = GpudirectRdma(method="nvidia_peermem", gdrcopy=Gdrcopy(install=True))
BEFORE = "it was built before OFED, without peer memory"
DOCA = {"rdma": Rdma(stack="doca-ofed")}
MIRROR = NvidiaDriver(
    version="580", source="mirror", repository=Repository(url="https://mirror.example/cuda", key_file="/key.asc")
)


def context(
    block: GpudirectRdma = PEER, beside: dict[str, Fragment] | None = None, /, **changed: Any
) -> Context[GpudirectRdma]:
    host = contexts.spec(beside, gpudirect_rdma=block)
    return contexts.context("gpudirect_rdma", host, {"container": "none\n", "reboot_reasons": "", **changed})


def made(*asked: Any, **changed: Any) -> dict[str, Any]:
    """Return the role's values, with what its tasks are handed."""
    values: dict[str, Any] = dict(DESIRED.make(context(*asked, **changed)))
    tasks = values["tasks"]
    shown = {"told": tasks["method"]["msg"], "rebuild": tasks.get("peer_build", {"kernels": []})}
    return {**values, **shown, "dead": values["problem"], "peer": tasks.get("peer_memory", {})}


DMABUF, ALLOW = GpudirectRdma(method="dmabuf"), GpudirectRdma(method="nvidia_peermem", topology_check="allow")
LOADED = {"driver_parameters": "GrdmaPciTopoCheckOverride: 0\n"}
ROWS: list[tuple[str, GpudirectRdma, dict[str, Any], dict[str, Any]]] = [
    ("with dma-buf nothing of it stays", DMABUF, {"gpudirect": said(kernel(license_=OPEN))},
        {"files": {}, "peer": {}, "on": [], "off": [catalogue.UNIT, "nv_peer_mem.service"],
         "absent": [catalogue.UNIT_FILE, catalogue.DROP_IN]}),
    ("the forerunner is meant", FORERUNNER, {"gpudirect": said(kernel(module="nv_peer_mem"))},
        {"off": [], "peer.other": "nvidia_peermem", "peer.parameters": {}}),
    ("nothing is loaded in a container before the next boot of its machine", PEER, PODMAN,
     {"peer": {}, "on": [catalogue.UNIT]}),
    ("nothing is loaded without a GPU", PEER, NO_GPU, {"peer": {}}),
    ("a driver that was loaded with another override", ALLOW, LOADED,
        {"reboot": "the loaded driver has NVreg_GrdmaPciTopoCheckOverride=0, 1 is wanted"}),
    ("which is its machine's in a container", ALLOW, {**LOADED, **PODMAN}, {"reboot": ""}),
    ("the override is not asked for", PEER, LOADED, {"reboot": ""}),
    ("a driver without parameters", ALLOW, {"driver_parameters": ""}, {"reboot": ""}),
]  # fmt: skip


@run_each(("block", "changed", "wanted"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_what_is_brought_about(block: GpudirectRdma, changed: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert contexts.pick(made(block, **changed), wanted) == wanted


def test_the_forerunner_has_to_be_installed_already() -> None:
    for there, status in (("nv_peer_mem", "pass"), ("nvidia_peermem", "fail")):
        host = contexts.spec(gpudirect_rdma=FORERUNNER)
        answer = contexts.answer("gpudirect_rdma.method", host, {"gpudirect": said(kernel(module=there))})
        assert answer.status == status


def copied(*asked: Any, **changed: Any) -> dict[str, Any]:
    """Return what is done about gdrcopy."""
    own = copies(context(*asked, **changed))
    del own["later"]
    return own


def test_a_peer_module_is_loaded_after_the_rdma_stack() -> None:
    found = made()
    assert (found["on"], found["off"], found["absent"]) == ([catalogue.UNIT], ["nv_peer_mem.service"], [])
    assert (found["dead"], found["reboot"]) == ("", "")
    unit = found["files"][catalogue.UNIT_FILE]
    assert "\nExecStart=/sbin/modprobe nvidia_peermem\n" in unit
    assert re.search(r"^After=.* openibd\.service ", unit, re.M)
    assert "\nWantedBy=multi-user.target openibd.service\n" in unit
    assert found["files"][catalogue.DROP_IN].endswith("[Service]\nExecStartPost=-/sbin/modprobe nvidia_peermem\n")
    assert found["told"] == "gpudirect_rdma: nvidia_peermem, since the spec asks for it"
    peer = found["peer"]
    assert (peer["name"], peer["other"]) == ("nvidia_peermem", "nv_peer_mem")
    assert peer["parameters"] == {"peerdirect_support": "0", "persistent_api_support": "1"}
    assert {"text", "cause", "way"} == set(peer["causes"][0])


def test_the_probe_reads_what_the_unit_loads() -> None:
    """By this line export knows the method."""
    assert re.findall(r"^ExecStart=.*modprobe (\w+)$", made()["files"][catalogue.UNIT_FILE], re.M) == ["nvidia_peermem"]


def test_without_openibd_there_is_no_drop_in_of_it() -> None:
    found = made(gpudirect=said(openibd=gh.NONE))
    assert (list(found["files"]), found["absent"]) == ([catalogue.UNIT_FILE], [catalogue.DROP_IN])


def test_only_kernels_of_the_method_that_can_boot_are_built_again() -> None:
    text = said(kernel(symbols="no", rebuild=BEFORE), kernel(NEXT, bootable=False, rebuild=BEFORE))
    found = made(gpudirect=text)
    assert found["rebuild"] == {"module": "nvidia_peermem", "kernels": [K], "why": f"{K}: {BEFORE}"}
    assert found["dead"].startswith(f"kernel {K} has no nvidia_peermem that was built against peer memory")
    assert (
        made(GpudirectRdma(method="dmabuf"), gpudirect=said(kernel(license_=OPEN, rebuild=BEFORE)))["rebuild"][
            "kernels"
        ]
        == []
    )
    assert made(gpudirect=said(kernel(symbols="unknown")))["dead"] == ""
    assert K in made(None or PEER, DOCA, gpudirect=said(kernel(module="")))["dead"]


def test_a_method_that_cannot_be_is_refused() -> None:
    with pytest.raises(ProbeFailed, match=r"gpudirect_rdma\.method dmabuf: dma-buf needs open kernel modules"):
        made(GpudirectRdma(method="dmabuf"))
    assert made(GpudirectRdma(), gpudirect=said(kernel(nvidia="", module="")))["told"]


def test_gdrcopy_is_installed_and_runs() -> None:
    found = copied(COPY, gdrcopy_index=gh.INDEX)
    assert found == {**GDRCOPY, "install": ["gdrdrv-dkms", "libgdrapi"], "service": "", "run": False}
    there = {"gdrcopy_packages": gh.INSTALLED, "gdrcopy": gh.COPIES}
    assert copied(COPY, **there) == {**GDRCOPY, "install": [], "service": "gdrdrv.service", "run": False}
    gone = {**there, "gdrcopy": gh.COPIES.replace("666", "600")}
    assert copied(COPY, **gone)["run"]
    assert not copied(COPY, **gone, reboot_reasons="nouveau|why\n")["run"]
    assert not copied(COPY, **gone, **PODMAN)["run"]
    assert copied(PEER, **there) == {**GDRCOPY, "install": [], "service": "", "run": False}


def test_gdrcopy_that_nobody_offers_is_refused_or_waited_for() -> None:
    with pytest.raises(ProbeFailed, match="no package source of the host has gdrdrv-dkms libgdrapi") as refused:
        made(COPY)
    assert "developer.download.nvidia.com" in refused.value.fix
    waits = made(COPY, {"nvidia_driver": MIRROR})
    assert waits["later"]["told"] == "gdrcopy is installed when apply has added https://mirror.example/cuda"
    assert waits["gdrcopy"]["install"] == []
    assert made(COPY, gdrcopy_index=gh.INDEX)["later"] == {}
