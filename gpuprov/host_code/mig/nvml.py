"""NVML of this host through NVIDIA's own binding: read each GPU's MIG state, change mode and instances."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import math
from typing import Any, Iterator, Mapping

from . import fit as mig_fit
from . import layout as mig_layout
from .state import Card, Compute, Present

AMPERE = 7  # NVML_DEVICE_ARCH_AMPERE
# Attributes by NVML_GPU_INSTANCE_PROFILE_*, for drivers that do not report a profile's name.
ATTRIBUTES = {
    7: "+me",
    8: "+me",
    10: "+gfx",
    11: "+gfx",
    12: "+gfx",
    13: "-me",
    14: "-me",
    15: "+me.all",
    16: "+me.all",
    17: "+gfx",
}
# More kinds of profiles than any driver has: it answers INVALID_ARGUMENT for those that it does not know.
COUNT = 32
MIB, GIB = 1 << 20, 1 << 30


class Nvml:
    """An open session with NVML. NVML's refusals are raised as `error` (pynvml.NVMLError)."""

    def __init__(self, models: Mapping[str, str], binding: Any = None) -> None:
        self.models = models
        self.lib = binding or importlib.import_module(".pynvml", __package__)
        self.error = self.lib.NVMLError
        self.lib.nvmlInit()

    def close(self) -> None:
        """Close the session."""
        # Does nothing if it is closed already: after a reset that NVML did not survive.
        with contextlib.suppress(self.lib.NVMLError_Uninitialized):
            self.lib.nvmlShutdown()

    def describe_code(self, code: int) -> str:
        """Return the text of a result code."""
        return str(self.error(code))

    def handles(self) -> list[tuple[str, Any]]:
        """Return address and handle of each GPU, in order of addresses."""
        handles = [self.lib.nvmlDeviceGetHandleByIndex(number) for number in range(self.lib.nvmlDeviceGetCount())]
        known = [(self.lib.nvmlDeviceGetPciInfo(handle), handle) for handle in handles]
        known.sort(key=lambda item: (item[0].domain, item[0].bus, item[0].device))
        return [(f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0", handle) for pci, handle in known]

    def handle(self, card: Card) -> Any:
        return dict(self.handles())[card.gpu.address]

    def cards(self) -> list[Card]:
        """Return all GPUs."""
        return [self._card(number, address, handle) for number, (address, handle) in enumerate(self.handles())]

    def card(self, address: str) -> Card:
        """Return one GPU in its current state."""
        return next(card for card in self.cards() if card.gpu.address == address)

    def _card(self, number: int, address: str, handle: Any) -> Card:
        pci = self.lib.nvmlDeviceGetPciInfo(handle)
        try:
            current, pending = self.lib.nvmlDeviceGetMigMode(handle)
            capable = True
        except self.lib.NVMLError_NotSupported:
            current, pending, capable = 0, 0, False
        device = f"0x{pci.pciDeviceId:08X}"
        gpu = mig_layout.Gpu(
            index=number,
            address=address,
            uuid=self.lib.nvmlDeviceGetUUID(handle),
            model=self.models.get(device, ""),
            name=self.lib.nvmlDeviceGetName(handle),
            pci=device,
            subsystem=f"0x{pci.pciSubSystemId:08X}",
            capable=capable,
        )
        resets = capable and self.lib.nvmlDeviceGetArchitecture(handle) == AMPERE
        bare = Card(gpu, self.lib.nvmlDeviceGetMinorNumber(handle), resets, current, pending)
        if not capable:
            return bare
        kinds = list(self.kinds(handle))
        profiles = [
            mig_fit.Profile(i.name, i.slices, p[0].size, tuple(placement.start for placement in p), i.count, i.media)
            for i, p in kinds
            if p
        ]
        instances = self._instances(handle, kinds) if current else []
        return bare._replace(
            profiles=tuple(profiles), instances=tuple(sorted(instances, key=lambda instance: instance.start))
        )

    def kinds(self, handle: Any) -> Iterator[tuple[Any, list[Any]]]:
        """Yield each profile of a GPU, and its places: none if NVML does not report them while MIG is off."""
        for number in range(COUNT):
            try:
                info = self.lib.nvmlDeviceGetGpuInstanceProfileInfo(handle, number, version=1)
            except (self.lib.NVMLError_NotSupported, self.lib.NVMLError_InvalidArgument):
                continue
            name = self._name(handle, number, info)
            media = bool({"me", "me.all"} & {*mig_layout.parse_profile(name).attributes})
            kind = Kind(info.id, name, info.sliceCount, info.instanceCount, media)
            try:
                yield kind, self._places(handle, info.id)
            except self.lib.NVMLError_NotSupported:
                yield kind, []

    def _name(self, handle: Any, number: int, info: Any) -> str:
        """Return NVML's name of a profile, or one derived from its size if the driver reports none."""
        try:
            named = self.lib.nvmlDeviceGetGpuInstanceProfileInfo(handle, number, version=2).name
            text = named.decode() if isinstance(named, bytes) else str(named)
            return mig_layout.parse_profile(text[4:] if text.startswith("MIG ") else text).gpu_instance
        except (self.lib.NVMLError_FunctionNotFound, self.lib.NVMLError_ArgumentVersionMismatch):
            total = self.lib.nvmlDeviceGetMemoryInfo(handle).total
            return derive_profile_name(number, info.sliceCount, info.memorySizeMB, total)

    def _places(self, handle: Any, profile: int) -> list[Any]:
        count = ctypes.c_uint()
        ask = self.lib.nvmlDeviceGetGpuInstancePossiblePlacements
        ask(handle, profile, None, ctypes.byref(count))
        places = (self.lib.c_nvmlGpuInstancePlacement_t * count.value)()
        ask(handle, profile, places, ctypes.byref(count))
        return list(places)[: count.value]

    def _instances(self, handle: Any, kinds: list[tuple[Any, list[Any]]]) -> Iterator[Present]:
        for kind, _ in kinds:
            count = ctypes.c_uint(kind.count)
            instances = (self.lib.c_nvmlGpuInstance_t * kind.count)()
            self.lib.nvmlDeviceGetGpuInstances(handle, kind.id, instances, ctypes.byref(count))
            for instance in list(instances)[: count.value]:
                info = self.lib.nvmlGpuInstanceGetInfo(instance)
                compute = tuple(sorted(made for made, _ in self.computes(instance)))
                yield Present(info.id, kind.name, kind.slices, info.placement.start, info.placement.size, compute)

    def compute_kinds(self, instance: Any) -> Iterator[Any]:
        """Yield the profiles of compute instances that a GPU instance can have."""
        for number in range(COUNT):
            try:
                yield self.lib.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, number, 0, version=1)
            except (self.lib.NVMLError_NotSupported, self.lib.NVMLError_InvalidArgument):
                continue

    def computes(self, instance: Any) -> Iterator[tuple[Compute, Any]]:
        """Yield the compute instances of a GPU instance, with their handles."""
        for kind in self.compute_kinds(instance):
            count = ctypes.c_uint(kind.instanceCount)
            instances = (self.lib.c_nvmlComputeInstance_t * kind.instanceCount)()
            self.lib.nvmlGpuInstanceGetComputeInstances(instance, kind.id, instances, ctypes.byref(count))
            for handle in list(instances)[: count.value]:
                info = self.lib.nvmlComputeInstanceGetInfo_v2(handle)
                yield Compute(info.id, info.placement.start, info.placement.size), handle


def derive_profile_name(number: int, slices: int, megabytes: int, total: int) -> str:
    """Return the name of profile `number` (NVML_GPU_INSTANCE_PROFILE_*) on a GPU with `total` bytes, for drivers that
    report none, such as those of branch 470."""
    # https://github.com/NVIDIA/go-nvlib/blob/main/pkg/nvlib/device/mig_profile.go
    part = math.ceil(8 * megabytes * MIB / total) / 8
    size = math.floor(part * math.ceil(total / GIB) + 0.5)
    return f"{slices}g.{size}gb{ATTRIBUTES.get(number, '')}"


class Kind:
    """A profile of GPU instances; `id` is the argument for NVML's functions."""

    def __init__(self, number: int, name: str, slices: int, count: int, media: bool) -> None:
        self.id, self.name, self.slices, self.count, self.media = number, name, slices, count, media
