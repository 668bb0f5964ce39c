"""Nothing stays unproved without a reason, and no reason stands for what is proved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from gpuprov.capabilities import CAPABILITIES
from gpuprov.capabilities.mig.fragment import LayoutEntry, Mig
from gpuprov.capabilities.pcie.fragment import Pcie
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.topology.fragment import Topology
from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import format_document
from gpuprov.explain import all_checks
from gpuprov.facts.probes.base import Output
from gpuprov.report import as_json
from gpuprov.simulate import waivers
from gpuprov.simulate.description import Kind
from gpuprov.simulate.waivers import Row, Waiver, judge
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import GpuSpec, HostSpec
from gpuprov.verify.evaluate import evaluate, probes_of
from tests.capabilities import mig_host
from tests.capabilities.asking import B200, BARE, H100, NO_GPU, NVSWITCH, PODMAN, facts, good, units
from tests.rehearse.stage import result
from tests.rows import run_each

KNOWN = (
    Waiver(check="nouveau.running", kind="container", reason="the kernel is shared"),
    Waiver(check="persistence.active", kind="container", fails=True, reason="nothing holds a GPU"),
    Waiver(check="host.gpu", kind="any", when="no-gpu", reason="it has no GPU at all"),
    Waiver(check="fabric_manager.imex_fabric", kind="any", passes=True, reason="nvidia-smi may be an old one"),
)


def row(check: str, status: str, found: str = "found") -> Row:
    return Row(host="h", check=check, status=status, found=found, fix="fix it")  # type: ignore[arg-type]


@run_each(
    ("given", "kind", "gpu", "part"),
    [
        (row("nouveau.running", "skip"), "container", True, "waived"),
        (row("nouveau.running", "fail"), "container", True, "failed"),
        (row("persistence.active", "fail"), "container", True, "waived"),
        (row("nouveau.running", "pass"), "container", True, "contradicted"),
        (row("nouveau.running", "error"), "container", True, "failed"),
        (row("nouveau.running", "skip"), "machine", True, "unproved"),
        (row("nouveau.running", "fail"), "machine", True, "failed"),
        (row("host.gpu", "skip"), "machine", True, "unproved"),
        (row("host.gpu", "skip"), "machine", False, "waived"),
        (row("host.gpu", "pass"), "container", False, "contradicted"),
        (row("host.reachable", "unreachable"), "container", True, "failed"),
        (row("kernel.sysctl", "pass"), "container", True, "proved"),
        (row("fabric_manager.imex_fabric", "pass"), "container", True, "proved"),
        (row("fabric_manager.imex_fabric", "skip"), "container", True, "waived"),
    ],
)
def test_each_result_has_its_place(given: Row, kind: Kind, gpu: bool, part: str) -> None:
    judged = judge([given, row("kernel.limits", "pass")], kind, gpu=gpu, known=KNOWN)
    found = {name: len(getattr(judged, name)) for name in judged.__struct_fields__}
    assert found == {name: int(name == part) + int(name == "proved") for name in found}
    assert judged.green is (part in ("proved", "waived"))
    assert any(given.check in line for line in waivers.lines(judged)) is (part != "proved")
    assert bool(list(waivers.complaints(judged))) is not judged.green


def test_the_fix_of_what_is_not_proved_is_the_specs_where_there_is_one() -> None:
    """An A100 board whose spec forgets the Fabric Manager: whoever rehearses it changes the spec, not the
    simulation."""
    spec = msgspec.structs.replace(
        FULL, capabilities={name: one for name, one in FULL.capabilities.items() if name != "fabric_manager"}
    )
    quiet: dict[str, Output | str] = dict.fromkeys((probe.name for probe in probes_of(spec)), "")
    found = evaluate(spec, facts(**{**quiet, **good(), **PODMAN, **ON_BOARD, "units": units()}))
    told = list(waivers.complaints(judge(found, "container", nvswitch=3)))
    place = next(number for number, line in enumerate(told) if line.startswith("not proved host.fabric"))
    assert told[place + 1] == "  fix: fabric_manager: {} in the spec, unless another runs the Fabric Manager"


@run_each("rows", [[], [row("nouveau.running", "skip")]])
def test_where_nothing_is_proved_nothing_is_green(rows: list[Row]) -> None:
    judged = judge(rows, "container", known=KNOWN)
    assert not judged.green
    assert list(waivers.complaints(judged)) == ["nothing was proved: no check passed"]


@run_each(
    ("check", "status", "unproved"),
    [
        ("rdma.any", "n/a", 0),
        ("nouveau.running", "n/a", 0),
        ("rdma.any", "skip", 1),
    ],
)
def test_what_the_spec_does_not_ask_for_is_no_gap(check: str, status: Literal["n/a", "skip"], unproved: int) -> None:
    judged = judge([row(check, status), row("kernel.limits", "pass")], "container", known=KNOWN)
    assert (len(judged.unproved), len(judged.proved), judged.contradicted) == (unproved, 1, ())


def test_limits_that_the_machine_below_keeps_are_no_gap_of_a_container() -> None:
    """docker's and containerd's, beside RDMA, where root has no CAP_SYS_RESOURCE."""
    for status, green in (("skip", True), ("pass", True), ("fail", False)):
        rows = [row("rdma.memlock", status), row("kernel.limits", "pass")]
        assert judge(rows, "container").green is green, status
    assert not judge([row("rdma.memlock", "skip"), row("kernel.limits", "pass")], "machine").green


def test_every_waiver_names_a_check_that_there_is() -> None:
    assert {one.check for one in waivers.waivers()} <= {check.id for check in all_checks()}


FULL = HostSpec(
    name="h",
    gpu=GpuSpec(model="H100-SXM5-80GB", count=1),
    capabilities={one.name: one.fragment() for one in CAPABILITIES}
    | {
        "kernel": Kernel(
            command_line={"iommu": "pt"}, blacklist=("nouveau",), hugepages={"2M": 1}, cpu_governor="performance"
        ),
        "pcie": Pcie(iommu="passthrough", affinity="local"),
        "mig": Mig(layout=(LayoutEntry(gpus="all", instances={"7g.80gb": 1}),)),
        "rdma": Rdma(fabric="roce", stack="doca-ofed"),
        "topology": Topology(gpu_hca="PXB", rails="matched", same_socket=True, hcas=8),
    },
)
"""Every capability there is: whoever adds one decides here what a simulated host cannot prove of it."""


MIG = {"mig": mig_host.state(mig_host.gpu(("7g.80gb", 0, (7,))))}
IN_CONTAINER = PODMAN | {"mig_capabilities": mig_host.capabilities("gpu0/mig/gi1/access", "gpu0/mig/gi1/ci0/access")}
"""A simulated container shows the device files of MIG instances; a simulated machine does not."""
GUEST = {"machine": "kind|kvm\nvendor|QEMU\nflag|1\n", "cpu_frequency": BARE["cpu_frequency"]}
ALONE = {"nvidia_functions": H100}
ON_BOARD = {"nvidia_functions": H100 + NVSWITCH}
BRIDGED = {"nvidia_functions": B200, "fabric_bridges": "0000:d0:00.0\n"}


@pytest.mark.install
@pytest.mark.parametrize(
    ("kind", "gpu", "nvswitch", "changed"),
    [
        ("container", True, 0, IN_CONTAINER | MIG | ALONE),
        ("container", True, 3, IN_CONTAINER | MIG | ON_BOARD),
        ("container", True, 4, IN_CONTAINER | MIG | BRIDGED),
        ("container", False, 0, PODMAN | NO_GPU),
        ("machine", True, 0, GUEST | MIG | ALONE),
        ("machine", True, 3, GUEST | MIG | ON_BOARD),
        ("machine", True, 4, GUEST | MIG | BRIDGED),
        ("machine", False, 0, GUEST | NO_GPU),
    ],
)
def test_the_waivers_are_those_that_the_checks_need(
    kind: Kind, gpu: bool, nvswitch: int, changed: dict[str, str]
) -> None:
    """Nothing is skipped without a waiver, and no waiver stands for what passes, on a host that is right but for the
    fabric."""
    blocks = {name: block for name, block in FULL.capabilities.items() if nvswitch or name != "fabric_manager"}
    spec = msgspec.structs.replace(FULL, capabilities=blocks)
    silent: dict[str, Output | str] = dict.fromkeys((probe.name for probe in probes_of(spec)), "")
    results = evaluate(spec, facts(**{**silent, **good(), **changed}))
    judged = judge(results, kind, gpu=gpu, nvswitch=nvswitch)
    assert judged.unproved == ()
    assert judged.contradicted == ()
    needed = {one.check for one in waivers.waivers() if one.concerns(kind, gpu, nvswitch) and not one.passes}
    waived = {one.check for one in judged.waived} - {one.check for one in waivers.waivers() if one.passes}
    not_asked = {one.check for one in results if one.status == "n/a"}
    assert waived == needed - {row.check for row in judged.failed if row.status == "error"} - not_asked


@run_each(
    ("text", "message"),
    [
        ("- {check: host.gpu, kind: any}", ":1: [host.gpu].reason is missing; allowed: a text of at least 10"),
        (
            "- {check: host.gpu, kind: vm, reason: because it is so}",
            '[host.gpu].kind is "vm"; allowed: container, machine or any',
        ),
        (
            "- {check: host.gpu, kind: any, reason: short}",
            '[host.gpu].reason is "short"; allowed: a text of at least 10 characters',
        ),
        (
            "- {check: host, kind: any, reason: because it is so}",
            '[host].check is "host"; allowed: text without spaces',
        ),
        ("{", "while parsing"),
        (
            "- {check: a.b, kind: any, reason: because it is so}\n"
            "- {check: a.b, kind: machine, when: gpu, reason: because it is so}",
            "a.b is waived twice for a machine with GPUs",
        ),
    ],
)
def test_a_bad_file_is_told(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "waivers.yaml"
    file.write_text(text)
    with pytest.raises(GpuprovError) as told:
        waivers.read(file)
    assert message in told.value.message
    assert str(file) in told.value.message


def test_results_are_read_as_verify_writes_them(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(format_document(as_json.build_document([result("h", "nouveau.running", "skip", found="podman")])))
    (found,) = waivers.read_results(file)
    assert (found.host, found.check, found.status, found.found) == ("h", "nouveau.running", "skip", "podman")
    file.write_text(json.dumps({"error": 1}))
    with pytest.raises(GpuprovError, match=r"results\.json"):
        waivers.read_results(file)
