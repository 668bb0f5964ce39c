"""MIG of the stand-in NVML keeps the real one's rules; asked by NVIDIA's own Python binding."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuprov.catalog.gpus import find_gpu
from gpuprov.catalog.mig import list_profiles
from gpuprov.simulate import nvml_models
from tests.rows import run_each
from tests.simulate.nvml_host import Host, pynvml

A100, H100 = "A100-SXM4-40GB", "H100-SXM5-80GB"
FULL = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
"""Compute slices -> NVML_COMPUTE_INSTANCE_PROFILE_* of the compute instance that has them all."""


class Gpu:
    """MIG calls on GPU 0."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.handle = client.nvmlDeviceGetHandleByIndex(0)

    def switch(self, mode: int) -> int:
        return int(self.client.nvmlDeviceSetMigMode(self.handle, mode))

    @property
    def mode(self) -> list[int]:
        return list(self.client.nvmlDeviceGetMigMode(self.handle))

    def create(self, *profiles: int) -> list[tuple[int, int, int]]:
        """(id, start, size) of the instances made of these profiles, by nvidia-smi's number."""
        made = [self.client.nvmlDeviceCreateGpuInstance(self.handle, profile) for profile in profiles]
        told = [self.client.nvmlGpuInstanceGetInfo(instance) for instance in made]
        return [(info.id, info.placement.start, info.placement.size) for info in told]

    def compute(self, instance_id: int, profile: int) -> Any:
        parent = self.client.nvmlDeviceGetGpuInstanceById(self.handle, instance_id)
        return self.client.nvmlGpuInstanceCreateComputeInstance(parent, profile)

    def placements(self, profile: int) -> list[Any]:
        count = ctypes.c_uint()
        ask = self.client.nvmlDeviceGetGpuInstancePossiblePlacements
        ask(self.handle, profile, None, ctypes.byref(count))
        found = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
        ask(self.handle, profile, found, ctypes.byref(count))
        return list(found)

    def free(self, profile: int) -> int:
        return int(self.client.nvmlDeviceGetGpuInstanceRemainingCapacity(self.handle, profile))

    def devices(self) -> list[str]:
        found = []
        for index in range(self.client.nvmlDeviceGetMaxMigDeviceCount(self.handle)):
            try:
                found.append(self.client.nvmlDeviceGetMigDeviceHandleByIndex(self.handle, index))
            except pynvml.NVMLError_NotFound:
                break
        return [self.client.nvmlDeviceGetUUID(device) for device in found]


@contextmanager
def gpu(host: Host, mode: int | None = 1) -> Iterator[Gpu]:
    with host.client() as client:
        made = Gpu(client)
        if mode is not None:
            made.switch(mode)
        yield made


@run_each("model", [key for key in nvml_models.MODELS if (found := find_gpu(key)) and found.mig.capable])
def test_profiles_are_those_of_the_catalogue(tmp_path: Path, model: str) -> None:
    known = find_gpu(model)
    assert known
    with gpu(Host(tmp_path, model, 1)) as mig:
        seen = {}
        for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            try:
                info = mig.client.nvmlDeviceGetGpuInstanceProfileInfo(mig.handle, number, version=2)
            except pynvml.NVMLError_NotSupported:
                continue
            places = mig.placements(info.id)
            name = info.name.removeprefix("MIG ")
            seen[name] = (info.id, info.sliceCount, info.instanceCount, [(p.start, p.size) for p in places])
            assert mig.free(info.id) == info.instanceCount
    assert seen == {
        p.name: (p.nvsmi_id, p.slices, p.max_count, [(start, p.size) for start in p.starts])
        for p in list_profiles(known)
    }


def test_placement_as_the_driver_chooses(tmp_path: Path) -> None:
    """Ids as the MIG guide prints them: https://docs.nvidia.com/datacenter/tesla/mig-user-guide"""
    with gpu(Host(tmp_path / "1", A100, 1)) as mig:
        assert [made[0] for made in mig.create(*[19] * 7)] == [13, 11, 12, 7, 8, 9, 10]
    with gpu(Host(tmp_path / "2", A100, 1)) as mig:
        assert mig.create(19, 14, 5) == [(13, 6, 1), (5, 4, 2), (1, 0, 4)]


def test_destroy_compute_instances_first_and_uuids_change(tmp_path: Path) -> None:
    with gpu(Host(tmp_path, H100, 1)) as mig:
        ((number, _, _),) = mig.create(9)
        compute = mig.compute(number, FULL[3])
        (uuid,) = mig.devices()
        parent = mig.client.nvmlDeviceGetGpuInstanceById(mig.handle, number)
        with pytest.raises(pynvml.NVMLError_InUse):
            mig.client.nvmlGpuInstanceDestroy(parent)
        with pytest.raises(pynvml.NVMLError_InUse):
            mig.switch(0)
        mig.client.nvmlComputeInstanceDestroy(compute)
        assert mig.devices() == []
        mig.compute(number, FULL[3])
        assert mig.devices() != [uuid]
        with pytest.raises(pynvml.NVMLError_NotFound):
            mig.client.nvmlDeviceGetHandleByUUID(uuid)


def test_ampere_waits_for_the_client_to_go(tmp_path: Path) -> None:
    host = Host(tmp_path, A100, 1)
    device = host.write("/dev/nvidia0", "")
    with gpu(host, mode=None) as mig:
        with device.open() as held, subprocess.Popen(["sleep", "60"], stdin=held) as holder:
            held.close()
            assert mig.switch(1) == pynvml.NVML_ERROR_IN_USE
            assert mig.mode == [0, 1]
            with pytest.raises(pynvml.NVMLError_NotSupported):
                mig.create(19)
            holder.kill()
        assert mig.switch(1) == 0
        assert mig.mode == [1, 1]


@run_each(("model", "after"), [(A100, [1, 1]), (H100, [0, 0])])
def test_a_reboot(tmp_path: Path, model: str, after: list[int]) -> None:
    host = Host(tmp_path, model, 1)
    with gpu(host) as mig:
        ((number, _, _),) = mig.create(9)
        mig.compute(number, FULL[3])
        assert len(mig.devices()) == 1
    host.boot(2)
    with gpu(host, mode=None) as mig:
        assert mig.mode == after
        assert mig.devices() == []
        mig.switch(1)
        assert mig.free(9) == 2
