"""passthrough: which GPUs are lent, what is refused, and what the role is handed."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities import passthrough
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.passthrough.desired import DESIRED
from gpuprov.capabilities.passthrough.fragment import Passthrough, lines
from gpuprov.capabilities.passthrough.rules import contribute, rules
from gpuprov.capabilities.pcie.fragment import Pcie
from gpuprov.facts.probes.host.pci import PASSTHROUGH
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities.asking import PODMAN, Row, facts, judge
from tests.capabilities.passthrough_host import CONFIG, FREE, HELD, NIC, PORT, PROBES, SWITCHES, USER, function, lent
from tests.capabilities.specs import block
from tests.rows import run_each

HARDWARE, CLIENTS, GROUP, IOMMU, BOUND = (
    f"passthrough.{name}" for name in ("hardware", "clients", "group", "iommu", "bound")
)
ON = "ro quiet intel_iommu=on iommu=pt\n"
ONE = Passthrough(gpus=(FREE,))
CARD = function(NIC, "mlx5_core", group="7", of="15b3:1021|020000")
BRIDGE = function(PORT, "pcieport", group="7", of="8086:352a|060400")
SWITCH = "0000:07:00.0"


def said(*functions: str) -> dict[str, str]:
    return {"passthrough": "".join(functions)}


def without_iommu(driver: str = "nvidia") -> str:
    return function(FREE, driver)


ROWS = [
    Row("both", HARDWARE, None, {}, "pass", f"2 functions to lend: {HELD} {FREE}"),
    Row("one", HARDWARE, ONE, {}, "pass", f"1 function to lend: {FREE}"),
    Row("an address in capitals", HARDWARE, Passthrough(gpus=(FREE.upper(),)), {}, "pass", FREE),
    Row("by model", HARDWARE, Passthrough(gpus=("H100-SXM5-80GB",)), {}, "pass", "2 functions"),
    Row("its audio goes along", HARDWARE, Passthrough(gpus=(HELD,)),
        said(function(HELD, of="10de:2684|030000"), function(HELD[:-1] + "1", "snd_hda_intel", of="10de:22ba|040300")),
        "pass", f"2 functions to lend: {HELD} {HELD[:-1]}1"),
    Row("another model", HARDWARE, Passthrough(gpus=("L40S",)), {}, "fail",
        "missing: L40S; GPUs: 0000:19:00.0 (10de:2330)"),
    Row("another address", HARDWARE, Passthrough(gpus=("0000:99:00.0",)), {}, "fail", "missing: 0000:99:00.0",
        "correct"),
    Row("no GPU", HARDWARE, None, said("LoadState|not-found\n"), "fail", "missing: all; GPUs: none"),
    Row("no NVSwitch", HARDWARE, Passthrough(nvswitches=True), {}, "fail", "none", "B200"),
    Row("NVSwitches", HARDWARE, Passthrough(nvswitches=True), said(lent(HELD, "7"), function(SWITCH, **SWITCHES)),
        "pass", SWITCH),
    Row("none", HARDWARE, Passthrough(gpus=()), {}, "n/a", "no GPU is lent"),
    Row("a container", HARDWARE, None, PODMAN, "fail", "a podman container"),
    Row("nothing moves", CLIENTS, None, {}, "pass", "no virtual machine has a GPU that moves"),
    Row("a virtual machine has one that is taken back", CLIENTS, ONE, {}, "fail", f"{HELD}: qemu-system-x86 (pid 4242)",
        "shut these virtual machines down"),
    Row("by its device of iommufd", CLIENTS, ONE,
        said(lent(HELD, "7", node="vfio3"), lent(FREE, "8"), f"taken|{HELD}\n", "user|vfio3|9|cloud-hyperviso\n"),
        "fail",
        "cloud-hyperviso (pid 9)"),
    Row("one that gpuprov did not lend stays", CLIENTS, ONE, said(lent(HELD, "7"), lent(FREE, "8"), USER), "pass"),
    Row("groups", GROUP, None, {}, "pass", "2 groups wholly lent"),
    Row("a NIC in the group", GROUP, None, said(lent(HELD, "7"), CARD, BRIDGE), "fail",
        f"group 7: {NIC} (15b3:1021) has mlx5_core", "another slot"),
    Row("another GPU in the group", GROUP, Passthrough(gpus=(HELD,)),
        said(lent(HELD, "7"), function(FREE, "nvidia", group="7")),
        "fail", f"{FREE} (10de:2330) has nvidia", "lend it too"),
    Row("nobody's in the group", GROUP, None,
        said(lent(HELD, "7"), function(NIC, "", group="7", of="15b3:1021|020000")), "pass", "1 group"),
    Row("no groups yet", GROUP, None, said(without_iommu()), "n/a", "no group"),
    Row("the IOMMU is on", IOMMU, None, {"command_line": ON}, "pass", "2 lent functions in IOMMU groups"),
    Row("started without", IOMMU, None, {"command_line": "ro quiet\n", **said(without_iommu())}, "fail",
        f"none of {FREE}",
        "then a reboot", reboot="the kernel should be started with intel_iommu=on iommu=pt"),
    Row("off in the firmware", IOMMU, None, {"command_line": ON, **said(without_iommu())}, "fail", f"none of {FREE}",
        "VT-d"),
    Row("AMD's is on by itself", IOMMU, None, {"command_line": "ro quiet\n"}, "pass", "in IOMMU groups"),
    Row("bound", BOUND, None, {}, "pass", "2 functions with vfio-pci"),
    Row("bound to another", BOUND, None, said(lent(HELD, "7"), function(FREE, "nvidia", group="8")), "fail",
        f"{FREE}: nvidia -> vfio-pci", "gpuprov apply", change=f"setting {FREE}: nvidia -> vfio-pci"),
    Row("by ids, and not for good", BOUND, None, said(function(FREE, "vfio-pci", group="8")), "fail",
        f"{FREE}: vfio-pci -> vfio-pci"),
    Row("Grace's driver by its own name", BOUND, Passthrough(driver="nvgrace-gpu-vfio-pci"),
        said(function(FREE, "nvgrace_gpu_vfio_pci", "nvgrace_gpu_vfio_pci", "8", of="10de:2342|030200")), "pass",
        "1 function"),
    Row("before the reboot", BOUND, None, said(without_iommu()), "fail", f"{FREE}: nvidia -> vfio-pci",
        reboot="the IOMMU is not on"),
    Row("taken back", BOUND, ONE, {}, "fail", f"{HELD}: vfio-pci -> a driver of this host",
        change=f"setting {HELD}: vfio-pci -> given back"),
    Row("none is lent", BOUND, Passthrough(gpus=()), said(function(FREE, "nvidia")), "n/a", "no GPU is lent"),
]  # fmt: skip


@run_each("row", ROWS, ids=lambda row: row.name)
def test_the_host(row: Row) -> None:
    judge(row)


def host(gpu: str = "", count: int | None = None, **blocks: Any) -> HostSpec:
    made: dict[str, Fragment] = {name: block(name, values) for name, values in blocks.items()}
    return HostSpec(name="h", gpu=GpuSpec(model=gpu, count=count) if gpu else None, capabilities=made)


SHARED: dict[str, Any] = {"fabric_manager": {"fabric_mode": "shared-nvswitch"}}
SPECS: list[tuple[str, Passthrough, HostSpec, tuple[str, ...]]] = [
    ("all of a host", Passthrough(), host("L40S", 4), ()),
    ("some, and the driver for the others", ONE, host("L40S", 4, nvidia_driver={}, mig={}), ()),
    ("all, and the driver", Passthrough(), host(nvidia_driver={}, container_toolkit={}),
        ("gpus are all GPUs of the host, and nvidia_driver needs one that stays", "and container_toolkit needs")),
    ("all by their model", Passthrough(gpus=("L40S",)), host("L40S", 4, nvidia_driver={}),
     ("and nvidia_driver needs",)),
    ("all by their addresses", Passthrough(gpus=(FREE, HELD)), host("L40S", 2, dcgm={}), ("and dcgm needs",)),
    ("another model", Passthrough(gpus=("L4",)), host("L40S", 4, nvidia_driver={}), ()),
    ("all, and MIG, MPS, cGPU", Passthrough(), host(mig={}, mps={}, cgpu={}),
     ("and mig needs", "and mps needs", "and cgpu needs")),
    ("no address", Passthrough(gpus=("3b:00:0",)), host(), ("is not a PCI address",)),
    ("too much of an address", Passthrough(gpus=("3b:00:0:1",)), host(), ("is not in the catalogue",)),
    ("no hexadecimal address", Passthrough(gpus=("0000:xx:00.0",)), host(), ("is not a PCI address",)),
    ("an address without its domain", Passthrough(gpus=("3b:00.0",)), host(), ("without its domain",)),
    ("a UUID", Passthrough(gpus=("GPU-3f2a",)), host(), ("is a UUID",)),
    ("no model", Passthrough(gpus=("H100-SXM5-80G",)), host(), ("is not in the catalogue",)),
    ("twice", Passthrough(gpus=(FREE, FREE)), host(), ("a second time",)),
    ("more than there are", Passthrough(gpus=(FREE, HELD)), host("L40S", 1), ("names 2 GPUs, and gpu.count is 1",)),
    ("a guest", ONE, host(vgpu_guest={}), ("contradicts vgpu_guest",)),
    ("no ACS", ONE, host(pcie={"acs": "disabled"}),
     ("contradicts pcie.acs: without ACS, virtual machines are not kept apart",)),
    ("no IOMMU", ONE, host(pcie={"iommu": "disabled"}), ("contradicts pcie.iommu",)),
    ("Grace", Passthrough(), host("GH200-96GB"), ("that of GH200-96GB is nvgrace-gpu-vfio-pci",)),
    ("not Grace", Passthrough(driver="nvgrace-gpu-vfio-pci"), host("L40S"), ("that of L40S is vfio-pci",)),
    ("a board alone", Passthrough(), host("H100-SXM5-80GB", 8), ("lends GPUs that NVSwitches join",)),
    ("a board with its NVSwitches", Passthrough(nvswitches=True), host("H100-SXM5-80GB", 8), ()),
    ("shared NVSwitches", Passthrough(), host("H100-SXM5-80GB", 8, nvidia_driver={}, **SHARED), ()),
    ("Fabric Manager for bare metal", ONE, host("H100-SXM5-80GB", 8, fabric_manager={}), ("fabric_mode: bare-metal",)),
    ("NVSwitches and Fabric Manager", Passthrough(nvswitches=True), host(**SHARED),
     ("nvswitches goes with gpus: all",)),
    ("NVSwitches of some", Passthrough(gpus=(FREE,), nvswitches=True), host(), ("nvswitches goes with gpus: all",)),
    ("none any more", Passthrough(gpus=()), host("H100-SXM5-80GB", 8, fabric_manager={}, pcie={"acs": "disabled"}), ()),
]  # fmt: skip


@run_each(("name", "asked", "spec", "expected"), SPECS, ids=[row[0] for row in SPECS])
def test_the_spec(name: str, asked: Passthrough, spec: HostSpec, expected: tuple[str, ...]) -> None:
    found = [*rules(spec, asked)]
    assert len(found) == len(expected), found
    for problem, text in zip(found, expected, strict=True):
        assert text in problem.message
        assert problem.fix


def test_the_kernel_starts_with_the_iommu_unless_pcie_says_how() -> None:
    asked = contribute(host("L40S"), ONE)
    assert asked is not None
    assert asked.command_line == {"intel_iommu": "on", "iommu": "pt"}
    assert contribute(host("L40S", pcie={"iommu": "translated"}), ONE) is None
    grace = contribute(host("GH200-96GB"), ONE)
    assert grace is not None
    assert grace.command_line == {"iommu.passthrough": "1"}


def test_a_model_is_all_its_ids() -> None:
    assert lines(Passthrough(gpus=("L40S", FREE), nvswitches=True)) == (
        *("driver vfio-pci", "gpu 10de:26b9", f"gpu {FREE}", "nvswitches all"),
    )


def made(asked: Passthrough, text: str) -> dict[str, Any]:
    known = facts(passthrough=text)
    values: Any = DESIRED.make(Context(host(), asked, known))
    return dict(values["tasks"])


def test_services_are_stopped_for_a_gpu_that_the_driver_has_to_let_go() -> None:
    tasks = made(Passthrough(), lent(HELD, "7") + function(FREE, "nvidia", group="8"))
    assert {*tasks} == {"drain", "stop", "unit", "start"}
    assert tasks["unit"]["differs"] == f"{FREE}: nvidia -> vfio-pci"
    assert {*made(Passthrough(), function(FREE, group="8"))} == {"unit"}, "nobody has it"
    assert {*made(ONE, PROBES["passthrough"])} == {"unit"}, "a GPU that comes back disturbs nobody"


def test_before_the_iommu_is_on_nothing_is_bound() -> None:
    """The reboot that switches it on also binds the GPUs: the unit is enabled before."""
    assert made(Passthrough(), without_iommu()) == {}
    values: Any = DESIRED.make(Context(host(), Passthrough(), facts(passthrough=without_iommu())))
    assert values["on"] == ["gpuprov-passthrough.service"]


@run_each(
    "asked",
    [
        Passthrough(driver="nvgrace-gpu-vfio-pci"),
        Passthrough(gpus=("L40S", FREE)),
        Passthrough(gpus=()),
        Passthrough(nvswitches=True),
    ],
)
def test_export_says_what_was_asked(asked: Passthrough) -> None:
    config = "config|\n" + "".join(f"config|{line}\n" for line in lines(asked))
    known = facts(passthrough=config + "LoadState|loaded\nActiveState|active\nUnitFileState|enabled\n")
    assert passthrough.export(known) == asked


def test_nothing_is_exported_of_a_unit_that_is_not_enabled() -> None:
    assert passthrough.export(facts(passthrough=CONFIG)) is None
    assert known_state(CONFIG) == ((), "")


def known_state(text: str) -> tuple[tuple[object, ...], str]:
    known = facts(passthrough=text).get(PASSTHROUGH)
    return known.state.functions, known.file


def test_it_is_closed_and_pcie_with_acs_kept_goes_along() -> None:
    assert convert({"gpu": "all"}, Passthrough)[1]
    assert [*rules(HostSpec(name="h", capabilities={"pcie": Pcie(acs="rdma_topo")}), ONE)] == []
