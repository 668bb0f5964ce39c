"""The state of one GPU with MIG according to NVML, and its users; plain values."""

from __future__ import annotations

from typing import NamedTuple

from . import fit as mig_fit
from . import layout as mig_layout


class Compute(NamedTuple):
    """A compute instance; `start` and `size` on the axis of its GPU instance's compute slices."""

    id: int
    start: int
    size: int


class Present(NamedTuple):
    """An existing GPU instance; `slices` are compute slices, `start` and `size` memory slices."""

    id: int
    profile: str
    slices: int
    start: int
    size: int
    compute: tuple[Compute, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of its compute instances, largest first."""
        return tuple(sorted((part.size for part in self.compute), reverse=True))

    def __str__(self) -> str:
        return f"{format_instance(self.profile, self.start, self.slices, self.sizes)} (GPU instance {self.id})"


class Card(NamedTuple):
    """A GPU."""

    gpu: mig_layout.Gpu
    minor: int
    # It changes its MIG mode by a reset.
    resets: bool
    current: int = 0
    pending: int = 0
    # None if NVML does not report them while MIG is off.
    profiles: tuple[mig_fit.Profile, ...] = ()
    instances: tuple[Present, ...] = ()

    @property
    def grid(self) -> int:
        """The number of memory slices."""
        return max((start + profile.size for profile in self.profiles for start in profile.starts), default=0)

    def slices(self, profile: str) -> int:
        """Compute slices of a profile."""
        known = {profile.name: profile.slices for profile in self.profiles}
        return known.get(profile) or mig_layout.parse_profile(profile).slices

    def __str__(self) -> str:
        return f"GPU {self.gpu.index} ({self.gpu.address})"


class User(NamedTuple):
    """A process that uses a GPU: all of it, one GPU instance (`gi`) or one compute instance of that (`ci`)."""

    pid: int
    command: str
    owner: str
    unit: str
    gpu: int
    gi: int | None = None
    ci: int | None = None
    # It has a CUDA context, or appears to have one; else it only has the GPU's device file open.
    computes: bool = True

    def __str__(self) -> str:
        return f"{self.command} (pid {self.pid}, {self.owner}{', ' + self.unit if self.unit else ''})"


def list_sizes(slices: int, compute: tuple[int, ...]) -> tuple[int, ...]:
    """Return the requested sizes of compute instances, largest first; without a request, one with all slices."""
    return tuple(sorted(compute, reverse=True)) or (slices,)


def format_instance(profile: str, start: int | None, slices: int, sizes: tuple[int, ...]) -> str:
    """Return `3g.40gb at 4`, with its compute instances unless there is one with all slices."""
    place = "" if start is None else f" at {start}"
    cut = "" if sizes == (slices,) else f" with {', '.join(f'{size}c' for size in sizes) or 'no compute instance'}"
    return f"{profile}{place}{cut}"
