"""Packages of the CUDA toolkit, cuDNN and NCCL: their names, and the versions, which show the toolkit and the
release."""

import re
from collections.abc import Iterable
from functools import partial
from typing import Literal

from gpuprov.catalog.gpus import Architecture
from gpuprov.catalog.reader import Fact, File, load
from gpuprov.rules import resolve

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
        architecture in entry.dropped and int(take_major(version)) >= int(entry.cuda)
        for entry in read_toolkits_file().architectures
    )


def find_first_toolkit(compute_capability: str) -> str:
    """Return the first CUDA that compiles code for the GPU; "" if every known one does."""
    major = compute_capability.partition(".")[0]
    return next((entry.cuda for entry in read_toolkits_file().targets if entry.major == major), "")


# Names of a toolkit's packages, before the dash and the version that end them.
FAMILY = r"(?:cuda|lib(?:cu[a-z]+|npp|nv[a-z]+)|gds-tools|nvidia-gds)(?:-[a-z0-9]+)*?"


def is_satisfying(version: str, series: str) -> bool:
    """Return whether a version is the requested one, or belongs to the requested series: 12.4.1 is a 12.4."""
    return f"{resolve.upstream(version)}.".startswith(f"{series}.")


def take_minor(version: str) -> str:
    """12.4.1 -> 12.4"""
    return ".".join(version.split(".")[:2])


def take_major(version: str) -> str:
    """12.4.1 -> 12"""
    return version.partition(".")[0]


def derive_runtime(version: str) -> str:
    """Return the soname of a toolkit's libcudart: until 10 every minor has its own, all of 11 have that of 11.0, and
    later ones the major."""
    number = take_major(version)
    return f"libcudart.so.{number if int(number) > 11 else '11.0' if number == '11' else take_minor(version)}"


def format_dashed(version: str) -> str:
    """12.4.1 -> 12-4, as in package names."""
    return take_minor(version).replace(".", "-")


def find_toolkit(name: str) -> str:
    """Return the toolkit (`12.4`) in a package's name; "" if it belongs to none."""
    match = re.fullmatch(rf"{FAMILY}-(\d+)-(\d+)(?:-config-common)?", name)
    return f"{match[1]}.{match[2]}" if match else ""


def find_built_for(version: str) -> str:
    """Return the CUDA version in a library's package version: `2.21.5-1+cuda12.4` -> `12.4`; "" if it names none."""
    match = re.search(r"[+.]cuda(\d+\.\d+)\Z", version)
    return match[1] if match else ""


def select_matching(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Return the names that one of the regular expressions fully matches."""
    known = list(patterns)
    return sorted(name for name in names if any(re.fullmatch(pattern, name) for pattern in known))
