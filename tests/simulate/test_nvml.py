"""The stand-in NVML, asked by NVIDIA's own Python binding: what it says of GPUs, the driver and faults."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import nvml_build, nvml_models
from gpuprov.simulate.description import Description, convert
from gpuprov.simulate.devices import devices
from gpuprov.simulate.parts import nvml
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


@pytest.mark.parametrize("model", list(nvml_models.MODELS))
def test_every_model_answers(tmp_path: Path, model: str) -> None:
    known = nvml_models.MODELS[model]
    gpu = convert({"gpu": {"model": model}}, "test").gpu
    assert gpu is not None
    with Host(tmp_path, model, 8).client() as client:
        handle = client.nvmlDeviceGetHandleByIndex(7)
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


def test_a_model_without_numbers_is_refused() -> None:
    with pytest.raises(GpuprovError, match=r'gpu\.model is "V100-PCIE".*it has: T4, A100') as caught:
        nvml.part("host", convert({"gpu": {"model": "V100-PCIE"}}, "test"))
    assert "nvml_models" in (caught.value.hint or "")


def test_a_host_without_gpu_gets_nothing() -> None:
    assert nvml.part("host", Description()).files == {}


@pytest.mark.parametrize(("version", "cuda", "library"), [("535.261.03", 12020, "12"), ("580.95.05", 13000, "13")])
def test_the_file_name_is_the_version(tmp_path: Path, version: str, cuda: int, library: str) -> None:
    with Host(tmp_path, "T4", 1, version=version).client() as client:
        assert client.nvmlSystemGetDriverVersion() == version
        assert client.nvmlSystemGetNVMLVersion() == f"{library}.{version}"
        assert client.nvmlSystemGetCudaDriverVersion() == cuda


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


def test_persistence_mode(tmp_path: Path) -> None:
    host = Host(tmp_path, H100, 2)
    with host.client() as client:
        first, second = (client.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
        client.nvmlDeviceSetPersistenceMode(first, 1)
        assert [client.nvmlDeviceGetPersistenceMode(gpu) for gpu in (first, second)] == [1, 0]
        client.nvmlDeviceSetPersistenceMode(first, 0)
        assert client.nvmlDeviceGetPersistenceMode(first) == 0
        # A daemon keeps it only as long as it lives; this process is none.
        host.write("/run/gpuprov-sim/persistence/0", f"{os.getpid()}\n")
        assert client.nvmlDeviceGetPersistenceMode(first) == 0
        sleep = shutil.copy(shutil.which("sleep") or "", tmp_path / "nvidia-persistenced")
        with subprocess.Popen([sleep, "60"]) as daemon:
            host.write("/run/gpuprov-sim/persistence/0", f"{daemon.pid}\n")
            assert client.nvmlDeviceGetPersistenceMode(first) == 1
            daemon.kill()
        assert client.nvmlDeviceGetPersistenceMode(first) == 0


def test_the_fabric_state_is_what_the_fabric_manager_left(tmp_path: Path) -> None:
    host = Host(tmp_path / "switched", H100, 2, nvswitch=3)
    with host.client() as client:
        handle = client.nvmlDeviceGetHandleByIndex(0)
        assert client.nvmlDeviceGetNvLinkState(handle, 17) == 1

        def state() -> int:
            answer = client.c_nvmlGpuFabricInfo_v2_t()
            answer.version = client.nvmlGpuFabricInfo_v2
            client.nvmlDeviceGetGpuFabricInfoV(handle, client.byref(answer))
            return int(answer.state)

        assert state() == client.NVML_GPU_FABRIC_STATE_IN_PROGRESS
        host.write("/run/gpuprov-sim/fabric", "Completed\n")
        assert state() == client.NVML_GPU_FABRIC_STATE_COMPLETED


def test_nvlinks_have_a_number_and_a_speed(tmp_path: Path) -> None:
    def asked(model: str) -> list[object]:
        host = Host(tmp_path / model, model, 1)
        with host.client() as client:
            handle = client.nvmlDeviceGetHandleByIndex(0)
            fields = [client.NVML_FI_DEV_NVLINK_LINK_COUNT, (client.NVML_FI_DEV_NVLINK_GET_STATE, 17),
                      (client.NVML_FI_DEV_NVLINK_GET_SPEED, 17),
                      (client.NVML_FI_DEV_NVLINK_GET_SPEED, 18), client.NVML_FI_DEV_NVLINK_SPEED_MBPS_L6,
                      client.NVML_FI_DEV_MEMORY_TEMP]  # fmt: skip
            told = client.nvmlDeviceGetFieldValues(handle, fields)
            return [one.value.uiVal if one.nvmlReturn == 0 else "not supported" for one in told]

    assert asked(H100) == [18, 1, 26562, "not supported", 26562, "not supported"]
    assert asked("A30") == [4, "not supported", "not supported", "not supported", "not supported", "not supported"]
    assert asked("T4") == ["not supported"] * 6
    host = Host(tmp_path / "down", H100, 2)
    host.write("/var/lib/gpuprov-sim/faults/nvlink-down", "1\n")
    with host.client() as client:
        handles = [client.nvmlDeviceGetHandleByIndex(index) for index in (0, 1)]
        assert [client.nvmlDeviceGetNvLinkState(handle, link) for handle in handles for link in (0, 1)] == [1, 1, 0, 1]


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


def test_the_library_is_built_once() -> None:
    made = nvml_build.build()
    before = made.stat().st_mtime_ns
    assert nvml_build.build() == made
    assert made.stat().st_mtime_ns == before
