"""GPUDirect Storage: packages, releases, file systems as gdscheck lists them, and the requirements of PCI P2PDMA."""

from functools import partial
from typing import Literal

from gpuprov.catalog import gpus
from gpuprov.catalog.cuda.packages import format_dashed
from gpuprov.catalog.reader import Fact, File, load
from gpuprov.rules import resolve

FileSystem = Literal["nvme", "nvmeof", "lustre", "weka", "beegfs", "nfs", "gpfs"]
# The file that cuFile reads: a link of the alternatives to the file of a release.
LINK = "/etc/cufile.json"
MODULE = "nvidia_fs"
# Its name in DKMS.
TREE = "nvidia-fs"
MODULES_LOAD = "/etc/modules-load.d/gpuprov-gds.conf"
# The first nvidia-fs that loads beside open kernel modules alone.
OPEN_ONLY = "2.17.5"


class Package(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package by its name."""

    name: str


class Release(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The version of libcufile and of the tools that a CUDA release came with."""

    cuda: str
    version: str


class FileSystemFact(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file system, its rows in gdscheck's output, and what it needs for the direct path."""

    key: FileSystem
    rows: tuple[str, ...]
    needs: str


class P2pdma(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requirements of PCI P2PDMA. `gpus`: the beginnings of models; `options` of modules, for x86; `settings` of
    cufile.json, and `block_settings` from the CUDA release `block_cuda` on."""

    first_cuda: str
    first_driver: str
    first_kernel: str
    gpus: tuple[str, ...]
    file_systems: tuple[FileSystem, ...]
    options: dict[str, dict[str, str]]
    settings: dict[str, bool]
    block_settings: dict[str, bool]
    block_cuda: str


class GdsFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/gds.yaml"""

    packages: tuple[Package, ...]
    module_packages: tuple[Package, ...]
    metapackages: tuple[Package, ...]
    releases: tuple[Release, ...]
    file_systems: tuple[FileSystemFact, ...]
    p2pdma: P2pdma


gds_file = partial(load, "gds", GdsFile)


def configuration(toolkit: str) -> str:
    """Return the path of a toolkit's own cufile.json."""
    return f"/usr/local/cuda-{toolkit}/gds/cufile.json"


def user_packages(toolkit: str) -> tuple[str, ...]:
    """Return the packages of a toolkit's library and tools, which have one version."""
    return tuple(package.name.format(minor=format_dashed(toolkit)) for package in gds_file().packages)


def module_packages() -> tuple[str, ...]:
    """Return the packages that bring nvidia-fs."""
    return tuple(package.name for package in gds_file().module_packages)


def list_other_packages() -> tuple[str, ...]:
    """Return the packages of GPUDirect Storage whose names no release ends."""
    return (*module_packages(), *(package.name for package in gds_file().metapackages))


def cuda_of(version: str) -> str:
    """Return the CUDA release that a version of libcufile came with; empty if the catalogue does not know it."""
    return next((row.cuda for row in reversed(gds_file().releases) if row.version == resolve.upstream(version)), "")


def find_file_system(key: str) -> FileSystemFact:
    """Return the facts about a file system."""
    return next(row for row in gds_file().file_systems if row.key == key)


def has_p2pdma(model: str) -> bool:
    """True if NVIDIA lists this GPU for PCI P2PDMA."""
    gpu = gpus.find_gpu(model)
    words = (gpu.key if gpu else model).split("-")
    return words[0] in gds_file().p2pdma.gpus


def p2pdma_settings(toolkit: str) -> dict[str, bool]:
    """Return the settings of a toolkit's cufile.json for PCI P2PDMA."""
    needs = gds_file().p2pdma
    return needs.settings | (needs.block_settings if resolve.order(toolkit) >= resolve.order(needs.block_cuda) else {})


def is_open_only(version: str) -> bool:
    """True for an nvidia-fs that loads beside open kernel modules alone."""
    return resolve.order(version) >= resolve.order(OPEN_ONLY)
