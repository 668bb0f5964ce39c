"""NVML by ctypes: https://docs.nvidia.com/deploy/nvml-api/ , nvml.h of CUDA 11.8 and newer."""

from __future__ import annotations

import ctypes
from typing import Any

UINT, HANDLE = ctypes.c_uint, ctypes.c_void_p
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, INSUFFICIENT_SIZE, FUNCTION_NOT_FOUND = 3, 4, 6, 7, 13
DEPRECATED = 26
LIBRARY = "libnvidia-ml.so.1"


class Failed(Exception):
    """NVML's message for a failure, and its number."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number


class Pci(ctypes.Structure):
    _fields_ = [
        ("old", ctypes.c_char * 16),
        *((name, UINT) for name in ("domain", "bus", "device", "pci", "sub")),
        ("id", ctypes.c_char * 32),
    ]


class Process(ctypes.Structure):
    _fields_ = [("pid", UINT), ("memory", ctypes.c_ulonglong), ("gi", UINT), ("ci", UINT)]


class Nvml:
    """An open session: its functions by name, without the prefix `nvml`. A failure raises Failed."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise Failed(str(error), FUNCTION_NOT_FOUND) from error
        self.library.nvmlErrorString.restype = ctypes.c_char_p
        self.call("Init_v2")

    def close(self) -> None:
        self.library.nvmlShutdown()

    def call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self.library, "nvml" + name)
        except AttributeError:
            raise Failed(f"the driver's NVML has no nvml{name}", FUNCTION_NOT_FOUND) from None
        number = function(*arguments)
        if number:
            raise Failed(self.library.nvmlErrorString(number).decode(errors="replace"), number)

    def numbers(self, count: int, name: str, *arguments: Any) -> list[int]:
        """Return the values that a function stores in its last `count` arguments."""
        values = [UINT() for _ in range(count)]
        self.call(name, *arguments, *(ctypes.byref(value) for value in values))
        return [value.value for value in values]

    def number(self, name: str, *arguments: Any) -> int:
        return self.numbers(1, name, *arguments)[0]

    def listed(self, name: str, *arguments: Any) -> list[int]:
        """Return a list of numbers, whose length NVML reports first."""
        count = UINT(0)
        try:
            self.call(name, *arguments, ctypes.byref(count), None)
        except Failed as failed:
            if failed.number != INSUFFICIENT_SIZE:
                raise
        values = (UINT * count.value)()
        if count.value:
            self.call(name, *arguments, ctypes.byref(count), values)
        return list(values)[: count.value]

    def text(self, name: str, device: Any) -> str:
        buffer = ctypes.create_string_buffer(96)
        self.call(name, device, buffer, UINT(96))
        return buffer.value.decode(errors="replace")

    def devices(self) -> list[Any]:
        handles = []
        for number in range(self.number("DeviceGetCount_v2")):
            handle = HANDLE()
            self.call("DeviceGetHandleByIndex_v2", UINT(number), ctypes.byref(handle))
            handles.append(handle)
        return handles

    def address(self, device: Any) -> str:
        """Return the PCI address in the format of sysfs."""
        pci = Pci()
        self.call("DeviceGetPciInfo_v3", device, ctypes.byref(pci))
        return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"

    def computing(self, device: Any) -> list[int]:
        """Return process ids with a CUDA context on the GPU; branch 470 has the function as _v2."""
        newest = hasattr(self.library, "nvmlDeviceGetComputeRunningProcesses_v3")
        for room in (64, 4096):
            processes, count = (Process * room)(), UINT(room)
            try:
                self.call("DeviceGetComputeRunningProcesses_v" + "23"[newest], device, ctypes.byref(count), processes)
            except Failed as failed:
                if failed.number != INSUFFICIENT_SIZE:
                    raise
                continue
            return [process.pid for process in list(processes)[: count.value]]
        return []
