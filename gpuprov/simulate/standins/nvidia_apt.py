"""NVIDIA's CUDA repository for apt as stand-ins: branch suffixes below 590, none from 590 on, and the metapackages that
pull in a driver. https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/recent-updates.html
"""

from __future__ import annotations

from functools import partial

from gpuprov.catalog.drivers import Version, derive_branch
from gpuprov.simulate.distributions import Distribution
from gpuprov.simulate.parts import fabric
from gpuprov.simulate.parts.base import text
from gpuprov.simulate.standins import driver as pieces
from gpuprov.simulate.standins import switch_libraries
from gpuprov.simulate.standins.catalogue import PERSISTENCE, nvidia_for_debian, part_names, whole
from gpuprov.simulate.standins.driver import DEB
from gpuprov.simulate.standins.model import Standin
from gpuprov.simulate.standins.ubuntu import (
    FABRIC_SCRIPTS,
    FLAVOURS,
    HOLLOW,
    exact,
    headless,
    kernel,
    kernel_common,
    user_space,
)

DKMS = "nvidia"
# The first branch whose packages have no branch in their names.
UNSUFFIXED = 590
# The first branch with separate packages for the daemon and nvidia-modprobe, and one name for the firmware.
SPLIT = 580
# The first branch with packages that pin it.
FIRST_PINNED = 580
# First version whose Ubuntu packages end with -1ubuntu1; earlier ones end with -0ubuntu1.
REVISED = Version.parse("580.126.09")
PIN = "Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n"
# File of cuda-keyring: it ranks NVIDIA's repository above the distribution's.
PREFERENCES = "/etc/apt/preferences.d/cuda-repository-pin-600"


def packages(distribution: Distribution, version: str) -> list[Standin]:
    """Return the packages of one driver version."""
    make = partial(Standin, version=full_version(distribution, version), source="nvidia-graphics-drivers")
    made = (
        _ubuntu(distribution, version, make)
        if distribution.id == "ubuntu"
        else nvidia_for_debian(distribution, version, make)
    )
    for name in part_names(distribution, "fabric-manager", version):
        made.append(
            make(
                name,
                summary=f"Fabric Manager for NVSwitch based systems {version}",
                requires=("python3",),
                files=fabric.fabric_manager_files(version),
                scripts=FABRIC_SCRIPTS,
            ).instead_of("nvidia-fabricmanager-any")
        )
    for name in part_names(distribution, "imex", version):
        scripts = {key: script.replace("nvidia-fabricmanager", "nvidia-imex") for key, script in FABRIC_SCRIPTS.items()}
        files = {**fabric.imex_files(version), "/DEBIAN/conffiles": text("/etc/nvidia-imex/config.cfg\n")}
        made.append(
            make(name, summary=f"NVIDIA IMEX service {version}", requires=("python3",), files=files, scripts=scripts)
        )
    for part, summary in switch_libraries.SUMMARIES.items():
        files = switch_libraries.files(part, version, DEB.libraries)
        made += [
            make(name, summary=f"{summary} {version}", files=files, scripts=switch_libraries.DEB_SCRIPTS)
            for name in part_names(distribution, part, version)
        ]
    return made


def _ubuntu(distribution: Distribution, version: str, standin: partial[Standin]) -> list[Standin]:
    branch = derive_branch(version)
    end = "" if int(branch) >= UNSUFFIXED else f"-{branch}"
    firmware = f"nvidia-firmware{end}" if int(branch) >= SPLIT else f"nvidia-firmware-{branch}-{version}"
    made = [
        *_user_space(standin, version, end, split=int(branch) >= SPLIT),
        standin(f"libnvidia-gpucomp{end}", summary="NVIDIA GPU compiler library").instead_of("libnvidia-gpucomp"),
        standin(firmware, summary="Firmware files used by the kernel module", files=pieces.firmware(version)),
        kernel_common(standin, end, firmware),
    ]
    for flavour, is_open in FLAVOURS:
        made += [*kernel(standin, version, end, flavour, DKMS), *headless(standin, end, is_open)]
    return whole(distribution, "nvidia", version, [*made, *_metapackages(standin, branch, end)], standin)


def _user_space(standin: partial[Standin], version: str, end: str, *, split: bool) -> list[Standin]:
    """Return user-space packages. `split`: the daemon and nvidia-modprobe have separate packages."""
    made = user_space(standin, version, end)
    if not split:
        return made
    utils = f"nvidia-compute-utils{end}"
    full = standin.keywords["version"]
    # Which package has MPS from 590 on is not known; here it keeps the one of before.
    mps = pieces.programs("nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
    return [
        *(package for package in made if package.name != utils),
        standin(
            utils,
            summary="NVIDIA compute utilities",
            files=mps,
            requires=exact(full, f"libnvidia-compute{end}", "nvidia-persistenced"),
        ),
        standin(
            "nvidia-persistenced",
            summary="NVIDIA Persistence Daemon",
            files=dict(pieces.persistence(DEB, on=True)),
            requires=("passwd",),
            scripts=PERSISTENCE,
        ),
        standin("nvidia-modprobe", summary="NVIDIA kernel module loader", files=pieces.programs("nvidia-modprobe")),
    ]


def full_version(distribution: Distribution, version: str) -> str:
    """Return the package version."""
    if distribution.id != "ubuntu":
        return f"{version}-1"
    return f"{version}-{1 if Version.parse(version) >= REVISED else 0}ubuntu1"


def pinning(versions: tuple[str, ...]) -> list[Standin]:
    """Return the packages that pin a branch or a version: each holds a file of apt preferences."""
    pins = {derive_branch(version): f"{derive_branch(version)}.*" for version in versions} | {
        v: f"{v}-*" for v in versions
    }
    made = []
    for name, pattern in pins.items():
        if int(derive_branch(name)) >= FIRST_PINNED:
            pin = f"Package: *nvidia* *cuda-drivers* libnvsdm*\nPin: version {pattern}\nPin-Priority: 1000\n"
            path = f"/etc/apt/preferences.d/nvidia-driver-pinning-{name}"
            package = Standin(
                f"nvidia-driver-pinning-{name}", f"{name}-1", f"Pins the driver to {name}", {path: text(pin)}
            )
            made.append(package.instead_of("nvidia-driver-pinning"))
    return made


def _metapackages(standin: partial[Standin], branch: str, end: str) -> list[Standin]:
    full = standin.keywords["version"]
    meta = partial(standin, summary="NVIDIA driver metapackage")
    made = []
    for _, is_open in FLAVOURS:
        parts = [f"nvidia-dkms{end}{is_open}", f"nvidia-kernel-source{end}{is_open}"]
        parts += [f"libnvidia-{part}{end}" for part in ("compute", "cfg1", *HOLLOW)]
        parts += [f"nvidia-compute-utils{end}", f"nvidia-utils{end}"]
        made.append(meta(f"nvidia-driver{end}{is_open}", requires=exact(full, *parts)))
    if not end:
        return [
            *made,
            meta("nvidia-open", requires=exact(full, "nvidia-driver-open")),
            meta("cuda-drivers", requires=exact(full, "nvidia-driver")),
        ]
    return [
        *made,
        meta("nvidia-open", requires=exact(full, f"nvidia-open-{branch}")),
        meta("cuda-drivers", requires=exact(full, f"cuda-drivers-{branch}")),
        meta(f"nvidia-open-{branch}", requires=exact(full, f"nvidia-driver-{branch}-open")),
        meta(f"cuda-drivers-{branch}", requires=exact(full, f"nvidia-driver-{branch}")),
    ]
