"""NVIDIA's zypper repositories as stand-ins: names by generation, relations and scriptlets of the real ones.

https://github.com/openSUSE/nvidia-driver-G06 (its spec files); https://github.com/SUSE/BCI-dockerfile-generator (the
names by branch).
"""

from __future__ import annotations

from functools import partial

from gpuprov.catalog.drivers import derive_branch
from gpuprov.simulate.distributions import Distribution
from gpuprov.simulate.parts import fabric, silicon
from gpuprov.simulate.parts.base import File, text
from gpuprov.simulate.repository.standins import Flavour
from gpuprov.simulate.standins import driver as pieces
from gpuprov.simulate.standins import switch_libraries
from gpuprov.simulate.standins.catalogue import part_names, whole
from gpuprov.simulate.standins.driver import RPM
from gpuprov.simulate.standins.model import Standin
from gpuprov.simulate.standins.nvidia_dnf import FABRIC, LDCONFIG, OMIT, SAFE, UNIT

# The first branches with modules built by DKMS, with names ending in G07, and with some libraries in nvidia-compute.
BY_DKMS_SINCE, G07_SINCE, IN_ONE_SINCE = 575, 590, 610


def packages(distribution: Distribution, version: str) -> list[Standin]:
    """Return the packages of one driver version; nothing for branches whose modules are not built by DKMS."""
    branch = int(derive_branch(version))
    if branch < BY_DKMS_SINCE:
        return []
    end, same = ("G07" if branch >= G07_SINCE else "G06"), f"= {version}"
    make = partial(Standin, version=f"{version}-1")
    apart = {
        "libnvidia-ml": pieces.management_library(version, RPM),
        "libnvidia-cfg": pieces.configuration(version, RPM),
        "libnvidia-gpucomp": {},
    }
    if branch >= IN_ONE_SINCE:
        apart = {}
    within = {} if apart else {**pieces.management_library(version, RPM), **pieces.configuration(version, RPM)}
    made = [
        make(f"nvidia-compute-{end}", summary="NVIDIA driver for computing with GPGPU", scripts=LDCONFIG,
            files={**pieces.libraries(version, RPM, "libcuda", "libnvidia-ptxjitcompiler"), **within},
            requires=(f"nvidia-common-{end} {same}", f"nvidia-persistenced >= {version}",
                      *(f"{n} {same}" for n in apart)),
            conflicts=(f"nvidia-compute-{'G06' if end == 'G07' else 'G07'}",)),
        make(f"nvidia-compute-utils-{end}", summary="NVIDIA driver tools for computing with GPGPU",
            files=pieces.programs("nvidia-smi", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
            requires=(f"nvidia-compute-{end} {same}",)),
        *(make(name, summary=f"{name} of NVIDIA's driver", scripts=LDCONFIG, files=files) for name,
          files in apart.items()),
        make(f"nvidia-common-{end}", summary="Common files for the NVIDIA driver packages",
            files={**pieces.firmware(version), "/etc/modprobe.d/50-nvidia.conf": text(pieces.MODPROBE),
                   "/etc/dracut.conf.d/60-nvidia.conf": text(OMIT)},
            requires=(f"nvidia-modprobe >= {version}", "perl-Bootloader"),
            conflicts=(f"nvidia-common-{'G06' if end == 'G07' else 'G07'}",)),
        make("nvidia-persistenced", summary="A daemon to maintain persistent software state in the NVIDIA driver",
            files=pieces.persistence(RPM, on=True),
            scripts={"post": pieces.ACCOUNT + pieces.RELOAD,
                     "preun": f'if [ "$1" = 0 ]; then systemctl --quiet disable --now {UNIT} || :; fi\n',
                     "postun": pieces.RELOAD}),
        make("nvidia-modprobe", summary="NVIDIA kernel module loader", files=pieces.programs("nvidia-modprobe")),
        _kernel(make, version, f"nvidia-open-driver-{end}", f"nvidia-driver-{end}", "open"),
        _kernel(make, version, f"nvidia-driver-{end}", f"nvidia-open-driver-{end}", "proprietary"),
    ]  # fmt: skip
    return [*whole(distribution, "nvidia", version, made, make), *_fabric(distribution, version)]


def beside() -> list[Standin]:
    """Return packages of NVIDIA's repository beside the driver, with version lines of their own."""
    return [
        Standin("dkms", "3.4.1-2", "Dynamic Kernel Module Support: the host's is Debian's", requires=("gcc", "make")),
    ]


def _kernel(standin: partial[Standin], version: str, name: str, other: str, flavour: Flavour) -> Standin:
    package = silicon.rpm_dkms_name(version, flavour)
    tree = f"/usr/src/{package}-{version}"
    compiler = ("gcc-c++",) if flavour == "open" else ("gcc",)
    end = name.rpartition("-")[2]
    return standin(
        name, summary=f"NVIDIA kernel modules ({flavour}), built by DKMS",
        files={f"{tree}/{path}": File(content) for path, content in silicon.rpm_source(version, flavour).items()},
        requires=("dkms", "make", *compiler, f"nvidia-common-{end} = {version}"), conflicts=(other, *_older(name, end)),
        scripts={"post": pieces.build(version, package, SAFE, otherwise=":"),
                 "preun": pieces.forget(version, package, SAFE)},
    )  # fmt: skip


def _older(name: str, end: str) -> tuple[str, ...]:
    return (name.replace(end, "G06"),) if end == "G07" else ()


def _fabric(distribution: Distribution, version: str) -> list[Standin]:
    made = []
    for part, files in (("fabric-manager", fabric.fabric_manager_files), ("imex", fabric.imex_files)):
        placed = {path.replace("/lib/systemd", "/usr/lib/systemd"): file for path, file in files(version).items()}
        down = f'if [ "$1" = 0 ]; then systemctl --quiet disable --now {FABRIC} || :; fi\n' if part != "imex" else ":\n"
        scripts = {"post": pieces.RELOAD, "postun": pieces.RELOAD, "preun": down}
        made += [
            Standin(name, f"{version}-1", f"{part} {version}", files=placed, requires=("python3",), scripts=scripts)
            for name in part_names(distribution, part, version)
        ]
    return made + switch_libraries.rpms(distribution, version)
