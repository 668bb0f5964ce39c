"""NVML values of an idle GPU, by model: numbers from public nvidia-smi output of real ones."""

from __future__ import annotations

from dataclasses import dataclass

from gpuprov.catalog.gpus import ARCHITECTURES, Architecture, Gpu
from gpuprov.core.errors import GpuprovError

# NVML_DEVICE_ARCH_MAXWELL; each later generation has the next number:
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
NVML_MAXWELL = 3
BRAND_NVIDIA = 14
# MB/s of an NVLink and direction, from public output of `nvidia-smi nvlink -s`.
LINK_SPEEDS: dict[Architecture, int] = {"Volta": 25781, "Ampere": 25000, "Hopper": 26562, "Blackwell": 53125}


# MHz: the slowest graphics clock in the supported clocks of public outputs (A100: 81 clocks up to 1410 MHz).
LEAST_CLOCK = 210


# VBIOS versions by model, from public outputs: the normal one, and another for the fault vbios-differs.
VBIOS = {"H100-SXM5-80GB": ("96.00.74.00.0D", "96.00.89.00.01")}


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
    # nvidia-smi -q and deviceQuery, cards without NVLink bridges:
    # https://github.com/thamada/gls/tree/e20f22d0eec076b6eeed628fdb1312d84a6fb663/gls
    "V100-SXM2": Model(16384, 240, 16384, 300, 150, 45, 1530, 877, 3, 6, 80, 5120, 4096, 87, 90),
    "A10": Model(23028, 512, 32768, 150, 100, 16, 1695, 6251, 4, 0, 72, 9216, 384, 98, 101),
    "A40": Model(46068, 665, 65536, 300, 100, 24, 1740, 7251, 4, 0, 84, 10752, 384, 95, 98),
    "RTX-A6000": Model(46068, 450, 65536, 300, 100, 25, 2100, 8001, 4, 0, 84, 10752, 384, 95, 98),
    "L4": Model(23034, 556, 32768, 72, 40, 16, 2040, 6251, 4, 0, 58, 7424, 192),
    "RTX-6000-ADA": Model(49140, 500, 256, 300, 100, 24, 3105, 10001, 4, 0, 142, 18176, 384),
    "H100-NVL": Model(95830, 594, 131072, 400, 200, 62, 1785, 2619, 5, 12, 132, 16896, 6144),
    # nvidia-smi's tables; NVLinks: https://github.com/sgl-project/sglang/issues/3685
    "H20": Model(97871, 551, 131072, 500, 200, 72, 1980, 2619, 5, 18, 78, 9984, 6144),
    # https://github.com/ademeure/QuickRunCUDA/blob/260d89aa2ffa7ad746c59b0e956f0dcd9c2d5f1c/b300_clean/16_power_clock.md
    # https://github.com/ademeure/QuickRunCUDA/blob/b913c35b0dae678defa3fa55f22de0910184c196/MICROBENCH_RESULTS_GPU1.md
    "B300": Model(275040, 729, 524288, 1100, 200, 182, 2032, 3996, 6, 18, 148, 18944, 7680),
    # nvidia-smi's tables; power and clock: https://github.com/facebookexperimental/triton/pull/2023
    "GB300": Model(284208, 729, 524288, 1400, 200, 172, 2070, 3996, 6, 18, 152, 19456, 7680),
    # nvidia-smi's tables (150 to 600 W); cores and bus, then memory and clocks of a Max-Q:
    # https://www.nvidia.com/content/dam/en-zz/Solutions/data-center/rtx-pro-6000-blackwell-workstation-edition/workstation-blackwell-rtx-pro-6000-workstation-edition-nvidia-us-3519208-web.pdf
    # https://github.com/influxdata/telegraf/blob/74bae14c4081c88c014e87840cbdf4167d9e31b1/plugins/inputs/nvidia_smi/testdata/pro-6000-maxq-blackwell-v13.xml
    "RTX-PRO-6000-WS": Model(97887, 637, 131072, 600, 150, 15, 3090, 14001, 5, 0, 188, 24064, 512),
}


# Fields that no public output of a model shows, and the model of its generation whose numbers stand in.
UNPUBLISHED: dict[str, tuple[str, tuple[str, ...]]] = {
    "H20": ("H100-SXM5-80GB", ("reserved", "bar1", "least_power", "sm_clock", "memory_clock")),
    "B300": ("B200", ("reserved",)),
    "GB300": ("B300", ("reserved", "bar1", "least_power", "memory_clock", "bus")),
}


def explain_unpublished(gpu: Gpu) -> str:
    """Say which of the model's numbers are another model's; empty for one whose own numbers are all known."""
    if gpu.key not in UNPUBLISHED:
        return ""
    like, fields = UNPUBLISHED[gpu.key]
    return f"NVML's {', '.join(fields)} are those of {like}: no public output of {gpu.key} shows them"


def model(gpu: Gpu) -> Model:
    """Return the model's numbers. Raises GpuprovError if there are none."""
    entry = MODELS.get(gpu.key)
    if entry is None:
        allowed = ", ".join(MODELS)
        raise GpuprovError(
            f'gpu.model is "{gpu.key}": the simulated NVML has no numbers for it; it has: {allowed}',
            fix="describe the host with one of these, or add the model to gpuprov/simulate/nvml_models.py",
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
