"""From specs to simulated hosts: one for each distinct spec, shaped like it, with everything assumed told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuprov.capabilities.cgpu.fragment import Cgpu
from gpuprov.capabilities.hpc.fragment import Hpc
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.pcie.fragment import Pcie
from gpuprov.capabilities.persistence import Persistence
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl.fragment import Nccl
from gpuprov.capabilities.slurm.fragment import Slurm
from gpuprov.catalog.gpus import find_gpu
from gpuprov.fleet.specs import load_fleet
from gpuprov.plan.read import Pair
from gpuprov.rehearse.model import Options
from gpuprov.rehearse.reality import build_table
from gpuprov.rehearse.shape import STAND_INS, Shape, plan_shapes
from gpuprov.simulate.description import Description, Kind
from gpuprov.simulate.host import NAME
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import GpuSpec
from tests.rehearse.stage import pair
from tests.rows import run_each

EXAMPLE = Path(__file__).parents[2] / "inventories" / "example" / "inventory.yaml"


def one(given: Pair, **options: Any) -> Shape:
    (shape,) = plan_shapes([given], Options(**options), "1f3a")
    return shape


def described(given: Pair, **options: Any) -> Description:
    shape = one(given, **options)
    assert shape.description, shape
    return shape.description


def gpu(model: str, count: int | None = None, driver: str = "", **more: Any) -> Pair:
    capabilities = {"nvidia_driver": NvidiaDriver(version=driver)} if driver else {"kernel": Kernel()}
    return pair("gpu01", gpu=GpuSpec(model=model, count=count), capabilities=capabilities, **more)


def test_the_example_inventory_is_one_host_for_each_distinct_spec() -> None:
    made = plan_shapes(load_fleet([str(EXAMPLE)], cache=False).pairs, Options(), "1f3a")
    assert [shape.hosts for shape in made] == [
        tuple(f"train0{number}.example.com" for number in range(1, 5)),
        ("infer01.example.com",),
        ("gpu01",),
    ]
    assert [shape.name for shape in made] == ["re-1f3a-train01-x4", "re-1f3a-infer01", "re-1f3a-gpu01"]
    training, inference, simulated = (shape.description for shape in made)
    assert training
    assert training.gpu
    assert (training.gpu.model, training.gpu.count, training.nvswitch) == ("H100-SXM5-80GB", 8, 3)
    assert (training.kind, training.distribution, training.driver) == ("container", "debian12", "")
    assert inference
    assert inference.nvswitch == 2
    assert simulated
    assert simulated.gpu
    assert (simulated.gpu.model, simulated.gpu.count) == ("H100-SXM5-80GB", 8)
    everyone = plan_shapes(load_fleet([str(EXAMPLE)], cache=False).pairs, Options(all_hosts=True), "1f3a")
    assert [shape.hosts for shape in everyone][:2] == [("train01.example.com",), ("train02.example.com",)]


def test_what_differs_only_by_name_group_and_place_is_one() -> None:
    pairs = [pair("a", groups=("x",)), pair("b", groups=("y",)), pair("c", reboot="if-needed")]
    assert [shape.hosts for shape in plan_shapes(pairs, Options(), "1f3a")] == [("a", "b"), ("c",)]


def test_more_gpus_than_the_mock_has() -> None:
    shape = one(gpu("A100-SXM4-80GB", 16))
    assert shape.description
    assert shape.description.gpu
    assert shape.description.gpu.count == 8
    assert shape.spec.gpu
    assert shape.spec.gpu.count == 8
    assert any("8 of 16 GPUs" in note for note in shape.notes)


@run_each(
    ("model", "count", "nvswitch", "gpus"),
    [
        ("H100-SXM5-80GB", 4, 0, 4),
        ("H100-SXM5-80GB", None, 3, 8),
        ("B200", 8, 4, 8),
        ("L40S", None, 0, 1),
        ("10de:2330", 8, 3, 8),
    ],
)
def test_gpus_and_their_switches(model: str, count: int | None, nvswitch: int, gpus: int) -> None:
    found = described(gpu(model, count))
    assert found.nvswitch == nvswitch
    assert found.gpu
    assert found.gpu.count == gpus


@run_each(
    ("version", "distribution", "driver"),
    [("535", "debian12", ""), ("any", "debian12", ""), ("580", "debian12", "580"), ("535", "debian13", "535"),
     ("550", "debian13", ""), ("570.133.20", "debian12", "570.133.20")],
)  # fmt: skip
def test_a_driver_that_the_distribution_lacks_is_a_stand_in(version: str, distribution: str, driver: str) -> None:
    assert described(gpu("L40S", 1, version), distribution=distribution).driver == driver


@run_each(
    ("source", "distribution", "repositories"),
    [
        ("nvidia", "debian12", ("distribution", "nvidia")),
        ("nvidia", "amazon2023", ("nvidia",)),
        ("nvidia", "rocky9", ()),
        ("distribution", "debian12", ()),
        ("auto", "debian12", ()),
    ],
)
def test_the_repository_that_the_driver_is_from_is_served(
    source: Any, distribution: str, repositories: tuple[str, ...]
) -> None:
    given = pair(
        "gpu01",
        gpu=GpuSpec(model="L40S", count=1),
        capabilities={"nvidia_driver": NvidiaDriver(version="580", source=source)},
    )
    shape = one(given, distribution=distribution)
    assert shape.description
    assert shape.description.repositories == repositories
    assert any("NVIDIA's repository is served" in note for note in shape.notes) == bool(repositories)
    chosen = pair("gpu01", {"simulated_host": {"repositories": ["nvidia"]}}, capabilities=given[1].capabilities)
    assert described(chosen).repositories == ("nvidia",)


def test_the_inventory_and_the_command_line_have_the_last_word() -> None:
    given = pair("gpu01", {"simulated_host": {"kind": "machine", "hcas": 8, "gpu": {"model": "T4", "count": 2}}})
    found = described(given)
    assert found.gpu
    assert (found.kind, found.hcas, found.gpu.model, found.nvswitch) == ("machine", 8, "T4", 0)
    assert described(given, kind="container").kind == "container"


@run_each(
    ("variable", "message", "fix"),
    [
        ({"hca": 8}, "gpu01: simulated_host: Object contains unknown field `hca`", "hcas"),
        ({"hcas": 99}, "gpu01: simulated_host: Expected `int` <= 16", "described by"),
        ({"gpu": {"model": "H100-SXM"}}, 'gpu.model is "H100-SXM", which is not in the catalogue', "did you mean"),
        (
            {"gpu": {"model": "V100-SXM3"}},
            'gpu.model is "V100-SXM3": the simulated NVML has no numbers for it',
            "add the model",
        ),
        ({"distribution": "slackware"}, 'gpu01: distribution is "slackware"', "allowed: debian12"),
        ({"faults": ["gpu-lots"]}, 'fault is "gpu-lots"', "gpu-lost"),
        ("container", 'gpu01: simulated_host is "container"', "allowed: a mapping"),
    ],
)
def test_what_cannot_be_simulated_is_told(variable: object, message: str, fix: str) -> None:
    shape = one(pair("gpu01", {"simulated_host": variable}))
    assert shape.description is None
    assert message in shape.problem
    assert fix in shape.fix


def test_a_distribution_that_debian_stands_in_for_is_not_called_real() -> None:
    rows = {row.thing: row.how for row in build_table([Description(distribution="amazon2023")])}
    assert rows["distribution"] == "stand-in"
    (first, *_) = build_table([Description()])
    assert (first.how, first.detail) == ("real", "debian12, from Debian's archive")


def test_cgpu_is_simulated_in_containers_only() -> None:
    given = pair("gpu01", gpu=GpuSpec(model="T4", count=2), capabilities={"cgpu": Cgpu()})
    assert described(given).cgpu
    assert described(pair("gpu01", capabilities={"cgpu": Cgpu()})).gpu, "it needs a GPU"
    shape = one(given, kind="machine")
    assert shape.description is None
    assert "nothing of its spec can be rehearsed: cgpu: it is simulated as files" in shape.problem


def test_a_gpu_that_the_driver_can_run_stands_in() -> None:
    proprietary = NvidiaDriver(version="580", kernel_modules="proprietary")
    found = described(pair("gpu01", capabilities={"nvidia_driver": proprietary}))
    assert found.gpu
    assert found.gpu.model == "L40S"
    assert described(pair("gpu01", capabilities={"persistence": Persistence()})).gpu


@run_each("host", ["GPU_01.example.com", "x" * 80, "10.0.0.1", "gpu@rack+3", "-"])
def test_names_are_host_names_and_unique(host: str) -> None:
    other = f"{host}%other"
    made = plan_shapes(
        [pair(host), pair(other, reboot="if-needed"), pair(f"{host}.b", reboot="if-needed")], Options(), "1f3a"
    )
    names = [shape.name for shape in made]
    assert len({*names}) == len(names)
    assert all(NAME.fullmatch(name) for name in names), names


@run_each("model", STAND_INS)
def test_stand_ins_are_in_the_catalogue(model: str) -> None:
    assert find_gpu(model)


def test_a_driver_that_no_stand_in_can_run_is_told() -> None:
    shape = one(pair("gpu01", capabilities={"nvidia_driver": NvidiaDriver(version="390", kernel_modules="open")}))
    assert "runs with driver 390" in shape.problem
    assert "simulated_host" in shape.fix


def test_what_no_simulated_host_has_is_left_out() -> None:
    blocks = {"slurm": Slurm(), "hpc": Hpc(), "persistence": Persistence(), "rdma": Rdma(nccl=Nccl(sharp=True))}
    made = one(pair("gpu001", capabilities=blocks))
    assert set(made.spec.capabilities) == {"persistence", "rdma"}
    assert made.spec.capabilities["rdma"] == Rdma()
    for words in (
        "slurm: slurmd and slurm.conf are the cluster's",
        "hpc: a real ucx_info",
        "rdma.nccl.sharp: its plugin",
    ):
        assert any(entry.startswith(words) for entry in made.left_out), words


@run_each(("kind", "kept"), [("container", 2), ("machine", 4)])
def test_settings_of_the_machine_below_a_container_are_left_out(kind: Kind, kept: int) -> None:
    sysctl: dict[str, int | str] = {"net.ipv4.tcp_rmem": "4096 1 2", "net.core.somaxconn": 4096}
    sysctl |= {"vm.swappiness": 10, "net.core.rmem_max": 536870912}
    made = one(pair("gpu01", capabilities={"kernel": Kernel(sysctl=sysctl)}), kind=kind)
    block = made.spec.capabilities["kernel"]
    assert isinstance(block, Kernel)
    assert len(block.sysctl) == kept
    assert any("vm.swappiness, net.core.rmem_max: of the machine" in one for one in made.left_out) is (kept == 2)


def test_modules_of_a_build_host_are_built_by_the_simulated_host_itself() -> None:
    driver = NvidiaDriver(build_host="gpu001")
    made = one(pair("gpu002", capabilities={"nvidia_driver": driver}))
    assert made.spec.capabilities["nvidia_driver"] == NvidiaDriver()
    assert any("build_host gpu001" in note for note in made.notes)
    assert not any(
        "build_host" in note for note in one(pair("gpu002", capabilities={"nvidia_driver": NvidiaDriver()})).notes
    )


@run_each(
    ("model", "cpu", "kept"),
    [("GB200", "auto", Pcie()), ("H100-SXM5-80GB", "amd", Pcie(iommu="passthrough")), ("L40S", "arm", Pcie())],
)
def test_iommu_parameters_are_those_of_this_machines_processor(model: str, cpu: Any, kept: Pcie) -> None:
    block = Pcie(iommu="passthrough", cpu=cpu)
    made = one(pair("gpu01", gpu=GpuSpec(model=model, count=4), capabilities={"pcie": block, "kernel": Kernel()}))
    assert made.spec.capabilities["pcie"] == kept
    assert any(entry.startswith("pcie.") for entry in made.left_out)
    same = one(pair("gpu01", gpu=GpuSpec(model="L40S", count=1), capabilities={"pcie": Pcie(iommu="passthrough")}))
    assert not same.left_out
