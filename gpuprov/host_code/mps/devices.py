"""The MPS daemons that a host should have, computed from a configuration and the current GPUs and MIG devices, by
NVML."""

from __future__ import annotations

import ctypes
import re
from typing import Any, Dict, Mapping, Sequence

# The configuration, in the format of mps.json.
Config = Mapping[str, Any]
# `name`, `gpus`, `devices` (UUIDs in its own order), `mig`, and its directories `pipe` and `log`.
Daemon = Dict[str, Any]
# `index`, `uuid`, `address`, `mig` (its mode is on), `devices` (its MIG devices), and NVML's `handle`.
Gpu = Dict[str, Any]
NOT_SUPPORTED, NOT_FOUND, INVALID = 3, 6, 2
DEFAULT, EXCLUSIVE_PROCESS = 0, 3

LIBRARY = "libnvidia-ml.so.1"


class Problem(Exception):
    """The problem and its fix; one line."""


class Gone(Problem):
    """The device of a daemon does not exist."""


class Unwanted(Gone):
    """The configuration has no such daemon."""


class Pci(ctypes.Structure):
    _fields_ = [
        ("legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("identifier", ctypes.c_uint),
        ("subsystem", ctypes.c_uint),
        ("text", ctypes.c_char * 32),
    ]


class GpuInstance(ctypes.Structure):
    _fields_ = [
        ("gpu", ctypes.c_void_p),
        ("id", ctypes.c_uint),
        ("profile", ctypes.c_uint),
        ("start", ctypes.c_uint),
        ("size", ctypes.c_uint),
    ]


class ComputeInstance(ctypes.Structure):
    _fields_ = [
        ("gpu", ctypes.c_void_p),
        ("instance", ctypes.c_void_p),
        ("id", ctypes.c_uint),
        ("profile", ctypes.c_uint),
        ("start", ctypes.c_uint),
        ("size", ctypes.c_uint),
    ]


class Nvml:
    """NVIDIA's management library; its calls raise Problem."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise Problem(f"no {LIBRARY}: the driver is not installed; apply nvidia_driver first") from error
        self.call("nvmlInit_v2")

    def error(self, code: int) -> str:
        self.library.nvmlErrorString.restype = ctypes.c_char_p
        return str(self.library.nvmlErrorString(code).decode())

    def call(self, name: str, *arguments: Any, allowed: Sequence[int] = ()) -> int:
        function = getattr(self.library, name, None)
        if function is None:
            raise Problem(f"the driver's libnvidia-ml.so.1 has no {name}")
        code = int(function(*arguments))
        if code and code not in allowed:
            raise Problem(f"{name}: {self.error(code)}")
        return code

    def number(self, name: str, *arguments: Any) -> int:
        """Return the value that a call stores in its last argument."""
        value = ctypes.c_uint()
        self.call(name, *arguments, ctypes.byref(value))
        return value.value

    def uuid(self, device: Any) -> str:
        text = ctypes.create_string_buffer(96)
        self.call("nvmlDeviceGetUUID", device, text, ctypes.c_uint(96))
        return text.value.decode()

    def gpus(self) -> list[Gpu]:
        """Return every GPU in NVML's order, with its MIG devices by placement."""
        gpus = []
        for index in range(self.number("nvmlDeviceGetCount_v2")):
            device, pci = ctypes.c_void_p(), Pci()
            self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
            self.call("nvmlDeviceGetPciInfo_v3", device, ctypes.byref(pci))
            mig, pending = ctypes.c_uint(), ctypes.c_uint()
            code = self.call(
                "nvmlDeviceGetMigMode", device, ctypes.byref(mig), ctypes.byref(pending), allowed=(NOT_SUPPORTED,)
            )
            gpus.append(
                {
                    "index": index,
                    "uuid": self.uuid(device),
                    "address": f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0",
                    "mig": not code and mig.value == 1,
                    "devices": self.mig_devices(device) if not code and mig.value == 1 else [],
                    "handle": device,
                }
            )
        return gpus

    def mig_devices(self, gpu: Any) -> list[dict[str, Any]]:
        rows = []
        for number in range(self.number("nvmlDeviceGetMaxMigDeviceCount", gpu)):
            device = ctypes.c_void_p()
            if self.call(
                "nvmlDeviceGetMigDeviceHandleByIndex",
                gpu,
                ctypes.c_uint(number),
                ctypes.byref(device),
                allowed=(NOT_FOUND, INVALID),
            ):
                continue
            group = self.number("nvmlDeviceGetGpuInstanceId", device)
            compute = self.number("nvmlDeviceGetComputeInstanceId", device)
            handle, info = ctypes.c_void_p(), GpuInstance()
            self.call("nvmlDeviceGetGpuInstanceById", gpu, ctypes.c_uint(group), ctypes.byref(handle))
            self.call("nvmlGpuInstanceGetInfo", handle, ctypes.byref(info))
            inner, of = ctypes.c_void_p(), ComputeInstance()
            self.call("nvmlGpuInstanceGetComputeInstanceById", handle, ctypes.c_uint(compute), ctypes.byref(inner))
            self.call("nvmlComputeInstanceGetInfo_v2", inner, ctypes.byref(of))
            rows.append({"uuid": self.uuid(device), "start": info.start, "compute": of.start})
        return rows

    def compute_mode(self, gpu: Gpu) -> int:
        return self.number("nvmlDeviceGetComputeMode", gpu["handle"])

    def set_compute_mode(self, gpu: Gpu, mode: int) -> None:
        self.call("nvmlDeviceSetComputeMode", gpu["handle"], ctypes.c_uint(mode))


def select_gpu(selector: object, gpus: Sequence[Gpu]) -> Gpu:
    """Return the GPU that an index, a PCI address or the beginning of a UUID names."""
    text = str(selector)
    match = re.match(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\Z", text.lower())
    if text.isdigit():
        matching = [gpu for gpu in gpus if gpu["index"] == int(text)]
    elif match:
        address = f"{int(match.group(1) or '0', 16):04x}:{match.group(2)}"
        matching = [gpu for gpu in gpus if gpu["address"] == address]
    else:
        matching = [gpu for gpu in gpus if gpu["uuid"].startswith(text)]
    if len(matching) != 1:
        known = ", ".join(f"{gpu['index']} ({gpu['address']}, {gpu['uuid']})" for gpu in gpus) or "none"
        raise Gone(f"mps: no GPU is {text}; there are: {known}")
    return matching[0]


def require_whole(gpus: list[Gpu], what: str) -> list[Gpu]:
    for gpu in gpus:
        if gpu["mig"]:
            raise Gone(
                f"mps: {what} has GPU {gpu['index']}, which is in MIG mode; scope: mig, or mps.groups without it"
            )
    return gpus


def group_names(config: Config) -> list[str]:
    return [group.get("name") or f"group{number}" for number, group in enumerate(config["groups"])]


def can_be_named(config: Config, name: str) -> bool:
    """Return whether a daemon of this configuration can have this name, whatever devices exist."""
    patterns = {"host": "host", "gpu": "gpu[0-9]+", "mig": "gpu[0-9]+-mig[0-9]+(-ci[0-9]+)?", "none": "(?!)"}
    pattern = patterns.get(config["scope"])
    return name in group_names(config) if pattern is None else bool(re.match(pattern + r"\Z", name))


def list_daemons(config: Config, gpus: list[Gpu]) -> list[Daemon]:
    """Return the daemons of a configuration: name, devices in the daemon's order, GPUs, directories."""
    scope, paths = config["scope"], config["paths"]
    if scope == "none":
        return []
    if not gpus:
        raise Gone("mps: the driver has no GPU")
    if scope == "host":
        pipe, log = paths["pipes"][config["protocol"]], paths["logs"]
        return [make_daemon("host", require_whole(gpus, "scope: host"), "", pipe, log)]
    if scope == "gpu":
        rows = [(f"gpu{gpu['index']}", require_whole([gpu], "scope: gpu"), "") for gpu in gpus]
    elif scope == "groups":
        rows = list_groups(config, gpus)
    else:
        rows = list_mig_devices(gpus)
    return [
        make_daemon(name, members, mig, f"{paths['pipe_base']}/{name}", f"{paths['logs']}/{name}")
        for name, members, mig in rows
    ]


def make_daemon(name: str, members: list[Gpu], mig: str, pipe: str, log: str) -> Daemon:
    devices = [mig] if mig else [gpu["uuid"] for gpu in members]
    return {"name": name, "gpus": members, "devices": devices, "mig": bool(mig), "pipe": pipe, "log": log}


def list_groups(config: Config, gpus: list[Gpu]) -> list[tuple[str, list[Gpu], str]]:
    """Return a daemon for each group. Raises Problem if a GPU is in two of them."""
    rows: list[tuple[str, list[Gpu], str]] = []
    taken: dict[int, str] = {}
    for number, name in enumerate(group_names(config)):
        members = [select_gpu(selector, gpus) for selector in config["groups"][number]["gpus"]]
        for gpu in members:
            if gpu["index"] in taken:
                raise Problem(f"mps.groups: GPU {gpu['index']} is in {taken[gpu['index']]} and again in {name}")
            taken[gpu["index"]] = name
        rows.append((name, require_whole(members, "group " + name), ""))
    return rows


def list_mig_devices(gpus: list[Gpu]) -> list[tuple[str, list[Gpu], str]]:
    """Return a daemon for each MIG device, named by the memory slice at which it begins."""
    rows: list[tuple[str, list[Gpu], str]] = []
    for gpu in gpus:
        starts = [device["start"] for device in gpu["devices"]]
        for device in gpu["devices"]:
            name = f"gpu{gpu['index']}-mig{device['start']}"
            shared = starts.count(device["start"]) > 1
            rows.append((name + (f"-ci{device['compute']}" if shared else ""), [gpu], device["uuid"]))
    return rows


def check_limits(config: Config, gpus: Sequence[Gpu]) -> None:
    """Raise Problem if a memory limit is for a GPU that does not exist."""
    for key in config["memory"]:
        if key != "all":
            select_gpu(key, gpus)
