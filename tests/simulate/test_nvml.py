"""The stand-in NVML, asked by NVIDIA's own Python binding: what it says of GPUs, the driver and faults."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gpuprov.catalog.gpus import find_gpu
from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import nvml_models
from gpuprov.simulate.description import Description, convert
from gpuprov.simulate.devices import devices
from gpuprov.simulate.parts import nvml
from tests.rows import run_each
from tests.simulate.nvml_host import VERSION, Host, pynvml

H100 = "H100-SXM5-80GB"
MIB = 1024 * 1024


def test_gpus_are_those_of_the_description(tmp_path: Path) -> None:
    made = devices("host", convert({"gpu": {"model": H100, "count": 4}}, "test"))
    with Host(tmp_path, H100, 4).client() as client:
        assert client.nvmlDeviceGetCount() == 4
        for device in made:
            handle = client.nvmlDeviceGetHandleByIndex(device.index)
            assert client.nvmlDeviceGetName(handle) == "NVIDIA H100 80GB HBM3"
            assert client.nvmlDeviceGetUUID(handle) == device.uuid
            pci = client.nvmlDeviceGetPciInfo(handle)
            assert pci.busId.lower() == f"0000{device.address}"
            assert pci.pciDeviceId == 0x233010DE
            found = client.nvmlDeviceGetHandleByPciBusId(device.address)
            assert client.nvmlDeviceGetIndex(found) == device.index
            assert client.nvmlDeviceGetIndex(client.nvmlDeviceGetHandleByUUID(device.uuid)) == device.index


@run_each("model", list(nvml_models.MODELS))
def test_every_model_answers(tmp_path: Path, model: str) -> None:
    known = nvml_models.MODELS[model]
    gpu = convert({"gpu": {"model": model}}, "test").gpu
    assert gpu is not None
    with Host(tmp_path, model, 8).client() as client:
        handle = client.nvmlDeviceGetHandleByIndex(7)
        assert client.nvmlDeviceGetName(handle) in [alias.name for alias in gpu.known.aliases], (
            "as the driver prints it"
        )
        assert client.nvmlDeviceGetMemoryInfo(handle).total == known.memory * MIB
        assert client.nvmlDeviceGetMemoryInfo(handle, version=client.nvmlMemory_v2).reserved == known.reserved * MIB
        assert client.nvmlDeviceGetEnforcedPowerLimit(handle) == known.power * 1000
        assert client.nvmlDeviceGetMaxClockInfo(handle, client.NVML_CLOCK_MEM) == known.memory_clock
        assert client.nvmlDeviceGetCurrPcieLinkGeneration(handle) == known.pcie
        major, minor = client.nvmlDeviceGetCudaComputeCapability(handle)
        assert f"{major}.{minor}" == gpu.known.compute_capability
        assert client.nvmlDeviceGetComputeRunningProcesses(handle) == []
        with pytest.raises(pynvml.NVMLError_NotSupported):
            client.nvmlDeviceGetFanSpeed(handle)


@run_each("model", list(nvml_models.UNPUBLISHED))
def test_numbers_of_another_model_are_said_to_be_its(model: str) -> None:
    like, fields = nvml_models.UNPUBLISHED[model]
    for field in fields:
        assert getattr(nvml_models.MODELS[model], field) == getattr(nvml_models.MODELS[like], field)
    gpu = find_gpu(model)
    assert gpu
    assert f"are those of {like}" in nvml_models.explain_unpublished(gpu)


def test_a_model_without_numbers_is_refused() -> None:
    with pytest.raises(GpuprovError, match=r'gpu\.model is "V100-PCIE".*it has: T4, A100') as caught:
        nvml.part("host", convert({"gpu": {"model": "V100-PCIE"}}, "test"))
    assert "nvml_models" in (caught.value.fix or "")


def test_a_host_without_gpu_gets_nothing() -> None:
    assert nvml.part("host", Description()).files == {}


def test_no_driver_and_another_driver(tmp_path: Path) -> None:
    host = Host(tmp_path, "T4", 1)
    host.loaded("535.261.03")
    with pytest.raises(pynvml.NVMLError_LibRmVersionMismatch), host.client():
        pass
    host.remove("/proc/driver/nvidia/version")
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded), host.client():
        pass
    host.loaded(VERSION)
    with host.client() as client:
        assert client.nvmlDeviceGetCount() == 1


def test_a_lost_gpu(tmp_path: Path) -> None:
    host = Host(tmp_path, H100, 2)
    with host.client() as client:
        handle = client.nvmlDeviceGetHandleByIndex(1)
        host.write("/var/lib/gpuprov-sim/faults/gpu-lost", "1\n")
        for ask in (client.nvmlDeviceGetUUID, client.nvmlDeviceGetPersistenceMode, client.nvmlDeviceGetMigMode):
            with pytest.raises(pynvml.NVMLError_GpuIsLost):
                ask(handle)
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            client.nvmlDeviceGetHandleByIndex(1)
        assert client.nvmlDeviceGetName(client.nvmlDeviceGetHandleByIndex(0))


def test_functions_of_a_real_nvml(tmp_path: Path) -> None:
    """Programs look functions up by name, and give up where one is missing."""
    binding = Path(pynvml.__file__).read_text()
    wanted = set(
        re.findall(r'_nvmlGetFunctionPointer\("(nvml(?:Device|GpuInstance|ComputeInstance)[A-Za-z0-9_]*)"', binding)
    )
    host = Host(tmp_path, "T4", 1)
    listed = subprocess.run(["nm", "-D", "--defined-only", host.library], capture_output=True, text=True, check=True)
    has = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert all(name.startswith("nvml") for name in has)
    newer = wanted - has  # functions of drivers after 550
    assert len(wanted & has) > 200, sorted(newer)
