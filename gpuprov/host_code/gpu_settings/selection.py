"""The settings that a host's configuration requests for each GPU, and the GPUs' names in it. Pure: checks on the
controller use it too.

Settings are {"ecc": "enabled", "power_limit": 500, "application_clocks": {"memory": 2619, "graphics": 1980},
"locked_clocks": {"graphics": [1200, 1980], "memory": "default"}, "compute_mode": "prohibited"}; limits and clocks may
be "default".
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, Sequence, TypedDict, Union

from .compare import Settings

Name = Union[int, str]
ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.IGNORECASE)


class Entry(TypedDict):
    """Settings of some GPUs."""

    gpus: list[Name] | Literal["all"]
    settings: Settings


class Config(TypedDict, total=False):
    """The settings of a host's GPUs; of two that name a GPU the later wins."""

    version: int
    all: Settings
    per_gpu: list[Entry]


class SelectionError(ValueError):
    """A configuration that does not fit the GPUs; one line."""


class Gpu(NamedTuple):
    """A GPU as it can be named."""

    # Its index in the order of PCI addresses.
    number: int
    address: str
    uuid: str

    def __str__(self) -> str:
        return f"GPU {self.number} ({self.address})"


def normalize_name(name: Name) -> str:
    """Return a number as digits, a PCI address with its domain in four digits; anything else unchanged."""
    text = str(name)
    if re.fullmatch("[0-9]+", text):
        return str(int(text))
    match = ADDRESS.fullmatch(text)
    return f"{int(match[1] or '0', 16):04x}:{match[2].lower()}" if match else text


def is_named(name: Name, gpu: Gpu) -> bool:
    """Return whether a name is this GPU: its number, its PCI address in any usual form, or the beginning of its
    UUID."""
    address = normalize_name(name)
    return address in (str(gpu.number), gpu.address) or (address.startswith("GPU-") and gpu.uuid.startswith(address))


def select_targets(config: Config, gpus: Sequence[Gpu]) -> dict[int, Settings]:
    """Return the settings of each GPU that any are requested for, by number; of two entries the later wins. Raises
    SelectionError."""
    merged: dict[int, Settings] = {gpu.number: merge_settings({}, config["all"]) for gpu in gpus}
    for entry in config["per_gpu"]:
        chosen = list(gpus)
        if entry["gpus"] != "all":
            _refuse_strangers(entry["gpus"], gpus)
            chosen = [gpu for gpu in gpus if any(is_named(name, gpu) for name in entry["gpus"])]
        for gpu in chosen:
            merged[gpu.number] = merge_settings(merged[gpu.number], entry["settings"])
    return {number: settings for number, settings in merged.items() if settings}


def _refuse_strangers(names: list[Name], gpus: Sequence[Gpu]) -> None:
    strange = [str(name) for name in names if not any(is_named(name, gpu) for gpu in gpus)]
    if strange:
        known = ", ".join(f"{gpu.number} {gpu.address}" for gpu in gpus) or "none"
        raise SelectionError(f"no GPU here is {' or '.join(strange)}; there are: {known}")


def merge_settings(before: Settings, more: Settings) -> Settings:
    """Merge settings; locked clocks of graphics and memory are separate settings."""
    merged: Settings = {**before, **more}
    if locks := {**before.get("locked_clocks", {}), **more.get("locked_clocks", {})}:
        merged["locked_clocks"] = locks
    return merged
