"""A GPU model's MIG profiles, from the catalogue, in the form for the search."""

from typing import NamedTuple

from gpuprov.catalog import gpus as catalogue
from gpuprov.catalog import mig
from gpuprov.catalog.reader import Confidence
from gpuprov.core.errors import GpuprovError
from gpuprov.host_code.mig.fit import Profile
from gpuprov.host_code.mig.layout import parse_profile

# Placeholder for an unknown number of memory slices.
ANY_GRID = 1 << 30


class Model(NamedTuple):
    """`profiles` and `grid` (memory slices) for mig_fit. If placements are unknown, `grid` is None, and so are the
    starts; then only names, counts and compute slices can be checked."""

    gpu: catalogue.Gpu
    known: tuple[mig.Profile, ...]
    profiles: tuple[Profile, ...]
    grid: int | None
    # Confidence in the placements.
    sure: Confidence

    @property
    def caveat(self) -> str:
        """Confidence in the placements, in words; empty if they were seen on such a GPU."""
        if self.sure == "confirmed":
            return ""
        return f"placements of {self.gpu.key} are {self.sure}: taken from GPUs of its kind, not seen on one"


def model_of(gpu: catalogue.Gpu) -> Model:
    """Return the model; without profiles if it has no MIG, or its profiles are unknown."""
    entry = mig.find_class(gpu)
    if entry is None:
        return Model(gpu, (), (), None, "unconfirmed")
    complete = entry.grid_size is not None and all(profile.size and profile.starts for profile in entry.profiles)
    profiles = tuple(
        Profile(
            profile.name,
            profile.slices or parse_profile(profile.name).slices,
            profile.size or 0,
            profile.starts,
            profile.max_count,
            bool({"me", "me.all"} & set(profile.attributes)),
        )
        for profile in entry.profiles
    )
    sure = entry.placement_confidence() if gpu.mig.confidence == "confirmed" else gpu.mig.confidence
    return Model(gpu, entry.profiles, profiles, entry.grid_size if complete else None, sure)


def find(text: str) -> Model:
    """Find the model with this key, product name or PCI id. Raises GpuprovError if there is none with MIG profiles."""
    gpu = catalogue.find_gpu(text)
    capable = [gpu.key for gpu in catalogue.list_gpus() if mig.find_class(gpu)]
    if gpu is None:
        near = [key for key in catalogue.find_nearest(text) if key in capable]
        ways = f"did you mean {', '.join(near)}?" if near else f"GPUs with MIG: {', '.join(capable)};"
        raise GpuprovError(f'no GPU is called "{text}"', f"{ways} gpuprov catalog gpus lists all")
    if not gpu.mig.capable:
        raise GpuprovError(f"{gpu.key} has no MIG", f"GPUs with MIG: {', '.join(capable)}")
    model = model_of(gpu)
    if not model.profiles:
        raise GpuprovError(
            f"the MIG profiles of {gpu.key} are not known", "on such a host: nvidia-smi mig -lgip -lgipp"
        )
    return model
