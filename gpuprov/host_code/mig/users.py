"""The users of a GPU or its instances: processes that NVML lists, and holders of the device files."""

from __future__ import annotations

import os
import pwd
import re
import stat
from typing import Any, Iterable, Iterator, NamedTuple

from .nvml import Nvml
from .state import Card, User
from .units import find_unit

ROOT = "/"
NONE = 0xFFFFFFFF  # what NVML calls the instance of a process that is in none


def list_users(nvml: Nvml, cards: Iterable[Card]) -> list[User]:
    """Return the users of all GPUs and their instances, except this process; each once for each place that it uses."""
    cards = list(cards)
    by_process: dict[tuple[int, int, int | None, int | None], bool] = {}
    for pid, (gpu, gi, ci), computes in [*list_by_nvml(nvml, cards), *list_holders(cards)]:
        key = (pid, gpu, gi, ci)
        by_process[key] = by_process.get(key, False) or computes
    computing = {key[:2] for key, computes in by_process.items() if computes}
    known: dict[int, tuple[str, str, str] | None] = {}
    result = []
    for pid, gpu, gi, ci in sorted(by_process, key=lambda key: (key[0], key[1], key[2] or 0, key[3] or 0)):
        who = known[pid] if pid in known else known.setdefault(pid, read_process(pid))
        if who and pid != os.getpid():
            result.append(User(pid, *who, gpu, gi, ci, (pid, gpu) in computing))
    return result


def list_by_nvml(nvml: Nvml, cards: list[Card]) -> Iterator[tuple[int, tuple[int, int | None, int | None], bool]]:
    """Yield processes that NVML lists; it lists those of an instance at its MIG device."""
    lib = nvml.lib
    for card in cards:
        handle = nvml.handle(card)
        for process in list_processes(nvml, handle):
            inside = [
                None if number == NONE else number for number in (process.gpuInstanceId, process.computeInstanceId)
            ]
            yield process.pid, (card.gpu.index, inside[0], inside[1]), True
        if not card.instances:
            continue
        for number in range(lib.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                device = lib.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            except (lib.NVMLError_NotFound, lib.NVMLError_InvalidArgument):
                continue
            place = (lib.nvmlDeviceGetGpuInstanceId(device), lib.nvmlDeviceGetComputeInstanceId(device))
            for process in list_processes(nvml, device):
                yield process.pid, (card.gpu.index, *place), True


def list_processes(nvml: Nvml, device: Any) -> Iterator[Any]:
    """Yield the processes that NVML lists, with the older of two functions if the driver lacks the newer one."""
    for kind in ("Compute", "MPSCompute", "Graphics"):
        for version in ("v3", "v2"):
            try:
                yield from getattr(nvml.lib, f"nvmlDeviceGet{kind}RunningProcesses_{version}")(device)
            except nvml.lib.NVMLError_FunctionNotFound:
                continue
            except (nvml.lib.NVMLError_NotSupported, nvml.lib.NVMLError_NoPermission):
                pass
            break


def list_holders(cards: list[Card]) -> Iterator[tuple[int, tuple[int, int | None, int | None], bool]]:
    """Yield processes with a device file open."""
    # A CUDA program has nvidia-uvm open beside the GPU's own.
    minors = {card.minor: card.gpu.index for card in cards}
    caps = list_capabilities(cards)
    for pid, names in _open_files():
        for name in names:
            if name.startswith("/dev/nvidia-caps/"):
                if name in caps:
                    yield pid, caps[name], True
            elif re.fullmatch(r"/dev/nvidia\d+", name) and int(name[11:]) in minors:
                yield pid, (minors[int(name[11:])], None, None), "/dev/nvidia-uvm" in names


def _open_files() -> Iterator[tuple[int, set[str]]]:
    proc = os.path.join(ROOT, "proc")
    for entry in os.listdir(proc):
        if not entry.isdigit():
            continue
        try:
            descriptors = os.listdir(f"{proc}/{entry}/fd")
        except OSError:
            continue
        names = set()
        for descriptor in descriptors:
            try:
                target = os.readlink(f"{proc}/{entry}/fd/{descriptor}")
            except OSError:
                continue
            if target.startswith("/dev/nvidia"):
                names.add(target.replace(" (deleted)", ""))
        if names:
            yield int(entry), names


def read_process(pid: int) -> tuple[str, str, str] | None:
    """Return command, owner and systemd unit or container scope; None if the process has ended."""
    folder = os.path.join(ROOT, "proc", str(pid))
    try:
        with open(f"{folder}/comm", encoding="utf-8", errors="replace") as file:
            command = file.read().strip()
        unit = find_unit(pid, ROOT)
        number = os.stat(folder).st_uid
    except OSError:
        return None
    try:
        owner = pwd.getpwuid(number).pw_name
    except KeyError:
        owner = str(number)
    return command, owner, unit


def list_capability_files(cards: Iterable[Card]) -> dict[str, tuple[int, int | None, int | None]]:
    """Return the driver's files that describe its instances' device nodes, with the instance of each."""
    # https://docs.nvidia.com/datacenter/tesla/mig-user-guide/device-nodes-and-capabilities.html
    base = os.path.join(ROOT, "proc/driver/nvidia/capabilities")
    files: dict[str, tuple[int, int | None, int | None]] = {}
    for card in cards:
        for instance in card.instances:
            folder = f"{base}/gpu{card.minor}/mig/gi{instance.id}"
            files[f"{folder}/access"] = (card.gpu.index, instance.id, None)
            for compute in instance.compute:
                files[f"{folder}/ci{compute.id}/access"] = (card.gpu.index, instance.id, compute.id)
    return {path: place for path, place in files.items() if os.path.exists(path)}


class Node(NamedTuple):
    """A device node as the driver specifies it."""

    path: str
    mode: int
    # The driver is not configured to leave its mode alone.
    ours: bool


def read_node(path: str) -> Node | None:
    """Return the device node that a capability's file names; None if it names none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            # /proc/driver/nvidia/capabilities/gpu0/mig/gi2/access:
            #     DeviceFileMinor: 21
            #     DeviceFileMode: 292
            #     DeviceFileModify: 1
            values = dict(re.findall(r"^DeviceFile(Minor|Mode|Modify): (\d+)", file.read(), re.MULTILINE))
        return Node(f"/dev/nvidia-caps/nvidia-cap{values['Minor']}", int(values["Mode"]), values.get("Modify") != "0")
    except (OSError, KeyError):
        return None


def is_right_node(node: Node) -> bool:
    """Return whether the device node exists and has its mode."""
    try:
        mode = stat.S_IMODE(os.stat(os.path.join(ROOT, node.path.lstrip("/"))).st_mode)
    except OSError:
        return False
    return mode == node.mode or not node.ours


def list_capabilities(cards: Iterable[Card]) -> dict[str, tuple[int, int | None, int | None]]:
    """Return the instance that each device node gives access to."""
    return {
        node.path: place for path, place in list_capability_files(cards).items() for node in [read_node(path)] if node
    }
