"""Power limits, ECC modes and clocks of GPUs."""

from __future__ import annotations

from functools import partial
from typing import Literal

from gpuprov.catalog.gpus import ARCHITECTURES, Architecture, Gpu
from gpuprov.catalog.reader import Fact, File, load

# The driver branch of CUDA 13, which deprecates application clocks.
DEPRECATED_SINCE = 580
BEFORE_CONFIDENTIAL = ARCHITECTURES[: ARCHITECTURES.index("Hopper")]


class PowerFact(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Watts."""

    gpu: str
    least: int
    most: int
    default: int


class GpuFact(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    gpu: str


class LockFact(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first architecture whose clock can be locked."""

    clock: Literal["graphics", "memory"]
    since: Architecture


class GpuSettingsFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/gpu_settings.yaml"""

    power: tuple[PowerFact, ...]
    no_ecc: tuple[GpuFact, ...]
    locked_clocks: tuple[LockFact, ...]


read_gpu_settings_file = partial(load, "gpu_settings", GpuSettingsFile)


def find_power(gpu: Gpu) -> PowerFact | None:
    """Return the power limits of a model, if published."""
    return next((entry for entry in read_gpu_settings_file().power if entry.gpu == gpu.key), None)


def explain_missing_ecc(gpu: Gpu) -> str:
    """Return the reason why a model has no ECC mode to set; "" if it has one, or nothing is documented."""
    known = any(entry.gpu == gpu.key for entry in read_gpu_settings_file().no_ecc)
    return f"{gpu.key} has no ECC mode" if known else ""


def explain_missing_lock(gpu: Gpu, clock: str) -> str:
    """Return the reason why a model's clock cannot be locked; "" if it can."""
    since = next(entry.since for entry in read_gpu_settings_file().locked_clocks if entry.clock == clock)
    if ARCHITECTURES.index(gpu.arch) >= ARCHITECTURES.index(since):
        return ""
    return f"the {clock} clock can be locked from {since} on, and {gpu.key} is {gpu.arch}"
