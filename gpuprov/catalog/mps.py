"""NVIDIA's Multi-Process Service: client limits, features of a driver branch, packages of its programs, paths that
gpuprov uses."""

from __future__ import annotations

from functools import partial
from typing import Literal

from gpuprov.catalog.gpus import Gpu
from gpuprov.catalog.mig import list_profiles
from gpuprov.catalog.reader import Fact, File, load
from gpuprov.core.safe_parse import is_whole
from gpuprov.host_code.mps import daemon

CONTROL = "nvidia-cuda-mps-control"
UNIT = "gpuprov-mps@.service"
UNITS = "gpuprov-mps@*.service"
STATE = daemon.STATE
# Folder of NAME.env of each running daemon, the environment of its clients.
RUNTIME = "/run/gpuprov/mps"
# https://docs.nvidia.com/deploy/mps/appendix-environment-variables.html: the defaults of protocol 2, and of protocol 3
# for root.
PIPES = {"v2": "/tmp/nvidia-mps", "v3": "/run/nvidia-mps"}
PIPE_BASE = "/run/nvidia-mps"
LOGS = "/var/log/nvidia-mps"
# The named server of protocol 3 that has the spec's limits.
SERVER = "gpuprov"
PROFILE = "/etc/profile.d/gpuprov-mps.sh"
# Client priorities as the control program writes them.
PRIORITIES = {"normal": "0", "below-normal": "1"}

# The paths, under the keys of the program on hosts.
PATHS = {
    "pipes": PIPES,
    "pipe_base": PIPE_BASE,
    "logs": LOGS,
    "runtime": RUNTIME,
    "profile": PROFILE,
    "server": SERVER,
    "priorities": PRIORITIES,
}

Feature = Literal["v3", "static_partitions", "thread_percentage", "memory_limit"]


class ClientLimit(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clients of one device from a compute capability and a driver branch on."""

    clients: int
    compute_capability: str = ""
    min_branch: str = ""


class FeatureFact(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first driver branch, and the first compute capability, that have a feature of the daemon."""

    feature: Feature
    min_branch: str = ""
    compute_capability: str = ""


class Scaling(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The compute slices of a whole GPU, from which a MIG device's share of the limit is calculated."""

    slices: int


class Chunk(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """SMs of one chunk of a static partition, from a compute capability on."""

    sms: int
    compute_capability: str


class MigSms(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The minimum share of a GPU's SMs in its largest MIG instance: `of` of `whole`."""

    of: int
    whole: int


class ProgramPackages(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Packages of a family of distributions, any of which may have the programs."""

    family: Literal["debian", "redhat", "suse"]
    packages: tuple[str, ...]
    min_branch: str = ""
    max_branch: str = ""


class MpsFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/mps.yaml"""

    client_limits: tuple[ClientLimit, ...]
    mig_scaling: Scaling
    chunks: tuple[Chunk, ...]
    mig_sms: MigSms
    features: tuple[FeatureFact, ...]
    packages: tuple[ProgramPackages, ...]


read_mps_file = partial(load, "mps", MpsFile)


def parse_capability(text: str) -> tuple[int, ...]:
    """Return a compute capability for comparing; an unknown one counts as the newest."""
    parts = text.split(".")
    return tuple(int(part) for part in parts) if all(is_whole(part) for part in parts) else (99,)


def find_client_limit(gpu: Gpu | None, branch: int) -> int:
    """Return the number of clients that a whole GPU supports with a driver of this branch (0: unknown, then the maximum
    of all branches)."""
    return limit_of(gpu.compute_capability if gpu else "", branch)


def limit_of(compute_capability: str, branch: int) -> int:
    """Return the limit for a compute capability (empty: unknown)."""
    reached = parse_capability(compute_capability)
    fitting = [
        limit.clients
        for limit in read_mps_file().client_limits
        if reached >= parse_capability(limit.compute_capability or "0")
        and (not branch or branch >= int(limit.min_branch or 0))
    ]
    return fitting[-1]


def compute_mig_share(limit: int, slices: int) -> int:
    """Return the share of the limit for a compute instance of this many slices; never 0. Inferred: see
    data/mps.yaml."""
    return max(1, limit * slices // read_mps_file().mig_scaling.slices)


def find_chunk_sms(gpu: Gpu) -> int:
    """Return the SMs of a chunk of the GPU's static partitions; 0 if it has none."""
    reached = parse_capability(gpu.compute_capability)
    return next(
        (
            chunk.sms
            for chunk in reversed(read_mps_file().chunks)
            if reached >= parse_capability(chunk.compute_capability)
        ),
        0,
    )


def compute_most_sms(gpu: Gpu) -> int:
    """Return the maximum number of SMs of this model, calculated from those of its largest MIG instance; 0: unknown.
    Inferred: see data/mps.yaml."""
    share, largest = read_mps_file().mig_sms, max((profile.sm or 0 for profile in list_profiles(gpu)), default=0)
    return -(-largest * share.whole // share.of)


def explain_missing_feature(feature: Feature, branch: int, gpu: Gpu | None = None) -> str:
    """Return the reason why a driver branch or a GPU lacks a feature; "" if it has it, or if branch and GPU are
    unknown."""
    fact = next(entry for entry in read_mps_file().features if entry.feature == feature)
    if branch and branch < int(fact.min_branch or 0):
        return f"driver branch {branch} has none; the first is {fact.min_branch}"
    if gpu and parse_capability(gpu.compute_capability) < parse_capability(fact.compute_capability or "0"):
        return (
            f"{gpu.key} has compute capability {gpu.compute_capability}; the first with it is {fact.compute_capability}"
        )
    return ""


def list_program_packages(family: str, branch: int) -> tuple[str, ...]:
    """The packages that may have the programs for a driver of this branch, the likeliest first."""
    patterns = (
        name.format(branch=branch)
        for entry in read_mps_file().packages
        if entry.family == family and int(entry.min_branch or 0) <= branch <= int(entry.max_branch or branch)
        for name in entry.packages
    )
    return tuple(dict.fromkeys(patterns))
