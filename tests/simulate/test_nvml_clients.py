"""Who uses what, in the stand-in NVML: capabilities of MIG instances, processes, compute mode; asked by NVIDIA's own
binding."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.simulate.nvml_host import Host, holding, pynvml
from tests.simulate.test_nvml_mig import A100, FULL, H100, gpu

NO = 0xFFFFFFFF  # an instance, where there is none
EXCLUSIVE = pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
# Minor numbers as /proc/driver/nvidia-caps/mig-minors has them: "gpu0/gi1/access 12", "gpu0/gi1/ci0/access 13".
GI1, GI1_CI0, GI1_CI1, GI2 = (f"nvidia-cap{minor}" for minor in (12, 13, 14, 21))


def pids(client: Any, device: Any) -> list[tuple[int, int, int]]:
    found = client.nvmlDeviceGetComputeRunningProcesses(device)
    assert all(process.usedGpuMemory is None for process in found)
    return [(process.pid, process.gpuInstanceId, process.computeInstanceId) for process in found]


def test_capabilities_follow_the_instances(tmp_path: Path) -> None:
    host = Host(tmp_path, H100, 1)
    assert host.capabilities() == {}
    with gpu(host) as mig:
        assert [made[0] for made in mig.create(9, 9)] == [2, 1]
        first = mig.compute(1, 0)
        mig.compute(1, 0)
        shown = host.capabilities()
        assert list(shown) == ["gi1/access", "gi1/ci0/access", "gi1/ci1/access", "gi2/access"]
        assert shown["gi1/ci1/access"] == "DeviceFileMinor: 14\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
        assert host.nodes() == {GI1, GI1_CI0, GI1_CI1, GI2}
        assert (tmp_path / "dev/nvidia-caps" / GI1).stat().st_mode & 0o777 == 0o444
        mig.client.nvmlComputeInstanceDestroy(first)
        mig.client.nvmlGpuInstanceDestroy(mig.client.nvmlDeviceGetGpuInstanceById(mig.handle, 2))
        assert list(host.capabilities()) == ["gi1/access", "gi1/ci1/access"]
        assert host.nodes() == {GI1, GI1_CI1}


def test_no_capabilities_where_the_host_shows_none(tmp_path: Path) -> None:
    with gpu(Host(tmp_path, H100, 1)) as mig:
        mig.create(9)
    assert not (tmp_path / "dev").exists()


def test_an_instance_in_use_stays(tmp_path: Path) -> None:
    host = Host(tmp_path, H100, 1)
    host.capabilities()
    with gpu(host) as mig:
        mig.create(9, 9)
        used, other = mig.compute(1, FULL[3]), mig.compute(2, FULL[3])
        device, idle = (mig.client.nvmlDeviceGetHandleByUUID(uuid) for uuid in mig.devices())
        folder = tmp_path / "dev/nvidia-caps"
        with holding(folder / GI1, folder / GI1_CI0) as pid:
            assert pids(mig.client, mig.handle) == pids(mig.client, device) == [(pid, 1, 0)]
            assert pids(mig.client, idle) == []
            with pytest.raises(pynvml.NVMLError_InUse):
                mig.client.nvmlComputeInstanceDestroy(used)
            mig.client.nvmlComputeInstanceDestroy(other)
            mig.client.nvmlGpuInstanceDestroy(mig.client.nvmlDeviceGetGpuInstanceById(mig.handle, 2))
            with pytest.raises(pynvml.NVMLError_InUse):
                mig.switch(0)
        assert pids(mig.client, mig.handle) == []
        mig.client.nvmlComputeInstanceDestroy(used)
        with holding(folder / GI1), pytest.raises(pynvml.NVMLError_InUse):
            mig.client.nvmlGpuInstanceDestroy(mig.client.nvmlDeviceGetGpuInstanceById(mig.handle, 1))


def test_processes_of_a_whole_gpu(tmp_path: Path) -> None:
    host = Host(tmp_path, H100, 2)
    held, other, memory = (host.write(f"/dev/nvidia{name}", "") for name in ("0", "1", "-uvm"))
    with host.client() as client, holding(held, memory) as one, holding(held, other, memory) as two, holding(held):
        first, second = (client.nvmlDeviceGetHandleByIndex(index) for index in range(2))
        assert sorted(pids(client, first)) == sorted([(one, NO, NO), (two, NO, NO)])
        assert pids(client, second) == [(two, NO, NO)]
        assert client.nvmlDeviceGetComputeRunningProcesses_v2(second)[0].pid == two
        assert client.nvmlDeviceGetGraphicsRunningProcesses(first) == []
        assert client.nvmlDeviceGetMPSComputeRunningProcesses(first) == []


def test_compute_mode_lasts_until_the_next_boot(tmp_path: Path) -> None:
    host = Host(tmp_path, "L40S", 2)
    with host.client() as client:
        first, second = (client.nvmlDeviceGetHandleByIndex(index) for index in range(2))
        client.nvmlDeviceSetComputeMode(first, EXCLUSIVE)
        assert [client.nvmlDeviceGetComputeMode(device) for device in (first, second)] == [EXCLUSIVE, 0]
        with pytest.raises(pynvml.NVMLError_NotSupported):
            client.nvmlDeviceSetComputeMode(second, pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD)
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            client.nvmlDeviceSetComputeMode(second, 4)
    with host.client() as client:
        assert client.nvmlDeviceGetComputeMode(client.nvmlDeviceGetHandleByIndex(0)) == EXCLUSIVE
    host.boot(2)
    with host.client() as client:
        assert client.nvmlDeviceGetComputeMode(client.nvmlDeviceGetHandleByIndex(0)) == 0


def test_a_mig_gpu_has_the_default_compute_mode_only(tmp_path: Path) -> None:
    with gpu(Host(tmp_path, H100, 1), mode=None) as mig:
        client = mig.client
        client.nvmlDeviceSetComputeMode(mig.handle, EXCLUSIVE)
        mig.switch(1)
        assert client.nvmlDeviceGetComputeMode(mig.handle) == 0
        mig.create(9)
        mig.compute(2, FULL[3])
        device = client.nvmlDeviceGetHandleByUUID(mig.devices()[0])
        for handle in (mig.handle, device):
            with pytest.raises(pynvml.NVMLError_NotSupported):
                client.nvmlDeviceSetComputeMode(handle, EXCLUSIVE)
        client.nvmlDeviceSetComputeMode(device, 0)
        assert client.nvmlDeviceGetComputeMode(device) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up its rights")
def test_only_root_sets_the_compute_mode(tmp_path: Path) -> None:
    host = Host(tmp_path, "T4", 1)
    with host.client() as client:
        (tmp_path / "var/lib/gpuprov-sim").chmod(0o555)
        os.seteuid(65534)
        try:
            with pytest.raises(pynvml.NVMLError_NoPermission):
                client.nvmlDeviceSetComputeMode(client.nvmlDeviceGetHandleByIndex(0), EXCLUSIVE)
        finally:
            os.seteuid(0)


@pytest.mark.parametrize(("model", "after"), [(A100, [1, 1]), (H100, [0, 0])])
def test_a_module_that_is_loaded_anew_knows_of_no_instance(tmp_path: Path, model: str, after: list[int]) -> None:
    host = Host(tmp_path, model, 1)
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    with gpu(host) as mig:
        mig.create(9)
    (tmp_path / "sys/module/other").mkdir()  # so that the next folder has another inode
    (tmp_path / "sys/module/nvidia").rmdir()
    (tmp_path / "sys/module/third").mkdir()
    (tmp_path / "sys/module/nvidia").mkdir()
    with gpu(host, mode=None) as mig:
        assert mig.mode == after
        mig.switch(1)
        assert mig.free(9) == 2
