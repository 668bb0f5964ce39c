"""The names that gpuprov's catalogue has for a driver: each of them is on offer, if only as an empty package."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from gpuprov.catalog.drivers import derive_branch
from gpuprov.catalog.drivers.sets import find_packages
from gpuprov.catalog.packages import list_package_names, list_package_sets
from gpuprov.simulate.distributions import Distribution, Repository
from gpuprov.simulate.parts.base import File, text
from gpuprov.simulate.repository.standins import Flavour
from gpuprov.simulate.standins import driver as pieces
from gpuprov.simulate.standins.driver import DEB
from gpuprov.simulate.standins.model import Standin

SHELL = "#!/bin/sh\nset -e\n"
LDCONFIG = {"postinst": SHELL + "ldconfig\n", "postrm": SHELL + "ldconfig\n"}
PERSISTENCE = {"postinst": SHELL + pieces.ACCOUNT + pieces.RELOAD, "postrm": SHELL + pieces.RELOAD}
DEBIAN_KERNEL: dict[str, tuple[Flavour, str]] = {
    "nvidia-kernel-dkms": ("proprietary", "nvidia"),
    "nvidia-kernel-open-dkms": ("open", "nvidia-open"),
}
DEBIAN_RELATIONS = {
    "nvidia-driver": ("nvidia-driver-libs", "nvidia-driver-cuda"),
    "nvidia-driver-cuda": ("libcuda1", "libnvidia-ml1", "nvidia-persistenced"),
    "nvidia-kernel-support": ("firmware-nvidia-gsp",),
    "nvidia-persistenced": ("libnvidia-cfg1",),
}


def names(distribution: Distribution, source: Repository, version: str) -> list[str]:
    """Return the driver's packages in this version, of both flavours."""
    listed = find_packages(distribution.id, distribution.major, source)
    branch = derive_branch(version)
    rules = [rule for of_flavour in listed.sets.values() for rule in of_flavour] if listed else []
    fits = [rule for rule in rules if rule["min"] <= int(branch) <= rule["max"]]
    return list(dict.fromkeys(rule["name"].format(branch=branch, version=version) for rule in fits))


def part_names(distribution: Distribution, part: str, version: str) -> list[str]:
    """Return package names in NVIDIA's repository for a part beside the driver."""
    sets = list_package_sets(distribution.catalogue, part, version, origin="nvidia")
    return [name for entry in sets for name in list_package_names(entry, version)]


def whole(distribution: Distribution, source: Repository, version: str, made: Iterable[Standin],
          standin: partial[Standin]) -> list[Standin]:  # fmt: skip
    """Return the packages, and empty ones for the missing names."""
    present = {package.name: package for package in made}
    missing = [name for name in names(distribution, source, version) if name not in present]
    return [*present.values(), *(standin(name, summary=f"{name}: an empty package") for name in missing)]


def nvidia_for_debian(distribution: Distribution, version: str, standin: partial[Standin]) -> list[Standin]:
    """Return NVIDIA's packages for Debian, which have Debian's names."""
    full = standin.keywords["version"]
    files: dict[str, dict[str, File]] = {
        "libnvidia-ml1": pieces.management_library(version, DEB),
        "libcuda1": pieces.libraries(version, DEB, "libcuda"),
        "libnvidia-ptxjitcompiler1": pieces.libraries(version, DEB, "libnvidia-ptxjitcompiler"),
        "libnvidia-cfg1": pieces.configuration(version, DEB),
        "firmware-nvidia-gsp": pieces.firmware(version),
        "nvidia-driver-cuda": pieces.programs("nvidia-smi", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
        "nvidia-persistenced": dict(pieces.persistence(DEB, on=True)),
        "nvidia-modprobe": pieces.programs("nvidia-modprobe"),
        "nvidia-kernel-support": {"/lib/modprobe.d/nvidia-graphics-drivers.conf": text(pieces.MODPROBE)},
    }
    made = []
    for name in names(distribution, "nvidia", version):
        if name in DEBIAN_KERNEL:
            flavour, package = DEBIAN_KERNEL[name]
            made.append(
                standin(name, summary=f"NVIDIA kernel modules ({flavour}), built by DKMS",
                    files=pieces.modules(version, flavour, package),
                    requires=("dkms", f"nvidia-kernel-support (= {full})"),
                    scripts={"postinst": SHELL + pieces.build(version, package),
                             "prerm": SHELL + pieces.forget(version, package)},
                    ).instead_of("nvidia-kernel-dkms-any")
            )  # fmt: skip
            continue
        scripts = PERSISTENCE if name == "nvidia-persistenced" else LDCONFIG if name.startswith("lib") else {}
        requires = tuple(f"{other} (= {full})" for other in DEBIAN_RELATIONS.get(name, ()))
        made.append(
            standin(
                name, summary=f"NVIDIA driver: {name}", files=files.get(name, {}), requires=requires, scripts=scripts
            )
        )
    for name, kernel in (("nvidia-open", "nvidia-kernel-open-dkms"), ("cuda-drivers", "nvidia-kernel-dkms")):
        if name not in {package.name for package in made}:
            requires = tuple(f"{other} (= {full})" for other in (kernel, "nvidia-driver"))
            made.append(standin(name, summary="NVIDIA driver metapackage", requires=requires))
    return made
