"""How contributions to the kernel become one: lists united, limits and known sysctls the larger, the rest must
agree."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuprov.spec.across import report_conflict
from gpuprov.spec.kernel import Conflict, Contribution, Kernel, merge
from gpuprov.spec.problem import Path
from tests.rows import run_each


def merged(**kernels: Kernel) -> tuple[Kernel, list[Conflict]]:
    return merge(Contribution(source, kernel) for source, kernel in kernels.items())


def wanting(room: str, value: Any) -> Kernel:
    return msgspec.structs.replace(Kernel(), **{room: value})


def test_nothing_is_nothing() -> None:
    assert merge([]) == (Kernel(), [])


def test_lists_are_united_in_order() -> None:
    kernel, conflicts = merged(
        kernel=Kernel(blacklist=("radeon", "nouveau"), modules_load=("ib_core",)),
        nouveau=Kernel(blacklist=("nouveau", "nova_core")),
        rdma=Kernel(modules_load=("rdma_cm", "ib_core")),
    )
    assert kernel.blacklist == ("radeon", "nouveau", "nova_core")
    assert kernel.modules_load == ("ib_core", "rdma_cm")
    assert not conflicts


def test_options_of_one_module_come_from_many() -> None:
    kernel, conflicts = merged(
        a=Kernel(module_options={"nvidia": {"NVreg_EnableMSI": 1}}),
        b=Kernel(module_options={"nvidia": {"NVreg_X": "y"}, "ib_core": {}}),
    )
    assert kernel.module_options == {"nvidia": {"NVreg_EnableMSI": 1, "NVreg_X": "y"}, "ib_core": {}}
    assert not conflicts


@run_each(
    ("room", "first", "second", "result"),
    [
        ("limits", {"memlock": 1}, {"memlock": 2}, {"memlock": 2}),
        ("limits", {"memlock": "unlimited"}, {"memlock": 2}, {"memlock": "unlimited"}),
        ("limits", {"memlock": 2}, {"memlock": "unlimited"}, {"memlock": "unlimited"}),
        ("sysctl", {"net.core.rmem_max": 9}, {"net.core.rmem_max": 8}, {"net.core.rmem_max": 9}),
        ("sysctl", {"vm.max_map_count": 8}, {"vm.max_map_count": 9}, {"vm.max_map_count": 9}),
        ("sysctl", {"vm.swappiness": 1}, {"vm.swappiness": "1"}, {"vm.swappiness": 1}),
        ("command_line", {"iommu": "pt"}, {"iommu": "pt", "quiet": ""}, {"iommu": "pt", "quiet": ""}),
        ("module_options", {"x": {"a": True}}, {"x": {"a": 1}}, {"x": {"a": True}}),
        ("module_options", {"x": {"a": "0"}}, {"x": {"a": False}}, {"x": {"a": "0"}}),
    ],
)
def test_values_that_can_be_one(room: str, first: Any, second: Any, result: Any) -> None:
    kernel, conflicts = merged(a=wanting(room, first), b=wanting(room, second))
    assert getattr(kernel, room) == result
    assert not conflicts


@run_each(
    ("room", "first", "second", "setting", "values"),
    [
        ("sysctl", {"vm.swappiness": 1}, {"vm.swappiness": 2}, "sysctl.vm.swappiness", (1, 2)),
        (
            "sysctl",
            {"net.core.default_qdisc": "fq"},
            {"net.core.default_qdisc": "cake"},
            "sysctl.net.core.default_qdisc",
            ("fq", "cake"),
        ),
        ("command_line", {"iommu": "pt"}, {"iommu": "off"}, "command_line.iommu", ("pt", "off")),
        ("module_options", {"x": {"a": 1}}, {"x": {"a": 2}}, "module_options.x.a", (1, 2)),
    ],
)
def test_values_that_must_agree(
    room: str, first: Any, second: Any, setting: str, values: tuple[object, object]
) -> None:
    kernel, conflicts = merged(a=wanting(room, first), b=wanting(room, second), c=wanting(room, first))
    assert conflicts == [Conflict(setting, ("a", "b"), values)]
    assert getattr(kernel, room) == first, "the first stands; a third that agrees with it is not a conflict"


@run_each(
    ("setting", "first", "path"),
    [
        ("module_options.nvidia-current.NVreg_X", "kernel", ("kernel", "module_options", "nvidia-current", "NVreg_X")),
        ("sysctl.net.core.default_qdisc", "kernel", ("kernel", "sysctl", "net.core.default_qdisc")),
        ("command_line.iommu", "rdma", ("b",)),
    ],
)
def test_a_conflict_has_a_place(setting: str, first: str, path: Path) -> None:
    problem = report_conflict(Conflict(setting, (first, "b"), ("x", 2)))
    assert problem.path == path
    assert problem.message == f'kernel.{setting} is "x" by {first} and 2 by b'
