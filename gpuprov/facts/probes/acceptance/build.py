"""Compilers and packages of a host that acceptance tools are built with."""

import re

from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.facts.probes.software.packages import PACKAGE_LISTS, build_packages_script, parse_packages

DEBIAN = (
    "perftest",
    "rdmacm-utils",
    "ibverbs-utils",
    "infiniband-diags",
    "build-essential",
    "libnccl-dev",
    "cmake",
    "libboost-program-options-dev",
    "stress-ng",
)
# Packages that the tools and their builds need, as in the catalogue.
RPM = (
    "perftest",
    "librdmacm-utils",
    "libibverbs-utils",
    "infiniband-diags",
    "gcc-c++",
    "make",
    "libnccl-devel",
    "cmake",
    "boost-devel",
    "stress-ng",
)


def parse(output: Output) -> str:
    path = output.text.strip()
    if path and not re.fullmatch(r"/\S+", path):
        raise ProbeFailed(f"no path of a program: {path[:80]!r}")
    return path


# The path of nvcc, empty for none: NVIDIA's packages put it below /usr/local/cuda, which is not in PATH.
BUILD = Probe(
    "acceptance_build",
    "command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null; true",
    parse,
    "command -v nvcc; ls /usr/local/cuda/bin/nvcc",
)
# The path of MPI's compiler, by which the build finds its headers; empty for none.
MPICC = Probe("acceptance_mpicc", "command -v mpicc; true", parse, "command -v mpicc")
# Installed packages among DEBIAN and RPM.
PACKAGES = Probe(
    "acceptance_packages",
    build_packages_script(" ".join(DEBIAN), "|".join(RPM).replace("+", "[+]")),
    parse_packages,
    f"dpkg -l {' '.join(DEBIAN)}; rpm -q {' '.join(RPM)}",
    blank=PACKAGE_LISTS,
)
