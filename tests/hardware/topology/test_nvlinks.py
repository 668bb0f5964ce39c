"""What is told of NVLinks: those that are down, those that nobody knows of."""

from __future__ import annotations

from tests.hardware.topology.machines import H100_PCIE, Machine, hgx_h100
from tests.hardware.topology.others import hgx_b200
from tests.hardware.topology.test_findings import told
from tests.rows import run_each


def test_nvlinks_that_are_down() -> None:
    warnings, notes = told(hgx_b200(lost=(2,)))
    assert warnings == ["GPU2 has 0 NVLinks up; B200 has 18"]
    assert notes == [
        "GPUs on different sockets without NVLink between them: GPU2-GPU4, GPU2-GPU5, GPU2-GPU6, GPU2-GPU7"
    ]


def test_a_gpu_in_mig_mode_is_not_judged() -> None:
    machine = hgx_h100(lost=(2,))
    machine.gpus[2] = machine.gpus[2].replace("Disabled", "Enabled")
    assert told(machine)[0] == []


@run_each(
    ("device", "links", "lost", "warnings"),
    [
        (H100_PCIE, 18, (), []),
        (H100_PCIE, 18, (0, 1), []),
        (H100_PCIE, 12, (0,), ["GPU0 has 0 NVLinks up; H100-PCIE has 12"]),
        ("20b5", 12, (1,), ["GPU1 has 0 NVLinks up; another A100-PCIE-80GB here has 12"]),
        ("20b5", 12, (0, 1), []),
        (
            "3182",
            18,
            (0, 1),
            ["GPU0 has 0 NVLinks up; B300 has at least 1", "GPU1 has 0 NVLinks up; B300 has at least 1"],
        ),
        ("3182", 18, (1,), ["GPU1 has 0 NVLinks up; another B300 here has 18"]),
    ],
)
def test_nvlinks_by_model(device: str, links: int, lost: tuple[int, ...], warnings: list[str]) -> None:
    machine = Machine(sockets={0: 0})
    for number in range(2):
        machine.gpu(f"pci0000:1{number}/0000:1{number}:01.0/0000:2{number}:00.0", device, 0)
    machine.joined(links, lost=lost)
    assert told(machine)[0] == warnings


def test_without_nvidia_smi() -> None:
    machine = hgx_h100()
    machine.smi = False
    warnings, notes = told(machine)
    assert warnings == []
    assert notes[0] == "NVLinks are not known: nvidia-smi is not installed"
    assert not [note for note in notes if "without NVLink" in note]


def test_a_gpu_that_nvidia_smi_does_not_show() -> None:
    """The driver lost GPU2, so that nvidia-smi counts on without it; the bus still has it."""
    machine = Machine(sockets={0: 0})
    for number in range(4):
        machine.gpu(f"pci0000:1{number}/0000:1{number}:01.0/0000:2{number}:00.0", "20b0", 0, now="16.0 GT/s PCIe x16")
    machine.joined(12, pairs=((2, 3),))
    machine.gpus = [f"gpu|{index}, 00000000:2{bus}:00.0, P0, Disabled" for index, bus in enumerate((0, 1, 3))]
    machine.nvlinks = {index: machine.nvlinks[index] for index in range(3)}
    machine.matrix = [
        "topo|\tGPU0\tGPU1\tGPU2",
        "topo|GPU0\t X \tSYS\tNV12",
        "topo|GPU1\tSYS\t X \tSYS",
        "topo|GPU2\tNV12\tSYS\t X ",
    ]
    assert told(machine)[0] == ["nvidia-smi does not show GPU2 (0000:22:00.0)"]
    wiring = machine.read()
    assert [gpu.name for gpu in wiring.gpus if gpu.nvlink is None] == ["GPU2"]
    assert wiring.nvlinks.pairs == {(0, 3): 12}
    assert wiring.between(wiring.gpus[0], wiring.gpus[3]) == "NV12"
    assert wiring.between(wiring.gpus[0], wiring.gpus[2]) == "NODE"
