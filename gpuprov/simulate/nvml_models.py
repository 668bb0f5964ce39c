"""NVML values of an idle GPU, by model: numbers from public nvidia-smi output of real ones."""

from __future__ import annotations

from dataclasses import dataclass

from gpuprov.catalog.gpus import ARCHITECTURES, Architecture, Gpu
from gpuprov.core.errors import GpuprovError

NVML_MAXWELL = 3
"""NVML_DEVICE_ARCH_MAXWELL; each later generation has the next number:
https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html"""
BRAND_NVIDIA = 14
LINK_SPEEDS: dict[Architecture, int] = {"Volta": 25781, "Ampere": 25000, "Hopper": 26562, "Blackwell": 53125}
"""MB/s of an NVLink and direction, from public output of `nvidia-smi nvlink -s`."""


LEAST_CLOCK = 210
"""MHz: the slowest graphics clock in the supported clocks of public outputs (A100: 81 clocks up to 1410 MHz)."""


VBIOS = {"H100-SXM5-80GB": ("96.00.74.00.0D", "96.00.89.00.01")}
"""VBIOS versions by model, from public outputs: the normal one, and another for the fault vbios-differs."""


@dataclass(frozen=True)
class Model:
    """`memory`, `reserved` and `bar1` in MiB, powers in W, clocks in MHz, `bus` in bits, temperatures in degrees
    Celsius."""

    memory: int
    reserved: int
    bar1: int
    power: int
    least_power: int
    idle_power: int
    sm_clock: int
    memory_clock: int
    pcie: int
    nvlinks: int
    sms: int
    cores: int
    bus: int
    slowdown: int = 92
    shutdown: int = 95


MODELS: dict[str, Model] = {
    "T4": Model(15360, 444, 256, 70, 60, 9, 1590, 5001, 3, 0, 40, 2560, 256, 93, 96),
    "A100-SXM4-40GB": Model(40960, 571, 65536, 400, 100, 45, 1410, 1215, 4, 12, 108, 6912, 5120),
    "A100-SXM4-80GB": Model(81920, 612, 131072, 400, 100, 60, 1410, 1593, 4, 12, 108, 6912, 5120),
    "A100-PCIE-40GB": Model(40960, 571, 65536, 250, 150, 33, 1410, 1215, 4, 12, 108, 6912, 5120),
    "A100-PCIE-80GB": Model(81920, 612, 131072, 300, 150, 43, 1410, 1512, 4, 12, 108, 6912, 5120),
    "A30": Model(24576, 491, 32768, 165, 100, 28, 1440, 1215, 4, 4, 56, 3584, 3072),
    "L40S": Model(46068, 598, 65536, 350, 100, 33, 2520, 9001, 4, 0, 142, 18176, 384),
    "H100-SXM5-80GB": Model(81559, 551, 131072, 700, 200, 70, 1980, 2619, 5, 18, 132, 16896, 5120),
    "H100-PCIE": Model(81559, 551, 131072, 350, 200, 48, 1755, 1593, 5, 12, 114, 14592, 5120),
    "H200-SXM": Model(143771, 606, 262144, 700, 200, 76, 1980, 3201, 5, 18, 132, 16896, 6144),
    "B200": Model(183359, 729, 262144, 1000, 200, 140, 1965, 3996, 5, 18, 148, 18944, 8192),
    "GB200": Model(189471, 729, 262144, 1200, 200, 160, 2062, 3996, 6, 18, 152, 19456, 8192),
    "RTX-PRO-6000-SE": Model(97887, 638, 131072, 600, 300, 32, 2430, 12481, 5, 0, 188, 24064, 512),
}


def model(gpu: Gpu) -> Model:
    """Return the model's numbers. Raises GpuprovError if there are none."""
    entry = MODELS.get(gpu.key)
    if entry is None:
        allowed = ", ".join(MODELS)
        raise GpuprovError(
            f'gpu.model is "{gpu.key}": the simulated NVML has no numbers for it; it has: {allowed}',
            hint="describe the host with one of these, or add the model to gpuprov/simulate/nvml_models.py",
        )
    return entry


def settings(gpu: Gpu) -> dict[str, str | int]:
    """Return lines of nvml.tsv: the stand-in NVML's answers, by the names used in its C code."""
    known = model(gpu)
    vbios: dict[str, str | int] = {"vbios": gpu.mig.min_vbios[0].version} if gpu.mig.min_vbios else {}
    if gpu.key in VBIOS:
        vbios = dict(zip(("vbios", "vbios_other"), VBIOS[gpu.key], strict=True))
    major, _, minor = gpu.compute_capability.partition(".")
    return {
        "architecture": NVML_MAXWELL + ARCHITECTURES.index(gpu.arch),
        "brand": BRAND_NVIDIA,
        "compute_major": major,
        "compute_minor": minor,
        "sms": known.sms,
        "cores": known.cores,
        "memory_mib": known.memory,
        "memory_reserved_mib": known.reserved,
        "memory_bus_width": known.bus,
        "bar1_mib": known.bar1,
        "power_limit_mw": known.power * 1000,
        "power_min_mw": known.least_power * 1000,
        "power_idle_mw": known.idle_power * 1000,
        "clock_sm": known.sm_clock,
        "clock_video": known.sm_clock * 9 // 10,
        "clock_memory": known.memory_clock,
        "clock_idle": 345,
        "clock_least": LEAST_CLOCK,
        "pcie_generation": known.pcie,
        "pcie_width": 16,
        "nvlinks": known.nvlinks,
        "nvlink_mbps": LINK_SPEEDS.get(gpu.arch, 0) if known.nvlinks else 0,
        "ecc": 1,
        "temperature": 30,
        "temperature_shutdown": known.shutdown,
        "temperature_slowdown": known.slowdown,
        "temperature_memory": 95,
        "temperature_target": 87,
        "zero": 0,
        "one": 1,
        **vbios,
    }
