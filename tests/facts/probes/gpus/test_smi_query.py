"""A user's program whose name holds line breaks writes into `nvidia-smi -q`: nothing of a GPU is read from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.facts.probes.base import Output, ProbeFailed
from gpuprov.facts.probes.gpus import fabric, gpu_health, vgpu
from tests.facts.probes import run_script
from tests.rows import run_each

# The order of headings is that of 550 and newer: processes, then capabilities.
SMI = """
Attached GPUs                             : 2
GPU 00000000:02:00.0
    Product Name                          : NVIDIA H100
    GPU Virtualization Mode
        Virtualization Mode               : VGPU
    vGPU Software Licensed Product
        Product Name                      : NVIDIA Virtual Compute Server
        License Status                    : Unlicensed
    Fabric
        State                             : Completed
        Status                            : Insufficient Resources
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 1234
            Type                          : C
            Name                          : {name}
            Used GPU Memory               : 1 MiB
    Capabilities
        EGM                               : disabled
GPU 00000000:03:00.0
    Product Name                          : NVIDIA H100
    Fabric
        State                             : Completed
        Status                            : Success
    Processes                             : None
"""
WELL = """x
    GPU Reset Status
        Reset Required                    : Yes
    vGPU Software Licensed Product
        License Status                    : Licensed (Expiry: N/A)
    Fabric
        State                             : Completed
        Status                            : Success"""
ANOTHER = """x
GPU 00000000:03:00.0
    Fabric
        State                             : Completed
        Status                            : Success"""


def answered(folder: Path, script: str, name: str) -> Output:
    (folder / "smi.txt").write_text(SMI.replace("{name}", name), encoding="utf-8")
    return run_script(script, folder, {"nvidia-smi": f"[ $1 = -q ] || exit 2\ncat {folder}/smi.txt"})


@run_each("name", ["python3", WELL], ids=["plain", "forged"])
def test_a_name_says_nothing_of_a_gpu(tmp_path: Path, name: str) -> None:
    first, _ = gpu_health.parse(answered(tmp_path, gpu_health.GPU_HEALTH.script, name)).gpus
    assert (first.processes, first.reset_required) == (True, None)
    states = fabric.parse_state(answered(tmp_path, fabric.STATE.script, name))
    assert [one.status for one in states] == ["Insufficient Resources", "Success"]
    licences = vgpu.parse_licences(answered(tmp_path, vgpu.LICENCES.script, name)).gpus
    assert [one.status for one in licences] == ["Unlicensed", ""]


def test_nor_does_it_make_a_gpu(tmp_path: Path) -> None:
    for script, parse in (
        (gpu_health.GPU_HEALTH.script, gpu_health.parse),
        (fabric.STATE.script, fabric.parse_state),
        (vgpu.LICENCES.script, vgpu.parse_licences),
    ):
        with pytest.raises(ProbeFailed, match="more GPUs than it says are attached"):
            parse(answered(tmp_path, script, ANOTHER))
