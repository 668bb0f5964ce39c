"""NVML on a simulated host: the GPU data of its stand-in library, and the library as files of libnvidia-ml1.

The library is gpuprov's own (C, in nvml_files). It answers queries of the real nvidia-smi and other NVML clients about
idle GPUs, and applies the real rules of MIG, from gpuprov's catalogue. Programs load it from the host's package, like
the real one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuprov.catalog.drivers import list_branches
from gpuprov.catalog.gpus import Gpu
from gpuprov.catalog.mig import Profile, find_class
from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import nvml_build, nvml_models
from gpuprov.simulate.description import Description
from gpuprov.simulate.parts.base import CONFIGURATION, RUN, STATE, File, Part, text

LIBRARIES = "/usr/lib/x86_64-linux-gnu/nvidia/current"
PERSISTENCE = f"{RUN}/persistence"
TMPFILES = "/usr/lib/tmpfiles.d/gpuprov-sim-nvml.conf"
SAID = "# What the stand-in NVML of this simulated host (gpuprov) answers. Columns: "
# An instance has a little less than its share of the memory: https://docs.nvidia.com/datacenter/tesla/mig-user-guide
SHARE = 0.98
# GPUs of a tray, whose fabric is the rack's: always registered, in a clique.
ATTACHED = 2
MEDIA = {"me", "me.all"}


def part(_name: str, description: Description) -> Part:
    """Return the tables that the library reads, except the devices. Raises GpuprovError for a model without numbers."""
    if description.gpu is None:
        return Part()
    gpu = description.gpu.known
    settings = {
        **nvml_models.settings(gpu),
        "fabric": ATTACHED if gpu.fabric_manager.imex else int(description.nvswitch > 0),
        **_cuda(),
    }
    files = {
        f"{CONFIGURATION}/nvml.tsv": text(SAID + "name, value\n" + _lines(settings.items())),
        # The persistence daemon is not root, and whoever is root switches its mode too.
        TMPFILES: text(f"d {RUN} 0755 root root\nd {PERSISTENCE} 0777 root root\nd {STATE}/mig 0755 root root\n"),
    }
    if rows := mig_table(gpu):
        columns = "name, NVML id, nvidia-smi id, slices, size, count, SMs, MiB, since branch, media, starts\n"
        files[f"{CONFIGURATION}/mig.tsv"] = text(SAID + columns + _lines(rows))
    return Part(files=files, script=f"systemd-tmpfiles --create {TMPFILES}")


def package_files(version: str) -> Mapping[str, File]:
    """Return the contents of libnvidia-ml1 of this driver version, by path: the library reads its version from its own
    name."""
    return {f"{LIBRARIES}/libnvidia-ml.so.{version}": File(nvml_build.build())}


def mig_table(gpu: Gpu) -> list[tuple[str | int, ...]]:
    """Return the MIG profiles of the GPU; empty for one without MIG. Raises GpuprovError if the catalogue lacks
    placements."""
    mig_class = find_class(gpu)
    if mig_class is None:
        return []
    numbers = nvml_models.model(gpu)
    if mig_class.grid_size is None:
        raise GpuprovError(f"gpu.model is {gpu.key}: the catalogue does not know where its MIG profiles can be placed")
    most = max(profile.slices or 0 for profile in mig_class.profiles)
    return [_row(profile, numbers, mig_class.grid_size, most) for profile in mig_class.profiles]


def _row(profile: Profile, numbers: nvml_models.Model, grid: int, most: int) -> tuple[str | int, ...]:
    if profile.nvml_id is None or profile.nvsmi_id is None or profile.slices is None or profile.size is None:
        raise GpuprovError(f"catalogue: the MIG profile {profile.name} lacks an id, its slices or its size")
    memory = numbers.memory * profile.size / grid * SHARE if profile.memory_gib is None else profile.memory_gib * 1024
    sms = numbers.sms * profile.slices // most if profile.sm is None else profile.sm
    return (
        profile.name,
        profile.nvml_id,
        profile.nvsmi_id,
        profile.slices,
        profile.size,
        profile.max_count,
        sms,
        int(memory),
        profile.since_branch or 0,
        int(bool(MEDIA & {*profile.attributes})),
        ",".join(map(str, profile.starts)),
    )


def _cuda() -> dict[str, int]:
    """Return the CUDA version of each driver branch, in NVML's form: 12.4 is 12040."""
    known = {}
    for branch in list_branches():
        if branch.cuda:
            major, _, minor = branch.cuda.partition(".")
            known[f"cuda.{branch.branch}"] = int(major) * 1000 + int(minor or 0) * 10
    return known


def _lines(rows: Iterable[Iterable[object]]) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)
