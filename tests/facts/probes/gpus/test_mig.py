"""The reader of MIG: asked of the stand-in NVML, compared with NVIDIA's own binding; and what it says where there is
nothing."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuprov.catalog.gpus import find_gpu
from gpuprov.catalog.mig import list_profiles
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.gpus import mig, mig_reader
from tests.simulate.nvml_host import ROOT, Host, holding, pynvml

pytestmark = pytest.mark.install  # programs, started again and again

A100, H100, RTX = "A100-SXM4-40GB", "H100-SXM5-80GB", "RTX-PRO-6000-SE"


def read(host: Host | None, **environment: str) -> mig.MigState:
    """What the probe says, its script run by sh as on a host."""
    known = {"PATH": os.environ["PATH"], **environment}
    if host:
        link = host.root / "libnvidia-ml.so.1"
        if not link.is_symlink():
            link.symlink_to(host.library)
        known |= {"LD_LIBRARY_PATH": str(host.root), ROOT: str(host.root)}
    done = subprocess.run(["sh", "-c", mig.STATE.script], env=known, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 127), done.stderr
    return mig.parse_state(Output(done.stdout, done.returncode, done.stderr))


def cut(client: Any, profile: int, *compute: int) -> None:
    """A GPU instance on GPU 0, by nvidia-smi's number, and compute instances in it."""
    handle = client.nvmlDeviceGetHandleByIndex(0)
    made = client.nvmlDeviceCreateGpuInstance(handle, profile)
    for number in compute:
        client.nvmlGpuInstanceCreateComputeInstance(made, number)


def test_structures_are_those_of_nvidias_binding() -> None:
    pairs = {
        mig_reader.Pci: pynvml.nvmlPciInfo_t,
        mig_reader.Profile: pynvml.c_nvmlGpuInstanceProfileInfo_v2_t,
        mig_reader.Unnamed: pynvml.c_nvmlGpuInstanceProfileInfo_t,
        mig_reader.Memory: pynvml.c_nvmlMemory_t,
        mig_reader.GpuInstance: pynvml.c_nvmlGpuInstanceInfo_t,
        mig_reader.ComputeProfile: pynvml.c_nvmlComputeInstanceProfileInfo_t,
        mig_reader.ComputeInstance: pynvml.c_nvmlComputeInstanceInfo_t,
        mig_reader.Process: pynvml.c_nvmlProcessInfo_v2_t,
    }
    assert [ctypes.sizeof(mine) for mine in pairs] == [ctypes.sizeof(theirs) for theirs in pairs.values()]
    same = {
        ("Profile", "count"): "instanceCount", ("Profile", "memory"): "memorySizeMB", ("Profile", "name"): "name",
        ("GpuInstance", "place"): "placement", ("ComputeInstance", "place"): "placement",
        ("Process", "gi"): "gpuInstanceId",
        ("Pci", "sub"): "pciSubSystemId", ("ComputeProfile", "count"): "instanceCount",
    }  # fmt: skip
    for (name, mine), theirs in same.items():
        ours = getattr(mig_reader, name)
        assert getattr(ours, mine).offset == getattr(pairs[ours], theirs).offset, (name, mine)
    assert ctypes.sizeof(mig_reader.Profile) | 2 << 24 == pynvml.nvmlGpuInstanceProfileInfo_v2


def test_what_it_reads_is_what_nvidias_binding_says(tmp_path: Path) -> None:
    host = Host(tmp_path, H100, 2)
    with host.client() as client:
        client.nvmlDeviceSetMigMode(client.nvmlDeviceGetHandleByIndex(0), 1)
        cut(client, 9, 0, 0)
        cut(client, 14, 1)
        first, second = read(host).gpus
        handle = client.nvmlDeviceGetHandleByIndex(0)
        told = [(one.id, one.profile, one.start, one.size) for one in first.instances]
        assert sorted(name for _, name, _, _ in told) == ["2g.20gb", "3g.40gb"]
        for number, _, start, size in told:
            info = client.nvmlGpuInstanceGetInfo(client.nvmlDeviceGetGpuInstanceById(handle, number))
            assert (start, size) == (info.placement.start, info.placement.size)
        parts = [part for one in first.instances for part in one.compute]
        assert [(part.slices, part.number) for part in sorted(parts, key=lambda one: one.number or 0)] == [
            (part.slices, number) for number, part in enumerate(sorted(parts, key=lambda one: one.number or 0))
        ]
        for part in parts:
            device = client.nvmlDeviceGetMigDeviceHandleByIndex(handle, part.number)
            assert part.uuid == client.nvmlDeviceGetUUID(device)
            assert part.id == client.nvmlDeviceGetComputeInstanceId(device)
        pci = client.nvmlDeviceGetPciInfo(handle)
        assert first.pci == f"0x{pci.pciDeviceId:08X}" == "0x233010DE"
        assert first.subsystem == f"0x{pci.pciSubSystemId:08X}"
        assert first.uuid == client.nvmlDeviceGetUUID(handle)
    assert sorted(part.slices for part in parts) == [1, 1, 2]
    assert (first.capable, first.current, first.pending, first.index, first.number) == (True, True, True, 0, 0)
    assert (second.capable, second.current, second.instances, second.profiles) == (True, False, (), ())
    assert (first.name, first.address < second.address) == ("NVIDIA H100 80GB HBM3", True)


def test_profiles_are_those_of_the_catalogue(tmp_path: Path) -> None:
    host = Host(tmp_path, RTX, 1)
    with host.client() as client:
        client.nvmlDeviceSetMigMode(client.nvmlDeviceGetHandleByIndex(0), 1)
    known = find_gpu(RTX)
    assert known
    (gpu,) = read(host).gpus
    assert {(one.name, one.id, one.slices, one.count, one.size, one.starts) for one in gpu.profiles} == {
        (one.name, one.nvsmi_id, one.slices, one.max_count, one.size, one.starts) for one in list_profiles(known)
    }


@pytest.mark.parametrize("model", [A100, H100])
def test_a_driver_that_does_not_name_its_profiles(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML of branch 470 has no nvmlDeviceGetGpuInstanceProfileInfoV:
    https://docs.nvidia.com/deploy/archive/R470/nvml-api/"""
    host = Host(tmp_path, model, 1)
    with host.client() as client:
        client.nvmlDeviceSetMigMode(client.nvmlDeviceGetHandleByIndex(0), 1)
        cut(client, 9, 0, 0)
        cut(client, 14, 1)
        (named,) = read(host).gpus
        older = mig.STATE.script.replace("nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlOfALaterBranch")
        monkeypatch.setattr(mig, "STATE", Probe("mig", older, mig.parse_state, ""))
        state = read(host)
    assert not state.unread
    (unnamed,) = state.gpus
    assert [one.name for one in unnamed.profiles] == [one.name for one in named.profiles]
    assert [(one.profile, one.start) for one in unnamed.instances] == [
        (one.profile, one.start) for one in named.instances
    ]


def test_a_pending_mode_and_a_gpu_without_mig(tmp_path: Path) -> None:
    host = Host(tmp_path / "1", A100, 1)
    device = host.write("/dev/nvidia0", "")
    with device.open() as held, subprocess.Popen(["sleep", "60"], stdin=held) as holder:
        with host.client() as client:
            client.nvmlDeviceSetMigMode(client.nvmlDeviceGetHandleByIndex(0), 1)
        (gpu,) = read(host).gpus
        assert (gpu.current, gpu.pending) == (False, True)
        holder.kill()
    (plain,) = read(Host(tmp_path / "2", "T4", 1)).gpus
    assert (plain.capable, plain.current, plain.name) == (False, False, "Tesla T4")


def test_a_lost_gpu_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    host = Host(tmp_path, H100, 2)
    host.write("/var/lib/gpuprov-sim/faults/gpu-lost", "1\n")
    state = read(host)
    assert [gpu.number for gpu in state.gpus] == [0]
    assert state.unread == ("GPU 1: GPU is lost",)


def test_no_library_no_driver_and_no_python(tmp_path: Path) -> None:
    assert "libnvidia-ml.so.1" in read(None).complaint
    host = Host(tmp_path / "1", H100, 1)
    host.remove("/proc/driver/nvidia/version")
    assert read(host).complaint == "Driver Not Loaded"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").symlink_to(shutil.which("sh") or "/bin/sh")
    assert "python3 is not installed" in read(None, PATH=str(tmp_path / "bin")).complaint


def test_a_reader_that_crashed_or_says_nothing_is_a_complaint() -> None:
    assert mig.parse_state(Output("", 139, "")).complaint == "the reader of NVML ended with status 139"
    assert mig.parse_state(Output("", 1, "Traceback\n  oops")).complaint == "Traceback oops"


def test_it_runs_under_old_pythons() -> None:
    """Python 3.6 is the oldest on a host: no syntax of a later one."""
    import ast

    ast.parse(mig.READER, feature_version=(3, 6))
    assert "from __future__" not in mig.READER


def run(script: str) -> str:
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_capabilities_and_their_device_files(tmp_path: Path) -> None:
    """As nv-caps.c of the open kernel modules prints them; the mode is decimal."""
    for path, minor in (("gpu0/mig/gi1/access", 12), ("gpu0/mig/gi1/ci0/access", 13)):
        file = tmp_path / "caps" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: {13 - minor}\n")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia-cap12").touch(0o440)
    script = mig.CAPABILITIES.script.replace("/proc/driver/nvidia/capabilities", str(tmp_path / "caps"))
    told = run(script.replace("/dev/nvidia-caps", str(tmp_path / "dev")))
    first, second = mig.parse_capabilities(Output(told))
    assert (first.path, first.node, first.expected, first.mode, first.kept) == (
        "gpu0/mig/gi1/access", "/dev/nvidia-caps/nvidia-cap12", "0444", "0440", False,
    )  # fmt: skip
    assert (second.node, second.mode, second.owner, second.kept) == ("/dev/nvidia-caps/nvidia-cap13", "", "", True)
    assert (first.instance(0), second.instance(0), first.instance(1)) == ((1, None), (1, 0), None)
    assert run(script.replace(str(tmp_path), str(tmp_path / "none"))) == ""


def test_holders_of_device_files(tmp_path: Path) -> None:
    device = tmp_path / "nvidia0"
    device.touch()
    with device.open() as held, subprocess.Popen(["sleep", "60"], stdin=held, stdout=held) as holder:
        held.close()
        found = mig.parse_holders(Output(run(mig.HOLDERS.script.replace("/dev/nvidia*", f"{device}*"))))
        holder.kill()
    (mine,) = [one for one in found if one.pid == holder.pid]
    assert (mine.command, mine.files) == ("sleep", (str(device),))
    assert run(mig.HOLDERS.script.replace("/dev/nvidia*", f"{tmp_path}/none")) == ""


def test_who_is_on_what() -> None:
    gpu = mig.MigGpu(
        index=0, number=0, minor=3, address="0000:19:00.0", uuid="GPU-0", name="A", pci="0x233010DE", subsystem="0x0",
        capable=True,
        processes=(mig.Process(7, 1, 0), mig.Process(8)),
    )  # fmt: skip
    holders = (
        mig.Holder(7, "python3", "a.scope", ("/dev/nvidia3",)),
        mig.Holder(9, "dcgm", "dcgm.service", ("/dev/nvidia3", "/dev/nvidia-caps/nvidia-cap12")),
        mig.Holder(10, "other", "", ("/dev/nvidia2", "/dev/nvidia-caps/nvidia-cap99")),
    )
    files = (mig.CapabilityFile(path="gpu3/mig/gi2/access", node="/dev/nvidia-caps/nvidia-cap12", expected="0444"),)
    found = mig.users(mig.MigState(gpus=(gpu,)), holders, files)
    assert [(user.holder.pid, user.instance, user.part, user.computes) for user in found] == [
        (7, 1, 0, True), (8, None, None, True), (7, None, None, False), (9, 2, None, True), (9, None, None, False),
    ]  # fmt: skip
    assert [str(user.holder) for user in found[:3]] == [
        "python3 (pid 7, a.scope)",
        "process (pid 8)",
        "python3 (pid 7, a.scope)",
    ]


def test_the_scripts_end_well_on_this_machine() -> None:
    for probe in (mig.CAPABILITIES, mig.HOLDERS):
        done = subprocess.run(["sh", "-c", probe.script], capture_output=True, text=True, check=False, timeout=30)
        assert done.returncode == 0, done.stderr
        probe.parse(Output(done.stdout, 0, done.stderr))


def test_processes_are_those_that_nvidias_binding_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(tmp_path, H100, 2)
    host.capabilities()
    files = [host.write(f"/dev/nvidia{name}", "") for name in ("1", "-uvm")]
    with host.client() as client:
        client.nvmlDeviceSetMigMode(client.nvmlDeviceGetHandleByIndex(0), 1)
        cut(client, 9, 2)
        made = client.nvmlDeviceGetMigDeviceHandleByIndex(client.nvmlDeviceGetHandleByIndex(0), 0)
        nodes = [tmp_path / "dev/nvidia-caps" / name for name in sorted(host.nodes())]
        with holding(*nodes) as inside, holding(*files) as whole:
            first, second = read(host).gpus
            older = mig.STATE.script.replace("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlOfALaterBranch")
            monkeypatch.setattr(mig, "STATE", Probe("mig", older, mig.parse_state, ""))
            assert read(host).gpus == (first, second)
            assert [one.pid for one in client.nvmlDeviceGetComputeRunningProcesses(made)] == [inside]
        ids = (client.nvmlDeviceGetGpuInstanceId(made), client.nvmlDeviceGetComputeInstanceId(made))
    assert first.processes == (mig.Process(inside, *ids),)
    assert second.processes == (mig.Process(whole),)
