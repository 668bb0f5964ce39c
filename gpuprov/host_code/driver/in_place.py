"""The modules that each kernel loads: installed by DKMS, from precompiled packages, or from NVIDIA's installer."""

from __future__ import annotations

import glob
import os
import re
from contextlib import suppress
from typing import Sequence

from ..files import settle
from ..packages.commands import run
from . import aside, dkms
from .dkms import Failed, Source

CONF = "dkms.conf"


def list_kernels_without(family: str, package: str, module: str, flavour: str, kernels: Sequence[str]) -> list[str]:
    """List the kernels whose modules are not those of the DKMS package. Raises Failed."""
    # DKMS reports "installed" even if the module's file is missing, or has the other flavour: modinfo checks that.
    dkms_module = read_source(family, package)
    return [kernel for kernel in kernels if not _is_there(dkms_module, kernel, module, flavour)]


def install(family: str, package: str, module: str, flavour: str, kernels: Sequence[str], pack: str) -> list[str]:
    """Build and install the DKMS package's modules for each kernel that lacks them; return these kernels. Raises
    Failed. `pack`: modules from the staging area."""
    dkms_module = read_source(family, package)
    if not pack:  # what a run that was cut off built aside: a later installation of the same version must not load it
        aside.clear(family)
    done = []
    for kernel in kernels:
        if dkms.is_known(dkms_module, kernel, "installed"):
            if dkms.is_right(kernel, module, dkms_module.version, flavour):
                continue
            # What is there is another flavour's or kernel's, or its file is lost: DKMS would install the same again.
            if family != "debian":
                dkms.find_dkms("unbuild", *dkms_module.words, "-k", kernel)
        _put(dkms_module, kernel, pack)
        if not dkms.is_right(kernel, module, dkms_module.version, flavour):
            # DKMS's own copy is cut off, as a loss of power leaves what was not flushed: it would be installed again
            # and again.
            dkms.find_dkms("remove", *dkms_module.words, "-k", kernel)
            _put(dkms_module, kernel, pack)
        done.append(kernel)
    # What DKMS found in the place of its own modules it would put back when it goes: over precompiled ones, for
    # instance.
    dkms.forget(f"{dkms.TREE}/{dkms_module.name}/original_module")
    settle([dkms.TREE, dkms.KERNELS])  # the old modules are gone, and dpkg has written that the new ones are installed
    return done


def _put(dkms_module: Source, kernel: str, pack: str) -> None:
    if pack and not dkms.is_known(dkms_module, kernel, "built", "installed"):
        dkms.find_dkms("ldtarball", "--force", "--archive", pack)
    dkms.install_modules(dkms_module, kernel)


def read_source(family: str, package: str) -> Source:
    """Return the DKMS source of the modules of this installed package. Raises Failed."""
    ran = run(["dpkg-query", "-L", package] if family == "debian" else ["rpm", "-ql", package])
    if ran.status:
        raise Failed(f"{package} is not installed")
    confs = [
        line
        for line in ran.lines
        if os.path.dirname(os.path.dirname(line)) == dkms.SOURCES and line.endswith(f"/{CONF}")
    ]
    if not confs or not os.path.isfile(confs[0]):
        raise Failed(
            f"{package} has no {CONF} below {dkms.SOURCES}, so DKMS cannot build its modules: install {package} "
            "anew, or take a version whose package has one"
        )
    return dkms.parse_dkms_conf(confs[0])


def _is_there(dkms_module: Source, kernel: str, module: str, flavour: str) -> bool:
    return dkms.is_known(dkms_module, kernel, "installed") and dkms.is_right(
        kernel, module, dkms_module.version, flavour
    )


def register(version: str, flavour: str, kernels: Sequence[str]) -> list[str]:
    """Have DKMS build and install the modules that NVIDIA's installer registered, for each kernel that lacks them;
    return these kernels. Raises Failed."""
    # An installer whose registration fails only warns, and installs the modules itself: DKMS would build none for the
    # next kernel.
    conf = f"{dkms.SOURCES}/nvidia-{version}/{CONF}"
    if not os.path.isfile(conf):
        raise Failed(f"{conf} is missing: DKMS has no source to build")
    dkms_module, wanting = Source("nvidia", version), []
    for kernel in kernels:
        is_installed = dkms.read_modinfo(kernel, "version", "nvidia") == version and dkms.is_known(
            dkms_module, kernel, "installed"
        )
        if not (is_installed and dkms.is_flavour(kernel, "nvidia", flavour)):
            dkms.install_modules(dkms_module, kernel)
            wanting.append(kernel)
    return wanting


def link_precompiled(family: str, version: str, packages: Sequence[str], kernels: Sequence[str]) -> list[str]:
    """Make each kernel load the modules of the precompiled packages; return the kernels for which that changed
    something. Raises Failed."""
    # When DKMS's modules are removed, it restores those that it had found in their place (original_module in
    # https://github.com/dell/dkms/blob/main/dkms.in): they belong to no package, and come first.
    done = []
    for kernel in kernels:
        if dkms.read_modinfo(kernel, "version", "nvidia") == version:
            continue
        _remove_strangers(family, version, kernel)
        run(["depmod", "-a", kernel])
        problem = ""
        for package in packages:
            if dkms.read_modinfo(kernel, "version", "nvidia") == version:
                break
            if package.endswith((f"-{kernel}", "-" + re.split(r"\.el\d", kernel)[0])):
                problem = _configure(family, package)
        loaded_version = dkms.read_modinfo(kernel, "version", "nvidia")
        if loaded_version != version:
            raise Failed(f"kernel {kernel}: {loaded_version or 'no module'} of nvidia, not {version}: {problem}")
        done.append(kernel)
    return done


def _remove_strangers(family: str, version: str, kernel: str) -> None:
    """Remove modules of another version that no package owns."""
    for file in sorted(glob.glob(f"{dkms.KERNELS}/{kernel}/**/nvidia.ko*", recursive=True)):
        ran = run(["modinfo", "-F", "version", file])
        owner = ["dpkg-query", "-S", file] if family == "debian" else ["rpm", "-qf", file]
        if (ran.status == 0 and ran.out.strip() == version) or run(owner).status == 0:
            continue
        folder = os.path.dirname(file)
        for path in glob.glob(f"{glob.escape(folder)}/nvidia.ko*") + glob.glob(f"{glob.escape(folder)}/nvidia-*.ko*"):
            with suppress(FileNotFoundError):
                os.unlink(path)


def _configure(family: str, package: str) -> str:
    """Have the package install its modules once more; return its output."""
    if family == "debian":
        return run(["dpkg-reconfigure", package], {"DEBIAN_FRONTEND": "noninteractive"}).message
    return run(["sh"], stdin=run(["rpm", "-q", "--qf", "%{POSTIN}\\n", package]).out).message
