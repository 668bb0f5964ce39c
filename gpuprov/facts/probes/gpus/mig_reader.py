"""Print NVML's view of MIG on this host, as JSON. It is sent to hosts as text, for any Python from 3.6 on; it changes
nothing.

Structures: https://docs.nvidia.com/deploy/nvml-api/ , nvml.h of CUDA 11.8 and newer.
"""

import ctypes
import json
import sys
from typing import Any

UINT, HANDLE = ctypes.c_uint, ctypes.c_void_p
NOT_SUPPORTED, INSUFFICIENT_SIZE = 3, 7
HELD, NONE = 64, 0xFFFFFFFF


def make_struct(**fields: Any) -> Any:
    return type("Struct", (ctypes.Structure,), {"_fields_": list(fields.items())})


Pci = make_struct(old=ctypes.c_char * 16, domain=UINT, bus=UINT, device=UINT, pci=UINT, sub=UINT, id=ctypes.c_char * 32)
Place = make_struct(start=UINT, size=UINT)
COUNTS = dict.fromkeys(("id", "p2p", "slices", "count", "sms"), UINT)
SIZES: dict[str, Any] = {**COUNTS, "engines": UINT * 5, "memory": ctypes.c_ulonglong}
Profile = make_struct(version=UINT, **SIZES, name=ctypes.c_char * 96)
Unnamed = make_struct(**SIZES)
Memory = make_struct(total=ctypes.c_ulonglong, free=ctypes.c_ulonglong, used=ctypes.c_ulonglong)
GpuInstance = make_struct(device=HANDLE, id=UINT, profile=UINT, place=Place)
ComputeProfile = make_struct(id=UINT, slices=UINT, count=UINT, sms=UINT, engines=UINT * 5)
ComputeInstance = make_struct(device=HANDLE, parent=HANDLE, id=UINT, profile=UINT, place=Place)
Process = make_struct(pid=UINT, memory=ctypes.c_ulonglong, gi=UINT, ci=UINT)


class Failed(Exception):
    """NVML's message for a failure, and its number."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number


class Nvml:
    """NVML's functions by name; a failure raises Failed."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.library.nvmlErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self.library, "nvml" + name)
        except AttributeError:
            raise Failed("the driver's NVML has no nvml" + name, NOT_SUPPORTED) from None
        number = function(*arguments)
        if number:
            raise Failed(self.library.nvmlErrorString(number).decode(errors="replace"), number)

    def read(self, kind: Any, name: str, *arguments: Any) -> Any:
        """Return the value that a function stores in its last argument."""
        value = kind()
        self.call(name, *arguments, ctypes.byref(value))
        return value

    def text(self, name: str, device: Any) -> str:
        buffer = ctypes.create_string_buffer(96)
        self.call(name, device, buffer, UINT(96))
        return buffer.value.decode(errors="replace")

    def several(self, kind: Any, room: int, name: str, *arguments: Any) -> Any:
        """Return the list that a function fills, with space for `room` items."""
        items, count = (kind * room)(), UINT(room)
        self.call(name, *arguments, items, ctypes.byref(count))
        return list(items)[: count.value]

    def supported(self, kind: Any, name: str, *arguments: Any) -> Any:
        try:
            return self.read(kind, name, *arguments)
        except Failed:
            return None


def read_gpu(nvml: Nvml, device: Any) -> Any:
    pci = nvml.read(Pci, "DeviceGetPciInfo_v3", device)
    fields = {
        "address": f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0",
        "uuid": nvml.text("DeviceGetUUID", device),
        "name": nvml.text("DeviceGetName", device),
        "pci": f"0x{pci.pci:08X}",
        "subsystem": f"0x{pci.sub:08X}",
        "number": nvml.read(UINT, "DeviceGetIndex", device).value,
        "minor": nvml.read(UINT, "DeviceGetMinorNumber", device).value,
    }
    pending = UINT()
    current = UINT()
    try:
        nvml.call("DeviceGetMigMode", device, ctypes.byref(current), ctypes.byref(pending))
    except Failed as error:
        if error.number != NOT_SUPPORTED:
            raise
        return dict(fields, capable=False)
    fields.update(capable=True, current=bool(current.value), pending=bool(pending.value))
    if current.value:
        profiles = list(read_profiles(nvml, device))
        if not profiles:
            raise Failed("MIG mode is enabled, and the driver names no MIG profile", NOT_SUPPORTED)
        instances = [instance for profile in profiles for instance in read_gpu_instances(nvml, device, profile)]
        name_devices(nvml, device, instances)
        fields.update(profiles=profiles, instances=instances)
        if not all(profile["name"] for profile in profiles):
            fields.update(memory=nvml.read(Memory, "DeviceGetMemoryInfo", device).total)
    fields.update(processes=list(list_processes(nvml, device)))
    return fields


def read_profiles(nvml: Nvml, device: Any) -> Any:
    for number in range(32):
        try:
            info = read_profile(nvml, device, number)
        except Failed:
            continue
        try:
            ask = ("DeviceGetGpuInstancePossiblePlacements_v2", device, UINT(info.id))
            places = nvml.several(Place, nvml.read(UINT, *ask, None).value, *ask)
        except Failed:
            places = []
        profile = {
            "name": getattr(info, "name", b"").decode(errors="replace").replace("MIG ", ""),
            "id": info.id,
            "slices": info.slices,
            "count": info.count,
            "size": max([place.size for place in places] or [0]),
            "starts": [place.start for place in places],
        }
        yield profile if profile["name"] else dict(profile, number=number, memory=info.memory)


def read_profile(nvml: Nvml, device: Any, number: int) -> Any:
    """Return a profile; before branch 510 NVML does not report its name."""
    # https://docs.nvidia.com/deploy/archive/R470/nvml-api/
    ask = ("DeviceGetGpuInstanceProfileInfo", device, UINT(number))
    if not hasattr(nvml.library, "nvmlDeviceGetGpuInstanceProfileInfoV"):
        return nvml.read(Unnamed, *ask)
    info = Profile(version=ctypes.sizeof(Profile) | 2 << 24)
    nvml.call(ask[0] + "V", *ask[1:], ctypes.byref(info))
    return info


def read_gpu_instances(nvml: Nvml, device: Any, profile: Any) -> Any:
    for handle in nvml.several(HANDLE, HELD, "DeviceGetGpuInstances", device, UINT(profile["id"])):
        info = nvml.read(GpuInstance, "GpuInstanceGetInfo", HANDLE(handle))
        yield {
            "id": info.id,
            "profile": profile["name"],
            "kind": profile["id"],
            "start": info.place.start,
            "size": info.place.size,
            "compute": list(compute_instances(nvml, HANDLE(handle))),
        }


def compute_instances(nvml: Nvml, instance: Any) -> Any:
    seen = set()
    for number in range(16):
        ask = ("GpuInstanceGetComputeInstanceProfileInfo", instance, UINT(number), UINT(0))
        profile = nvml.supported(ComputeProfile, *ask)
        if profile is None:
            continue
        for handle in nvml.several(HANDLE, HELD, "GpuInstanceGetComputeInstances", instance, UINT(profile.id)):
            info = nvml.read(ComputeInstance, "ComputeInstanceGetInfo_v2", HANDLE(handle))
            if info.id not in seen:
                seen.add(info.id)
                yield {"id": info.id, "slices": profile.slices, "start": info.place.start}


def name_devices(nvml: Nvml, device: Any, instances: Any) -> None:
    """Add the UUID and number of each MIG device to its compute instance."""
    owners = {(instance["id"], part["id"]): part for instance in instances for part in instance["compute"]}
    for number in range(nvml.read(UINT, "DeviceGetMaxMigDeviceCount", device).value):
        handle = nvml.supported(HANDLE, "DeviceGetMigDeviceHandleByIndex", device, UINT(number))
        if handle is not None:
            owner = nvml.read(UINT, "DeviceGetGpuInstanceId", handle).value
            part = owners.get((owner, nvml.read(UINT, "DeviceGetComputeInstanceId", handle).value))
            if part is not None:
                part.update(number=number, uuid=nvml.text("DeviceGetUUID", handle))


def list_processes(nvml: Nvml, device: Any) -> Any:
    """List processes with a CUDA context; NVML lists those of an instance under its MIG device."""
    places = {(process.pid, process.gi, process.ci) for process in list_running(nvml, device)}
    for number in range(nvml.read(UINT, "DeviceGetMaxMigDeviceCount", device).value):
        handle = nvml.supported(HANDLE, "DeviceGetMigDeviceHandleByIndex", device, UINT(number))
        if handle is not None:
            place = [
                nvml.read(UINT, ask, handle).value for ask in ("DeviceGetGpuInstanceId", "DeviceGetComputeInstanceId")
            ]
            places |= {(process.pid, place[0], place[1]) for process in list_running(nvml, handle)}
    for pid, instance, part in sorted(places):
        yield {"pid": pid, "instance": None if instance == NONE else instance, "part": None if part == NONE else part}


def list_running(nvml: Nvml, device: Any) -> Any:
    newest = hasattr(nvml.library, "nvmlDeviceGetComputeRunningProcesses_v3")  # branch 470 has the same as _v2
    for room in (32, 1024, 32768):
        items, count = (Process * room)(), UINT(room)
        try:
            nvml.call("DeviceGetComputeRunningProcesses_v" + "23"[newest], device, ctypes.byref(count), items)
            return list(items)[: count.value]
        except Failed as error:
            if error.number != INSUFFICIENT_SIZE:
                break
    return []


def read(nvml: Nvml) -> Any:
    gpus, unread = [], []
    for number in range(nvml.read(UINT, "DeviceGetCount_v2").value):
        try:
            gpus.append(read_gpu(nvml, nvml.read(HANDLE, "DeviceGetHandleByIndex_v2", UINT(number))))
        except Failed as error:
            unread.append(f"GPU {number}: {error}")
    gpus.sort(key=lambda item: str(item["address"]))
    return {"gpus": [dict(item, index=index) for index, item in enumerate(gpus)], "unread": unread}


def main() -> None:
    try:
        nvml = Nvml()
        nvml.call("Init_v2")
        try:
            document = read(nvml)
        finally:
            nvml.call("Shutdown")
    except (Failed, OSError, AttributeError) as error:
        document = {"complaint": " ".join(str(error).split())}
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main()
