"""The `gpu_settings` block: the settings of every GPU, and different ones of some."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gpuprov.host_code.gpu_settings import compare, selection
from gpuprov.spec.model import Fragment

HERE = "gpu_settings"
SELECTOR = r"^(([0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|GPU-[0-9a-f][0-9a-f-]{7,35})$"
Selector = (
    Annotated[int, msgspec.Meta(ge=0, le=63)]
    | Annotated[str, msgspec.Meta(pattern=SELECTOR, description='"0000:3b:00.0" or "GPU-<uuid>"')]
)
Mhz = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Range = Annotated[tuple[Mhz, ...], msgspec.Meta(min_length=2, max_length=2)] | Literal["keep", "default"]
FIELDS = ("ecc", "power_limit", "application_clocks", "locked_clocks", "compute_mode")


class ApplicationClocks(Fragment, frozen=True):
    """A pair that the GPU lists as supported, in MHz."""

    memory: Annotated[Mhz, msgspec.Meta(description="MHz of the memory")]
    graphics: Annotated[Mhz, msgspec.Meta(description="MHz of the shaders")]


class LockedClocks(Fragment, frozen=True):
    """A range of clocks in MHz, from lowest to highest; default removes a lock."""

    ONE_OF = ("graphics", "memory")

    graphics: Annotated[Range, msgspec.Meta(description="[least, most] in MHz, or default: not locked")] = "keep"
    memory: Annotated[Range, msgspec.Meta(description="[least, most] in MHz, or default: not locked")] = "keep"


class Settings(Fragment, frozen=True):
    """Settings of a GPU. keep leaves a setting unchanged."""

    ecc: Annotated[
        Literal["keep", "enabled", "disabled"],
        msgspec.Meta(description="ECC of the GPU's memory; a change waits for a reboot"),
    ] = "keep"
    power_limit: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=10_000)] | Literal["keep", "default"],
        msgspec.Meta(description="watts that the GPU may draw, or default: the GPU's own"),
    ] = "keep"
    application_clocks: Annotated[
        ApplicationClocks | Literal["keep", "default"],
        msgspec.Meta(
            description="{memory, graphics} in MHz while programs run, or default; NVIDIA drops them, see locked_clocks"
        ),
    ] = "keep"
    locked_clocks: Annotated[
        LockedClocks, msgspec.Meta(description="ranges in MHz that the clocks stay in; NVML does not tell them back")
    ] = LockedClocks()
    compute_mode: Annotated[
        Literal["keep", "default", "exclusive_process", "prohibited"],
        msgspec.Meta(description="who may compute on the GPU: all, one process, none; with mps it is set there"),
    ] = "keep"


class Entry(Settings, frozen=True, kw_only=True, omit_defaults=True):
    """Different settings for the GPUs in `gpus`."""

    gpus: Annotated[
        Literal["all"] | tuple[Selector, ...],
        msgspec.Meta(
            description="which GPUs: all, or a list of PCI addresses, UUIDs, and indexes in the order of PCI addresses"
        ),
    ]


class GpuSettings(Settings, frozen=True):
    """Settings of every GPU, kept across boots by gpuprov-gpu-settings.service; GPUs are never reset for it."""

    confidential_computing: Annotated[
        Literal["keep", "enabled", "disabled", "devtools", "protected_pcie"],
        msgspec.Meta(description="what the confidential-computing mode has to be; it is proven and never set"),
    ] = "keep"
    per_gpu: Annotated[
        tuple[Entry, ...],
        msgspec.Meta(description="entries in order: of two that say a setting of a GPU, the later one counts"),
    ] = ()


def settings(block: Settings) -> compare.Settings:
    """Return the requested settings as plain values; settings that are left alone are absent."""
    plain = msgspec.json.decode(msgspec.json.encode(block))
    values = {key: plain[key] for key in FIELDS if plain.get(key, "keep") not in ("keep", {})}
    locks = {key: value for key, value in plain.get("locked_clocks", {}).items() if value != "keep"}
    values.pop("locked_clocks", None)
    return msgspec.convert({**values, **({"locked_clocks": locks} if locks else {})}, compare.Settings)


def config(block: GpuSettings) -> selection.Config:
    """Return the input of the host's program, which it keeps for its boots: see
    gpuprov/host_code/gpu_settings/selection.py."""
    entries: list[selection.Entry] = [
        {"gpus": _list_names(entry), "settings": settings(entry)} for entry in block.per_gpu
    ]
    return {"version": 1, "all": settings(block), "per_gpu": entries}


def _list_names(entry: Entry) -> list[int | str] | Literal["all"]:
    return "all" if entry.gpus == "all" else list(entry.gpus)


def asks(block: GpuSettings, name: str) -> bool:
    """Return whether a setting is requested for any GPU."""
    return any(name in settings(entry) for entry in (block, *block.per_gpu))
