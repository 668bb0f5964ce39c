"""The CUDA toolkit, cuDNN and NCCL as packages: names by part and family, packages that install a driver, the version
that a release's nvcc prints."""

import re
from functools import partial
from typing import Literal

from gpuprov.catalog.cuda import toolchain
from gpuprov.catalog.gpus import Architecture
from gpuprov.catalog.reader import Fact, File, load

Part = Literal["toolkit", "minimal-build", "libraries"]
LINK = "/usr/local/cuda"
PROFILE = "/etc/profile.d/gpuprov-cuda.sh"


class PartFact(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the toolkit, its package, whether it has nvcc, and its size."""

    part: Part
    package: str
    nvcc: bool
    installed_mib: int
    archive_mib: int


class Pattern(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Package names by a regular expression that must match the whole name; `find_purpose` describes the effect of such
    a package."""

    pattern: str
    does: str = ""


class Library(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A library beside the toolkit: packages to `run` programs, to `build` them, and those that only newer releases
    have."""

    library: Literal["cudnn", "nccl"]
    major: str
    family: Literal["debian", "redhat"]
    run: tuple[str, ...]
    build: tuple[str, ...]
    beside: tuple[str, ...] = ()
    installed_mib: int
    archive_mib: int


class Compiler(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The build number printed by `nvcc --version` in a release."""

    release: str
    nvcc: str


class Architectures(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPU architectures that a CUDA major, and later ones, no longer compile for."""

    cuda: str
    dropped: tuple[Architecture, ...]


class Target(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first CUDA that compiles code for GPUs of a major compute capability."""

    major: str
    cuda: str


class ToolkitsFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/toolkits.yaml"""

    parts: tuple[PartFact, ...]
    metapackages: tuple[Pattern, ...]
    foreign: tuple[Pattern, ...]
    driver_patterns: tuple[Pattern, ...]
    libraries: tuple[Library, ...]
    compilers: tuple[Compiler, ...]
    architectures: tuple[Architectures, ...]
    targets: tuple[Target, ...]


read_toolkits_file = partial(load, "toolkits", ToolkitsFile)


def get_part(name: str) -> PartFact:
    """Return the facts about a part."""
    return next(entry for entry in read_toolkits_file().parts if entry.part == name)


def find_compiler(release: str) -> str:
    """Return the build that nvcc of the release prints; "" if unknown."""
    return next((entry.nvcc for entry in read_toolkits_file().compilers if entry.release == release), "")


def find_purpose(patterns: tuple[Pattern, ...], name: str) -> str:
    """Return a package's purpose by the first pattern that matches its whole name; "" if none does."""
    return next((entry.does for entry in patterns if re.fullmatch(entry.pattern, name)), "")


def is_dropped(version: str, architecture: str) -> bool:
    """Return whether a toolkit no longer compiles for the architecture."""
    return any(
        architecture in entry.dropped and int(toolchain.take_major(version)) >= int(entry.cuda)
        for entry in read_toolkits_file().architectures
    )


def find_first_toolkit(compute_capability: str) -> str:
    """Return the first CUDA that compiles code for the GPU; "" if every known one does."""
    major = compute_capability.partition(".")[0]
    return next((entry.cuda for entry in read_toolkits_file().targets if entry.major == major), "")
