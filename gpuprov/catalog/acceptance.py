"""Packages of the acceptance tests, and the expected results if somebody has published any."""

import re
from collections.abc import Iterable
from functools import partial

import msgspec

from gpuprov.catalog.reader import Confidence, Fact, File, load

# The folder of the role's builds: FOLDER/NAME-<first 12 letters of the archive's sha256>.
FOLDER = "/opt/gpuprov/acceptance"
# The results and the time of the last acceptance on a host.
RESULT = "/var/lib/gpuprov/acceptance.json"


class Tool(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Programs of one package, and its name in each family of distributions."""

    key: str
    programs: tuple[str, ...]
    debian: str
    redhat: str
    suse: str = ""


class Link(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line rate, and the minimum bandwidth expected of it with memory of the host and of a GPU, in Gb/s; 0: no figure
    is known."""

    rate: float
    name: str
    host: float
    gpu: float


class Collective(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The minimum bus bandwidth, in GB/s, of a test of nccl-tests at one message size."""

    test: str
    size: str
    busbw: float


class Model(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Published results of hosts with this many GPUs of a model; `nvbandwidth` in GB/s of each copy."""

    key: str
    gpus: int
    nccl: Collective
    nvbandwidth: dict[str, float]


class Build(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A build from source: the program that proves it, and the packages that the build needs beside CUDA."""

    key: str
    program: str
    debian: tuple[str, ...]
    redhat: tuple[str, ...]


class AcceptanceFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/acceptance.yaml"""

    tools: tuple[Tool, ...]
    links: tuple[Link, ...]
    models: tuple[Model, ...]
    builds: tuple[Build, ...]


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of the catalogue: the value, its source, its confidence."""

    value: float
    origin: str
    confidence: Confidence = "confirmed"


read_acceptance_file = partial(load, "acceptance", AcceptanceFile)


# The message size in bytes from which on a link's floor applies.
MESSAGE = 1 << 20


def link_floor(layer: str, rate: float, memory: str, size: int) -> Floor | None:
    """Return the bandwidth that ib_write_bw is expected to reach on a port of this link layer and rate (Gb/s) with
    messages of this size (bytes).

    None if nobody has published it. Alibaba's erdma, whose `rate` is not a bandwidth, is Ethernet, for which nothing is
    published.
    """
    link = next((link for link in read_acceptance_file().links if link.rate == rate), None)
    if link is None or layer != "InfiniBand" or size < MESSAGE:
        return None
    value = link.gpu if memory == "gpu" else link.host
    return Floor(value=value, origin=format_origin(link), confidence=link.confidence) if value else None


def find_model(key: str, count: int) -> Model | None:
    """Return the published results of hosts with this many GPUs of a model."""
    return next((entry for entry in read_acceptance_file().models if entry.key == key and entry.gpus == count), None)


def find_busbw_floor(key: str, count: int, test: str, size: str) -> Floor | None:
    """Return the minimum bus bandwidth (GB/s) published for this test at this message size or a smaller one."""
    published = find_model(key, count)
    if published is None or published.nccl.test != test or parse_size(size) < parse_size(published.nccl.size):
        return None
    return Floor(value=published.nccl.busbw, origin=format_origin(published), confidence=published.confidence)


def copy_floor(key: str, count: int, test: str) -> Floor | None:
    """Return the minimum bandwidth (GB/s) of each copy of a test case of nvbandwidth."""
    published = find_model(key, count)
    value = published.nvbandwidth.get(test, 0.0) if published else 0.0
    return (
        Floor(value=value, origin=format_origin(published), confidence=published.confidence)
        if published and value
        else None
    )


def parse_size(size: str) -> int:
    """Convert a message size as used by nccl-tests (`8G`, `512M`) to bytes."""
    match = re.fullmatch(r"(\d+)([KMG]?)", size)
    if match is None:
        raise ValueError(f"{size} is not a size")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def list_packages(programs: Iterable[str], family: str) -> tuple[str, ...]:
    """The packages of a family of distributions that have these programs."""
    sought = set(programs)
    tools = (tool for tool in read_acceptance_file().tools if sought & set(tool.programs))
    return tuple(name for tool in tools if (name := getattr(tool, family)))


def name_folder(name: str, sha256: str) -> str:
    """Return the folder of an archive's build."""
    return f"{FOLDER}/{name}-{sha256[:12]}"


def build_packages(names: Iterable[str], family: str) -> tuple[str, ...]:
    """The packages of a family of distributions that these builds need beside CUDA; none is known for SUSE's."""
    sought = set(names)
    return tuple(
        name for build in read_acceptance_file().builds if build.key in sought for name in getattr(build, family, ())
    )


def format_origin(entry: Fact) -> str:
    return read_acceptance_file().sources[entry.source[-1]].url
