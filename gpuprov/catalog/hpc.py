"""Open MPI, UCX and HPC-X: packages by origin, places of programs, and what the name of an HPC-X archive says."""

import re
from functools import partial
from typing import Literal

import msgspec

from gpuprov.catalog.reader import Fact, File, load

Origin = Literal["distribution", "doca-ofed"]
# The stable link to the folder of a release.
LINK = "/opt/hpcx"
CACHE = "/var/cache/gpuprov/hpcx"
# Maximum size of an archive in bytes; NVIDIA's have some hundred MiB.
MOST = 4 << 30
LINKER = "/etc/ld.so.conf.d/gpuprov-hpcx.conf"
PLUGIN = "libnccl-net.so"
# The compiler that NVIDIA builds HPC-X with:
# https://docs.nvidia.com/networking/display/hpcx222/Installing+and+Loading+HPC-X
COMPILER = "gcc"
# How an archive's name begins the distribution, by family.
DISTRIBUTIONS = {"debian": ("debian", "ubuntu"), "redhat": ("redhat",), "suse": ("sles",)}
# The folder of environment modules by family: https://github.com/Azure/azhpc-images
MODULES = {"debian": "/usr/share/modules/modulefiles", "redhat": "/usr/share/Modules/modulefiles"}
ARCHIVE = (
    r"hpcx-v(?P<version>[0-9]+(\.[0-9]+)+)-(?P<compiler>[a-z]+)-(?P<build>[a-z_]+)-"
    r"(?P<distribution>[a-z]+[0-9][0-9a-z.]*)-cuda(?P<cuda>[0-9]+)-(?P<arch>x86_64|aarch64)"
)
_LEVEL = re.compile(r"(?:^|[-.])(\d\d)(\d\d)\d{3,}\Z")


class Package(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Packages of one purpose, by who offers them and by family."""

    part: Literal["mpi", "ucx"]
    origin: Origin
    debian: tuple[str, ...]
    redhat: tuple[str, ...]


class Program(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The place of mpirun, as a pattern of the shell."""

    origin: Origin
    family: Literal["debian", "redhat"]
    mpirun: str


class Build(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The RDMA stack that a word of an archive's name means."""

    word: str
    stack: Literal["doca-ofed", "inbox"]


class HpcFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/hpc.yaml"""

    packages: tuple[Package, ...]
    programs: tuple[Program, ...]
    builds: tuple[Build, ...]


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """What the name of an archive says."""

    # Its only folder.
    folder: str
    version: str
    compiler: str
    build: str
    # Empty for a word that nobody knows.
    stack: str
    distribution: str
    cuda: str
    arch: str


read_hpc_file = partial(load, "hpc", HpcFile)


def parse_archive(name: str) -> Archive | None:
    """Parse the name of an HPC-X archive or of its folder; None if it is not named as NVIDIA names them."""
    folder = re.sub(r"\.(tbz|tar\.bz2)\Z", "", name.rpartition("/")[2])
    match = re.fullmatch(ARCHIVE, folder)
    if match is None:
        return None
    stack = next((row.stack for row in read_hpc_file().builds if row.word == match["build"]), "")
    names = ("version", "compiler", "build", "distribution", "cuda", "arch")
    return Archive(folder=folder, stack=stack, **{name: match[name] for name in names})


def list_packages(origin: Origin, family: str) -> tuple[str, ...]:
    """Return the packages of Open MPI and UCX of an origin; none for a family whose names are not known."""
    return tuple(
        name
        for row in read_hpc_file().packages
        if row.origin == origin
        for name in {"debian": row.debian, "redhat": row.redhat}.get(family, ())
    )


def parse_level(version: str) -> str:
    """Return the OFED level of a package of an OFED's user space (`23.10` of 1.16.0-1.2310119); empty for others."""
    match = _LEVEL.search(version)
    return f"{match[1]}.{match[2]}" if match else ""
