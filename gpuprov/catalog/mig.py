"""MIG profiles per class of GPUs, and their possible placements."""

from functools import cache

import msgspec

from gpuprov.catalog.gpus import Gpu
from gpuprov.catalog.reader import Confidence, Fact, File, find_weakest, load


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One MIG profile.

    `size` and `starts` are on the memory-slice axis of the class (`grid_size` long), as printed by `nvidia-smi mig
    -lgipp`; None or empty: unknown. `slices` are compute slices. `memory_gib` is the value reported by the card.
    `nvsmi_id` differs between products; `nvml_id` is the value of NVML_GPU_INSTANCE_PROFILE_*. Name and `max_count`
    have the confidence of the class; the rest, from `nvsmi_id` to `starts`, has `placement_confidence`.
    """

    name: str
    max_count: int
    nvsmi_id: int | None = None
    nvml_id: int | None = None
    slices: int | None = None
    size: int | None = None
    starts: tuple[int, ...] = ()
    memory_gib: float | None = None
    sm: int | None = None
    attributes: tuple[str, ...] = ()
    since_branch: str = ""
    placement_confidence: Confidence = "confirmed"
    note: str = ""


class ProfileClass(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPUs of one class have the same profiles. `grid_size`: memory slices; None: not known."""

    name: str
    grid_size: int | None = None
    profiles: tuple[Profile, ...]
    notes: tuple[str, ...] = ()

    def find(self, name: str) -> Profile | None:
        """The profile of this name, as nvidia-smi writes it, with or without "MIG "."""
        sought = name.strip().casefold().removeprefix("mig ")
        return next((profile for profile in self.profiles if profile.name == sought), None)

    def placement_confidence(self) -> Confidence:
        """The confidence of the class's placements: the lowest of its profiles."""
        return find_weakest(self.confidence, *(profile.placement_confidence for profile in self.profiles))


class NvmlProfile(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value of NVML_GPU_INSTANCE_PROFILE_*."""

    id: int
    name: str


class MigFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/mig.yaml"""

    classes: tuple[ProfileClass, ...]
    nvml_profiles: tuple[NvmlProfile, ...]


def list_classes() -> tuple[ProfileClass, ...]:
    """All classes, in the order of the file."""
    return load("mig", MigFile).classes


@cache
def index_by_name() -> dict[str, ProfileClass]:
    return {entry.name: entry for entry in list_classes()}


def find_class(gpu: Gpu) -> ProfileClass | None:
    """The profile class of the GPU; None when it has no MIG or its profiles are not known."""
    return index_by_name().get(gpu.mig.profile_class) if gpu.mig.capable else None


def list_profiles(gpu: Gpu) -> tuple[Profile, ...]:
    """The MIG profiles of the GPU; empty when it has no MIG or its profiles are not known."""
    profile_class = find_class(gpu)
    return profile_class.profiles if profile_class else ()
