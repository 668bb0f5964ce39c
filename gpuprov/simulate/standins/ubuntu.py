"""Ubuntu's own -server driver packages as stand-ins: names, version form and relations of the real ones.

https://github.com/NVIDIA/ubuntu-packaging-nvidia-driver (debian/templates/control.in, the source of Ubuntu's).
Relations are as loose as there: nothing ties nvidia-utils and nvidia-compute-utils to a version, and nvidia-headless
pins nothing.
"""

from __future__ import annotations

from functools import partial

from gpuprov.catalog.drivers import derive_branch
from gpuprov.simulate.distributions import Distribution
from gpuprov.simulate.parts import fabric
from gpuprov.simulate.parts.base import text
from gpuprov.simulate.repository.standins import Flavour
from gpuprov.simulate.standins import driver as pieces
from gpuprov.simulate.standins import switch_libraries
from gpuprov.simulate.standins.catalogue import LDCONFIG, PERSISTENCE, SHELL, whole
from gpuprov.simulate.standins.driver import DEB
from gpuprov.simulate.standins.model import Standin

# DKMS name of the -server drivers.
DKMS = "nvidia-srv"
FABRIC_SCRIPTS = {"postinst": fabric.RELOAD, "prerm": fabric.STOP, "postrm": fabric.RELOAD}
FLAVOURS: tuple[tuple[Flavour, str], ...] = (("proprietary", ""), ("open", "-open"))
# Libraries that are useless without a display or a GPU: empty packages.
HOLLOW = ("common", "extra", "decode", "encode", "fbc1", "gl")


def packages(distribution: Distribution, version: str) -> list[Standin]:
    """Return the packages of one driver version."""
    branch, number = f"{derive_branch(version)}-server", derive_branch(version)
    full = f"{version}-0{distribution.tag}"
    make = partial(Standin, version=full, source=f"nvidia-graphics-drivers-{branch}")
    firmware = f"nvidia-firmware-{branch}-{version}"
    made = [
        *user_space(make, version, f"-{branch}"),
        make(firmware, summary="Firmware files used by the kernel module", files=pieces.firmware(version)),
        kernel_common(make, f"-{branch}", firmware, (f"nvidia-kernel-common-{branch}-{version}",)),
        make(f"nvidia-fabricmanager-{number}", summary=f"Fabric Manager for NVSwitch based systems {version}",
            files=fabric.fabric_manager_files(version), requires=("python3",
                                                                  f"nvidia-kernel-common-{branch}-{version}"),
            scripts=FABRIC_SCRIPTS).instead_of("nvidia-fabricmanager-any"),
        make(f"libnvidia-nscq-{number}", summary=f"NVSwitch Configuration and Query library {version}",
            files=switch_libraries.files("nscq", version, DEB.libraries), scripts=switch_libraries.DEB_SCRIPTS),
    ]  # fmt: skip
    for flavour, end in FLAVOURS:
        made += kernel(make, version, f"-{branch}", flavour, DKMS)
        parts = [f"nvidia-{part}-{branch}{end}" for part in ("dkms", "kernel-source")]
        parts += [f"libnvidia-{part}-{branch}" for part in ("compute", "cfg1", *HOLLOW)]
        parts += [f"nvidia-{part}-{branch}" for part in ("compute-utils", "utils")]
        made.append(
            make(
                f"nvidia-driver-{branch}{end}", summary="NVIDIA Server Driver metapackage", requires=exact(full, *parts)
            )
        )
        made += headless(make, f"-{branch}", end)
    return whole(distribution, "distribution", version, made, make)


def exact(full: str, *names: str) -> tuple[str, ...]:
    """Return relations to exactly this version."""
    return tuple(f"{name} (= {full})" for name in names)


def user_space(standin: partial[Standin], version: str, end: str) -> list[Standin]:
    """Return libraries and programs; `end` is the suffix of package names."""
    full = standin.keywords["version"]
    return [
        standin(f"libnvidia-compute{end}", summary="NVIDIA libcompute package", scripts=LDCONFIG,
            files=pieces.management_library(version, DEB) | pieces.libraries(version, DEB, "libcuda",
                                                                             "libnvidia-ptxjitcompiler"),
            provides=(f"libnvidia-ml1 (= {full})", f"libcuda1 (= {full})")).instead_of("libnvidia-compute"),
        standin(f"libnvidia-cfg1{end}", summary="NVIDIA binary OpenGL/GLX configuration library", scripts=LDCONFIG,
            files=pieces.configuration(version, DEB)).instead_of("libnvidia-cfg1-any"),
        *(standin(f"libnvidia-{part}{end}",
                  summary=f"NVIDIA {part} libraries").instead_of(f"libnvidia-{part}") for part in HOLLOW),
        standin(f"nvidia-utils{end}", summary="NVIDIA driver support binaries",
            files=pieces.programs("nvidia-smi")).instead_of("nvidia-utils", "nvidia-smi"),
        standin(f"nvidia-compute-utils{end}", summary="NVIDIA compute utilities",
                requires=(f"libnvidia-compute{end}", "passwd"),
            files={**pieces.persistence(DEB, on=False),
                   **pieces.programs("nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-modprobe")},
            scripts=PERSISTENCE).instead_of("nvidia-persistenced"),
    ]  # fmt: skip


def kernel_common(standin: partial[Standin], end: str, firmware: str, provides: tuple[str, ...] = ()) -> Standin:
    """Return the package that blacklists nouveau."""
    return standin(
        f"nvidia-kernel-common{end}", summary="Shared files used with the kernel module", requires=(firmware,),
        files={"/lib/modprobe.d/nvidia-graphics-drivers.conf": text(pieces.MODPROBE)}, provides=provides,
    ).instead_of("nvidia-kernel-common")  # fmt: skip


def kernel(standin: partial[Standin], version: str, end: str, flavour: Flavour, package: str) -> list[Standin]:
    """Return the kernel modules' source and the package that makes DKMS build it under the name `package`."""
    is_open = "-open" if flavour == "open" else ""
    tree = pieces.modules(version, flavour, package)
    configuration = {path: file for path, file in tree.items() if path.endswith("/dkms.conf")}
    source = f"nvidia-kernel-source{end}{is_open}"
    return [
        standin(source, summary=f"NVIDIA kernel source package ({flavour})",
            files={path: file for path,
                   file in tree.items() if path not in configuration}).instead_of("nvidia-kernel-source"),
        standin(f"nvidia-dkms{end}{is_open}", summary=f"NVIDIA DKMS package ({flavour})", files=configuration,
            requires=("dkms", source, *exact(standin.keywords["version"], f"nvidia-kernel-common{end}")),
            scripts={"postinst": SHELL + pieces.build(version, package),
                     "prerm": SHELL + pieces.forget(version, package)},
            ).instead_of("nvidia-dkms-kernel"),
    ]  # fmt: skip


def headless(standin: partial[Standin], end: str, is_open: str) -> list[Standin]:
    """Return the metapackages without a display; the outer one pins nothing."""
    inner = f"nvidia-headless-no-dkms{end}{is_open}"
    parts = (
        f"nvidia-kernel-source{end}{is_open}",
        f"libnvidia-compute{end}",
        f"nvidia-compute-utils{end}",
        f"libnvidia-cfg1{end}",
    )
    return [
        standin(inner, summary="NVIDIA headless metapackage - no DKMS",
                requires=exact(standin.keywords["version"], *parts)),
        standin(f"nvidia-headless{end}{is_open}", summary="NVIDIA headless metapackage",
            requires=(inner, f"nvidia-dkms{end}{is_open}")),
    ]  # fmt: skip


def headers(distribution: Distribution) -> list[Standin]:
    """Return the packages of the kernel's headers, which are Debian's under another name."""
    kernel_name = distribution.kernel
    base, build, _ = kernel_name.split("-")
    name, summary = f"linux-headers-{kernel_name}", f"Linux kernel headers for {kernel_name}: Debian's under this name"
    return [
        Standin(name, f"{base}-{build}.{build}", summary, source="linux"),
        Standin("linux-headers-generic", f"{base}-{build}.{build}", "Generic Linux kernel headers", requires=(name,),
                source="linux-meta"),
    ]  # fmt: skip
