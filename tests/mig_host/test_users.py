"""Who uses a GPU and its instances, as /proc and NVML have it; the device nodes of instances."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mig_host.on_host import H100, act, card, present, state, users

GPU = card(H100, present(2, "3g.40gb", 4, 1, 2))


class Binding:
    """As much of NVML as says which processes it knows."""

    class NVMLError_NotFound(Exception): ...

    class NVMLError_InvalidArgument(Exception): ...

    class NVMLError_NotSupported(Exception): ...

    class NVMLError_FunctionNotFound(Exception): ...

    class NVMLError_NoPermission(Exception): ...

    def __init__(self, found: dict[str, list[Any]]) -> None:
        self.found = found

    def nvmlDeviceGetComputeRunningProcesses_v3(self, _: str) -> list[Any]:
        raise self.NVMLError_FunctionNotFound

    def nvmlDeviceGetComputeRunningProcesses_v2(self, device: str) -> list[Any]:
        return self.found.get(device, [])

    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, device: str) -> list[Any]:
        return self.found.get(f"mps_{device}", [])

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, _: str) -> list[Any]:
        raise self.NVMLError_NotSupported

    def nvmlDeviceGetMaxMigDeviceCount(self, _: str) -> int:
        return 3

    def nvmlDeviceGetMigDeviceHandleByIndex(self, _: str, number: int) -> str:
        if number == 1:
            raise self.NVMLError_NotFound
        return f"mig{number}"

    def nvmlDeviceGetGpuInstanceId(self, _: str) -> int:
        return 2

    def nvmlDeviceGetComputeInstanceId(self, device: str) -> int:
        return {"mig0": 0, "mig2": 1}[device]


class Nvml:
    def __init__(self, **found: list[Any]) -> None:
        self.lib = Binding(found)

    def handle(self, _: Any) -> str:
        return "gpu"


class Running:
    """A process as NVML tells it."""

    def __init__(self, pid: int, gi: int = users.NONE, ci: int = users.NONE) -> None:
        self.pid, self.gpuInstanceId, self.computeInstanceId = pid, gi, ci


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    for path, minor in (("gi2", 12), ("gi2/ci0", 13), ("gi2/ci1", 14)):
        file = tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig" / path / "access"
        file.parent.mkdir(parents=True)
        file.write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    (tmp_path / "dev/nvidia-caps").mkdir(parents=True)
    old, users.ROOT = users.ROOT, str(tmp_path)
    yield tmp_path
    users.ROOT = old


def process(root: Path, pid: int, *files: str, cgroup: str = "0::/user.slice/session-3.scope") -> None:
    folder = root / "proc" / str(pid)
    (folder / "fd").mkdir(parents=True)
    for number, target in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(target)
    (folder / "comm").write_text("train\n")
    (folder / "cgroup").write_text(cgroup + "\n")


def session(**processes: list[Any]) -> Any:
    """What the program has of NVML."""
    return Nvml(**processes)


def found(**nvml: list[Any]) -> list[tuple[int, str, int | None, int | None, bool]]:
    return [(one.pid, one.unit, one.gi, one.ci, one.computes) for one in users.list_users(session(**nvml), [GPU])]


def test_holders_of_capability_nodes_use_their_instance(root: Path) -> None:
    kube = "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-abc.scope"
    process(
        root, 7, "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap14 (deleted)", cgroup=kube
    )
    process(root, 8, "/dev/null")
    unit = "cri-containerd-abc.scope"
    assert found() == [(7, unit, None, None, True), (7, unit, 2, None, True), (7, unit, 2, 1, True)]


@pytest.mark.parametrize(
    ("files", "computes"), [(("/dev/nvidia0",), False), (("/dev/nvidia0", "/dev/nvidia-uvm"), True)]
)
def test_a_cuda_program_has_nvidia_uvm_open_beside_the_gpu(root: Path, files: tuple[str, ...], computes: bool) -> None:
    process(root, 9, *files, "/dev/nvidiactl", cgroup="0::/system.slice/nvidia-dcgm.service")
    assert found() == [(9, "nvidia-dcgm.service", None, None, computes)]


def test_another_gpus_file_is_no_use_of_this_one(root: Path) -> None:
    process(root, 9, "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm")
    assert found() == []


def test_nvml_names_users_of_the_gpu_and_of_its_instances(root: Path) -> None:
    process(root, 7)
    process(root, 8)
    listed = found(gpu=[Running(8), Running(7, 2, 0)], mig0=[Running(7, 2, 0)], mig2=[Running(99)])
    listed += found(mps_mig2=[Running(7, 2, 1)])
    scope = "session-3.scope"
    assert listed == [(7, scope, 2, 0, True), (8, scope, None, None, True), (7, scope, 2, 1, True)]


def test_a_user_is_told_by_command_pid_owner_and_unit(root: Path) -> None:
    process(root, 7, "/dev/nvidia0", "/dev/nvidia-uvm", cgroup="")
    (one,) = users.list_users(session(), [GPU])
    assert str(one) == f"train (pid 7, {'root' if os.geteuid() == 0 else one.owner})"


def test_this_process_itself_is_none(root: Path) -> None:
    process(root, os.getpid(), "/dev/nvidia0", "/dev/nvidia-uvm")
    assert found() == []


def test_device_nodes_that_are_missing_are_made_by_nvidias_tool(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = act.list_missing_nodes([GPU])
    base = "proc/driver/nvidia/capabilities/gpu0/mig/gi2"
    assert missing == [str(root / base / part / "access") for part in ("", "ci0", "ci1")]
    node = root / "dev/nvidia-caps/nvidia-cap12"
    node.write_text("")
    node.chmod(0o440)
    assert len(act.list_missing_nodes([GPU])) == 3
    node.chmod(0o444)
    assert len(act.list_missing_nodes([GPU])) == 2
    tool = root / "nvidia-modprobe"
    tool.write_text(f'#!/bin/sh\necho "$@" > {root}/asked\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(root), prepend=":")
    assert act.make_nodes(missing[1:]) is None
    assert (root / "asked").read_text() == f"-f {missing[1]} -f {missing[2]}\n"
    tool.write_text("#!/bin/sh\necho no such device >&2; exit 1\n")
    assert act.make_nodes(missing) == "nvidia-modprobe: no such device"
    monkeypatch.setenv("PATH", "/nowhere")
    assert str(act.make_nodes(missing)).startswith("nvidia-modprobe is not installed")
    assert act.make_nodes([]) is None


def test_a_node_that_the_driver_was_told_to_leave_alone(root: Path) -> None:
    file = root / "proc/driver/nvidia/capabilities/gpu0/mig/gi2/access"
    file.write_text(file.read_text().replace("Modify: 1", "Modify: 0"))
    node = root / "dev/nvidia-caps/nvidia-cap12"
    node.write_text("")
    node.chmod(0o440)
    assert str(file) not in act.list_missing_nodes([GPU])


def test_a_driver_without_capabilities_has_no_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "ROOT", str(tmp_path))
    assert act.list_missing_nodes([GPU]) == []
    assert state.User(1, "a", "b", "", 0).computes
