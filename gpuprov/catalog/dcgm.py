"""NVIDIA Data Center GPU Manager: its packages by release line, units and files, the matching CUDA build and
exporter."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from gpuprov.catalog import gpus
from gpuprov.rules import resolve

Line = Literal["3", "4"]
Parts = Mapping[str, bool]
LINES: tuple[Line, ...] = ("3", "4")

# Packages that must share one version, by release line and part. Line 3 is one package with the builds for CUDA 10 to
# 12.
# Names, epoch and what depends on what: https://github.com/NVIDIA/DCGM/blob/master/cmake/packaging.cmake (v3.3.9,
# v4.6.0). Both lines have version 1:X.Y.Z-1, in apt (3: 1:X.Y.Z) and in dnf; they lie in NVIDIA's CUDA repository:
# https://docs.nvidia.com/datacenter/dcgm/latest/installation.html
NAMES: dict[Line, dict[str, tuple[str, ...]]] = {
    "3": {"core": ("datacenter-gpu-manager",)},
    "4": {
        "core": ("datacenter-gpu-manager-4-core",),
        "cuda": ("datacenter-gpu-manager-4-cuda{cuda}",),
        "proprietary": ("datacenter-gpu-manager-4-proprietary", "datacenter-gpu-manager-4-proprietary-cuda{cuda}"),
        "multinode": ("datacenter-gpu-manager-4-multinode", "datacenter-gpu-manager-4-multinode-cuda{cuda}"),
    },
}
# Parts of later releases: each is added in the set's version if the repository has it in that version.
# From 4.7.0 on -core is a metapackage of these; read on a host: https://github.com/NVIDIA/DCGM/issues/314
PIECES = (
    *("dcgmi", "libdcgm", "nv-hostengine", "datacenter-gpu-manager-4-python3"),
    *("datacenter-gpu-manager-4-dcgmproftesterkernels", "datacenter-gpu-manager-4-cuda{cuda}-cublas"),
    *("datacenter-gpu-manager-4-cuda{cuda}-curand", "datacenter-gpu-manager-4-cuda{cuda}-cusparselt"),
    *("datacenter-gpu-manager-4-cuda{cuda}-nccl", "datacenter-gpu-manager-4-cuda{cuda}-ubergemm2"),
    *(f"datacenter-gpu-manager-4-module-{name}" for name in ("config", "diag", "health", "introspect", "nvswitch")),
    *(f"datacenter-gpu-manager-4-module-{name}" for name in ("policy", "sysmon")),
)
# Data of line 3, in a package with its own version; the guide removes it for line 4.
CONFIG = "datacenter-gpu-manager-config"
# Every package of a line, as a pattern of the whole name. The lines conflict with each other.
PATTERNS: dict[Line, str] = {
    "3": r"datacenter-gpu-manager(-config)?",
    "4": r"datacenter-gpu-manager-4-.+|dcgmi|libdcgm|nv-hostengine",
}
# The first driver branch of each user-mode CUDA, which decides the build:
# https://docs.nvidia.com/datacenter/dcgm/latest
CUDA: dict[str, int] = {"13": 580, "12": 525, "11": 450}
# Beginning of the name of a package of line 4, with the CUDA major that it is for.
CUDA_BUILD = r"datacenter-gpu-manager-4-(?:.+-)?cuda(\d+)"
MULTINODE_CUDA = ("12", "13")
# Line 3 has no build for CUDA 13: 'Detected unsupported Cuda version', https://github.com/NVIDIA/deepops/pull/1394
LAST_CUDA_OF_3 = 12
# https://docs.nvidia.com/datacenter/dcgm/latest/installation.html: NVIDIA driver R450 and later.
MIN_BRANCH = 450
# CUDA 13 leaves GPUs below compute capability 7.5 out, so the guide wants the build for CUDA 12 there, and the
# diagnostics fail without the driver's own: https://github.com/NVIDIA/DCGM/issues/254
CUDA_13_CAPABILITY = (7, 5)

# https://github.com/NVIDIA/DCGM/blob/master/config-files/systemd/nvidia-dcgm.service.in
UNIT = "nvidia-dcgm.service"
# In line 3 a separate unit that conflicts with UNIT; in line 4 an alias of it.
OLD_UNIT = "dcgm.service"
PROGRAM = "/usr/bin/nv-hostengine"
COMMAND = f"{PROGRAM} -n --service-account nvidia-dcgm"
# https://github.com/NVIDIA/DCGM/blob/master/hostengine/src/HostEngineCommandLine.cpp
LISTEN = "127.0.0.1:5555"

# The package; it depends on datacenter-gpu-manager-4-core.
# https://github.com/NVIDIA/dcgm-exporter/blob/main/packaging/config-files/systemd/nvidia-dcgm-exporter.service
EXPORTER = "datacenter-gpu-manager-exporter"
EXPORTER_UNIT = "nvidia-dcgm-exporter.service"
EXPORTER_PROGRAM = "/usr/bin/dcgm-exporter"
EXPORTER_PORT = 9400
COUNTERS = "/etc/dcgm-exporter/default-counters.csv"
# DCGM releases, each with the newest exporter that was released for it.
# The tags of https://github.com/NVIDIA/dcgm-exporter are DCGM-EXPORTER. Newest first.
PAIRS: tuple[tuple[str, str], ...] = (
    *(("4.5.3", "4.8.2"), ("4.5.2", "4.8.1"), ("4.5.1", "4.8.0"), ("4.4.2", "4.7.1"), ("4.4.1", "4.6.0")),
    *(("4.4.0", "4.5.0"), ("4.3.1", "4.4.0"), ("4.2.3", "4.2.0"), ("4.2.0", "4.1.0"), ("4.1.1", "4.0.4")),
    ("4.0.0", "4.0.1"),
)


def drop_in(unit: str) -> str:
    """Return the path of gpuprov's own settings for a unit."""
    return f"/etc/systemd/system/{unit}.d/50-gpuprov.conf"


def find_cuda_major(branch: int) -> str:
    """Return the CUDA major of the user-mode driver of a branch; "" if DCGM has no build for it."""
    return next((major for major, first in CUDA.items() if branch >= first), "")


def list_builds(cuda: str, branch: int, pci_ids: Iterable[str]) -> tuple[str, ...]:
    """Return the CUDA builds that a host needs: the requested one, or those for its driver and GPUs (`10de:1db6`)."""
    if cuda != "auto":
        return (cuda,)
    major = find_cuda_major(branch)
    if major == "13" and set(pci_ids) & set(list_ids_before_cuda_13()):
        return ("13", "12")
    return (major,) if major else ()


def list_ids_before_cuda_13() -> tuple[str, ...]:
    """Return PCI ids of GPUs that CUDA 13 no longer supports."""
    old = (gpu for gpu in gpus.list_gpus() if parse_capability(gpu.compute_capability) < CUDA_13_CAPABILITY)
    return tuple(entry.id for gpu in old for entry in gpu.pci_ids)


def parse_capability(text: str) -> tuple[int, ...]:
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else CUDA_13_CAPABILITY


def find_line(version: str, installed: Iterable[str], cuda: Sequence[str]) -> Line:
    """Return the release line of the requested version; with `any` the installed line if it fits the driver, else 4."""
    if version != "any":
        return "3" if version.partition(".")[0] == "3" else "4"
    lines = {candidate for candidate in LINES for name in installed if re.fullmatch(PATTERNS[candidate], name)}
    return "3" if lines == {"3"} and max((int(major) for major in cuda), default=0) <= LAST_CUDA_OF_3 else "4"


def list_names(of: Line, parts: Parts, cuda: Sequence[str]) -> list[str]:
    """Return the packages of one version for these parts and builds. `parts`: by name, whether the part is
    requested."""
    package_names = [name for part, given in NAMES[of].items() if parts.get(part, True) for name in given]
    return fill_templates(package_names, cuda)


def fill_templates(templates: Iterable[str], cuda: Sequence[str]) -> list[str]:
    """Return the names, with {cuda} expanded for each build."""
    return [n for t in templates for n in ([t.format(cuda=release) for release in cuda] if "{cuda}" in t else [t])]


def list_all_names() -> tuple[str, ...]:
    """Return every name to look up in an index."""
    templates = [name for given in NAMES.values() for part in given.values() for name in part]
    return tuple(fill_templates((*templates, *PIECES, EXPORTER), tuple(CUDA)))


def follow(
    version: str,
    of: Line,
    packages: Mapping[str, str],
    index: Mapping[str, Sequence[str]],
    installed: Mapping[str, str],
    cuda: Sequence[str],
) -> tuple[dict[str, str], list[str]]:
    """Return the versions that move along with the set `packages` of package version `version`, and the packages of
    DCGM that must be removed instead."""
    strange = list_other_builds(installed, cuda)
    stale = [name for name in installed if re.fullmatch(PATTERNS[of], name) and name not in packages]
    pieces = [name for name in fill_templates(PIECES, cuda) if of == "4" and name not in packages]
    along = {
        name: version
        for name in dict.fromkeys([*stale, *pieces])
        if name not in strange and (version in index.get(name, ()) or installed.get(name) == version)
    }
    other = [
        name for name in installed for candidate in LINES if candidate != of and re.fullmatch(PATTERNS[candidate], name)
    ]
    return along, sorted({*other, *(name for name in stale if name not in along)})


def list_other_builds(names: Iterable[str], cuda: Sequence[str]) -> list[str]:
    """Return the packages of line 4 that are builds for other CUDA majors than these: they remain after a change to a
    driver of another major."""
    matches = ((name, re.match(rf"{CUDA_BUILD}(-|\Z)", name)) for name in names)
    return [name for name, build in matches if build and build[1] not in cuda]


def find_exporter_bound(dcgm: str) -> str:
    """Return the newest exporter for a DCGM release; "" if the catalogue knows no bound."""
    if resolve.order(dcgm) > resolve.order(PAIRS[0][0]):
        return ""
    fits = (exporter for release, exporter in PAIRS if resolve.order(release) <= resolve.order(dcgm))
    return next(fits, PAIRS[-1][1])


def is_fitting_exporter(version: str, dcgm: str) -> bool:
    """Return whether a package version of the exporter was released for this DCGM or an older one. rpm versions carry a
    build number."""
    bound = find_exporter_bound(dcgm)
    return not bound or resolve.order(version)[:3] <= resolve.order(bound)


def build_arguments(listen: str) -> str:
    """Return nv-hostengine's arguments for an address: `HOST:PORT`, `ALL:PORT` or a socket's path."""
    if listen.startswith("/"):
        return f"--domain-socket {listen}"
    host, _, port = listen.rpartition(":")
    return f"--bind-interface {host} --port {port}"


def derive_address(listen: str) -> str:
    """Return the address at which dcgmi and the exporter on the same host connect to it."""
    return f"unix://{listen}" if listen.startswith("/") else re.sub(r"^(ALL|0\.0\.0\.0):", "localhost:", listen)
