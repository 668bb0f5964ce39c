"""What acceptance tests are packaged as, and what they should measure where somebody published a figure."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gpuprov.catalog.reader import Confidence, Fact, File, load

FOLDER = "/opt/gpuprov/acceptance"
"""Where the role puts what it builds: FOLDER/NAME-<first 12 letters of the archive's sha256>."""
RESULT = "/var/lib/gpuprov/acceptance.json"
"""What the last acceptance measured on a host, and when."""


class Tool(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Programs of one package; what it is called in each family of distributions."""

    key: str
    programs: tuple[str, ...]
    debian: str
    redhat: str
    suse: str = ""


class Link(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line rate, and the least bandwidth expected of it with memory of the host and of a GPU, in Gb/s; 0: no figure is known."""

    rate: float
    name: str
    host: float
    gpu: float


class Collective(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The least bus bandwidth, in GB/s, of a test of nccl-tests at one message size."""

    test: str
    size: str
    busbw: float


class Model(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What hosts with this many GPUs of a model were published to reach; `nvbandwidth` in GB/s of each copy."""

    key: str
    gpus: int
    nccl: Collective
    nvbandwidth: dict[str, float]


class Build(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is built from a source: the program that proves it, and the packages that the build needs beside CUDA."""

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
    """A figure of the catalogue: the value, where it comes from, how sure it is."""

    value: float
    origin: str
    confidence: Confidence = "confirmed"


def acceptance_file() -> AcceptanceFile:
    """The file, read once."""
    return load("acceptance", AcceptanceFile)


MESSAGE = 1 << 20
"""The message size in bytes from which on a link's floor is asked for."""


def link_floor(layer: str, rate: float, memory: str, size: int) -> Floor | None:
    """What ib_write_bw is expected to move over a port of this link layer and rate (Gb/s) with messages of this size (bytes).

    None where nobody published it. Alibaba's erdma, whose `rate` is no bandwidth, is Ethernet, of which there is none.
    """
    link = next((one for one in acceptance_file().links if one.rate == rate), None)
    if link is None or layer != "InfiniBand" or size < MESSAGE:
        return None
    value = link.gpu if memory == "gpu" else link.host
    return Floor(value=value, origin=_origin(link), confidence=link.confidence) if value else None


def model(key: str, count: int) -> Model | None:
    """What is published of hosts with this many GPUs of a model."""
    return next((one for one in acceptance_file().models if one.key == key and one.gpus == count), None)


def busbw_floor(key: str, count: int, test: str, size: str) -> Floor | None:
    """The least bus bandwidth (GB/s) published for this test at this message size or a smaller one."""
    found = model(key, count)
    if found is None or found.nccl.test != test or in_bytes(size) < in_bytes(found.nccl.size):
        return None
    return Floor(value=found.nccl.busbw, origin=_origin(found), confidence=found.confidence)


def copy_floor(key: str, count: int, test: str) -> Floor | None:
    """The least bandwidth (GB/s) of each copy of a test case of nvbandwidth."""
    found = model(key, count)
    value = found.nvbandwidth.get(test, 0.0) if found else 0.0
    return Floor(value=value, origin=_origin(found), confidence=found.confidence) if found and value else None


def in_bytes(size: str) -> int:
    """A message size as nccl-tests takes it (`8G`, `512M`), in bytes."""
    match = re.fullmatch(r"(\d+)([KMG]?)", size)
    if match is None:
        raise ValueError(f"{size} is no size")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def packages(programs: Iterable[str], family: str) -> tuple[str, ...]:
    """The packages of a family of distributions that have these programs."""
    wanted = set(programs)
    found = (one for one in acceptance_file().tools if wanted & set(one.programs))
    return tuple(name for one in found if (name := getattr(one, family)))


def folder(name: str, sha256: str) -> str:
    """Where what was built from an archive lies."""
    return f"{FOLDER}/{name}-{sha256[:12]}"


def build_packages(names: Iterable[str], family: str) -> tuple[str, ...]:
    """The packages of a family of distributions that these builds need beside CUDA; none is known for SUSE's."""
    wanted = set(names)
    return tuple(name for one in acceptance_file().builds if one.key in wanted for name in getattr(one, family, ()))


def _origin(entry: Fact) -> str:
    return acceptance_file().sources[entry.source[-1]].url
