"""The distances computed from a PCI tree are those that nvidia-smi printed on such a machine."""

from __future__ import annotations

from collections.abc import Callable

from gpuprov.hardware.topology.model import Gpu, Hca, Wiring, parse_place
from gpuprov.hardware.topology.text import format_cell
from tests.hardware.topology.machines import Machine, hgx_h100
from tests.hardware.topology.others import crowded, dgx2, dgx_a100, grace, hgx_b200, l40s, shared, vm
from tests.rows import run_each


def far(wiring: Wiring, index: int) -> str:
    """A GPU's row of the matrix: GPUs, then HCAs in the order of their names' numbers."""
    gpu = wiring.gpus[index]
    hcas = sorted(wiring.hcas, key=lambda hca: int("".join(filter(str.isdigit, hca.name.removeprefix("mlx5_"))) or 0))
    ends: tuple[Gpu | Hca, ...] = (*wiring.gpus, *hcas)
    return " ".join(format_cell(wiring, gpu, one) for one in ends)


# Rows as published, without the columns that are not distance.
B200_16336 = (  # https://github.com/vllm-project/vllm/issues/16336: the third GPU lost its NVLinks
    "X NV18 NODE NV18 NV18 NV18 NV18 NV18 PXB NODE NODE NODE SYS SYS SYS SYS NODE NODE SYS SYS",
    "NV18 X NODE NV18 NV18 NV18 NV18 NV18 NODE PXB NODE NODE SYS SYS SYS SYS NODE NODE SYS SYS",
    "NODE NODE X NODE SYS SYS SYS SYS NODE NODE PXB NODE SYS SYS SYS SYS NODE NODE SYS SYS",
    "NV18 NV18 NODE X NV18 NV18 NV18 NV18 NODE NODE NODE PXB SYS SYS SYS SYS NODE NODE SYS SYS",
    "NV18 NV18 SYS NV18 X NV18 NV18 NV18 SYS SYS SYS SYS PXB NODE NODE NODE SYS SYS NODE NODE",
    "NV18 NV18 SYS NV18 NV18 X NV18 NV18 SYS SYS SYS SYS NODE PXB NODE NODE SYS SYS NODE NODE",
)
DGX2_78 = (  # https://github.com/NVIDIA/nccl-tests/issues/78
    "PIX PXB NODE NODE SYS SYS SYS SYS SYS SYS",
    "PIX PXB NODE NODE SYS SYS SYS SYS SYS SYS",
    "PXB PIX NODE NODE SYS SYS SYS SYS SYS SYS",
    "PXB PIX NODE NODE SYS SYS SYS SYS SYS SYS",
    "NODE NODE PIX PXB SYS SYS SYS SYS SYS SYS",
)
DGX_A100_1505 = (  # https://github.com/NVIDIA/nccl/issues/1505: NUMA nodes 3, 1, 7, 5; its HCAs of other use are not here
    "PXB PXB SYS SYS SYS SYS SYS SYS",
    "PXB PXB SYS SYS SYS SYS SYS SYS",
    "SYS SYS PXB PXB SYS SYS SYS SYS",
    "SYS SYS PXB PXB SYS SYS SYS SYS",
)
HGX_3817 = (  # https://github.com/sgl-project/sglang/issues/3817: 8 H200, without its two NICs of the second socket
    "X NV18 NV18 NV18 NV18 NV18 NV18 NV18 PIX NODE NODE NODE SYS SYS SYS SYS",
    "NV18 X NV18 NV18 NV18 NV18 NV18 NV18 NODE PIX NODE NODE SYS SYS SYS SYS",
)


@run_each(
    ("machine", "rows", "columns"),
    [
        (hgx_b200(lost=(2,)), B200_16336, 0),
        (dgx2(), DGX2_78, 16),
        (dgx_a100(), DGX_A100_1505, 8),
        (hgx_h100(), HGX_3817, 0),
    ],
)
def test_as_nvidia_smi_printed_it(machine: Machine, rows: tuple[str, ...], columns: int) -> None:
    wiring = machine.read()
    assert [" ".join(far(wiring, index).split()[columns:]) for index in range(len(rows))] == list(rows)


def test_a_dgx_a100_has_nvlinks_between_all() -> None:
    wiring = dgx_a100().read()
    assert far(wiring, 1).split()[:8] == ["NV12", "X", *["NV12"] * 6]
    assert wiring.switched


def test_devices_of_unknown_numa_nodes_are_far_where_there_are_several() -> None:
    """https://github.com/NVIDIA/nccl/issues/1264: GPU0 is on NUMA node 0, and all HCAs but its own are SYS."""
    machine = hgx_h100()
    for cells in machine.functions.values():
        if cells[11]:
            cells[5] = "-1"
    wiring = machine.read()
    assert far(wiring, 0).split()[8:] == ["PIX", *["SYS"] * 7]


@run_each(
    ("machine", "rows"),
    [
        (
            l40s(),
            ("X NODE SYS SYS PHB SYS", "NODE X SYS SYS NODE SYS", "SYS SYS X NODE SYS PHB", "SYS SYS NODE X SYS NODE"),
        ),
        (vm(), ("X NV18 PHB PHB", "NV18 X PHB PHB")),
        (
            grace(),
            (
                "X NV18 NV18 NV18 NODE NODE SYS SYS",
                "NV18 X NV18 NV18 NODE NODE SYS SYS",
                "NV18 NV18 X NV18 SYS SYS NODE NODE",
            ),
        ),
    ],
)
def test_machines_without_switches(machine: Machine, rows: tuple[str, ...]) -> None:
    wiring = machine.read()
    assert [far(wiring, index) for index in range(len(rows))] == list(rows)


def test_functions_of_one_card_are_near() -> None:
    machine = Machine()
    machine.gpu("pci0000:16/0000:16:01.0/0000:17:00.0", "2230", 0)
    machine.hca("pci0000:16/0000:16:03.0/0000:18:00.0", "mlx5_0", 0)
    machine.hca("pci0000:16/0000:16:03.0/0000:18:00.1", "mlx5_1", 0)
    wiring = machine.read()
    assert wiring.distance(wiring.hcas[0].function, wiring.hcas[1].function) == "PIX"
    assert wiring.distance(wiring.gpus[0].function, wiring.hcas[1].function) == "PHB"


@run_each("make", [hgx_h100, hgx_b200, dgx2, dgx_a100, l40s, vm, grace, shared, crowded])
def test_a_distance_is_the_same_from_both_sides(make: Callable[[], Machine]) -> None:
    wiring = make().read()
    ends = [*(gpu.function for gpu in wiring.gpus), *(hca.function for hca in wiring.hcas)]
    for one in ends:
        for other in ends:
            assert wiring.distance(one, other) == wiring.distance(other, one)


def test_what_is_no_pci_address_has_no_place() -> None:
    assert parse_place("0000:3b:00.1") == (0, 0x3B, 0, 1)
    assert parse_place("") == parse_place("{{ x }}") == parse_place("0000:zz:00.0") == ()
