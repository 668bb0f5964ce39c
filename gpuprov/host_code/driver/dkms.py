"""DKMS, and modinfo's data about the modules that it has installed."""

from __future__ import annotations

import os
import re
import shutil
from typing import Mapping, NamedTuple, Sequence

from .. import failed
from ..files import peek
from ..packages.commands import Ran, run

TREE = "/var/lib/dkms"
SOURCES = "/usr/src"
KERNELS = "/lib/modules"
TOOLSETS = "/opt/rh"
# /bin/sh: line 1: g++: command not found
ERRORS = re.compile(r": (fatal )?error:|^ERROR: |: command not found")


class Failed(failed.Failed):
    """A module that could not be built or installed. `lines`: the output of the build."""

    def __init__(self, message: str, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.lines = list(lines)


class Source(NamedTuple):
    """The contents of a folder below /usr/src: DKMS identifies modules by the folder, whatever name dkms.conf has."""

    name: str
    version: str

    @property
    def words(self) -> list[str]:
        return ["-m", self.name, "-v", self.version]


def parse_dkms_conf(conf: str) -> Source:
    """Parse this dkms.conf."""
    with open(conf, encoding="utf-8", errors="replace") as file:
        # dkms.conf is a shell script: PACKAGE_VERSION="570.124.06"
        match = re.search(r'^PACKAGE_VERSION="?([^"\n]*)', file.read(), re.MULTILINE)
    version = match[1] if match else ""
    folder = os.path.basename(os.path.dirname(conf))
    return Source(folder[: -len(version) - 1] if version and folder.endswith(f"-{version}") else folder, version)


def find_dkms(*words: str, kernel: str = "") -> Ran:
    return run(["dkms", *words], build_environment(kernel) if kernel else None)


def is_known(module: Source, kernel: str, *states: str) -> bool:
    """Return whether DKMS reports the modules for this kernel in one of these states: built, installed."""
    return any(state in find_dkms("status", *module.words, "-k", kernel).out for state in states)


def build_environment(kernel: str) -> Mapping[str, str]:
    """Return the environment of a build for this kernel."""
    # The source asks for the kernel by uname -r if dkms.conf does not say which:
    # https://github.com/NVIDIA/open-gpu-kernel-modules/issues/791 A kernel may have another compiler than the system's:
    # https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/615/oracle-linux.html
    variables = {"KERNEL_UNAME": kernel}
    # CONFIG_CC_VERSION_TEXT="gcc (GCC) 14.2.1 20250110 (Red Hat 14.2.1-7)"
    compiler = re.search(
        r'^CONFIG_CC_VERSION_TEXT="gcc[^"]*\) (\d*)\.', peek(f"{KERNELS}/{kernel}/build/.config"), re.MULTILINE
    )
    tools = f"{TOOLSETS}/gcc-toolset-{compiler[1]}/root/usr/bin" if compiler else ""
    if compiler and os.access(f"{tools}/gcc", os.X_OK):
        system = run(["gcc", "-dumpversion"]).out.strip().partition(".")[0]
        if system != compiler[1]:
            variables["PATH"] = f"{tools}:{os.environ.get('PATH', os.defpath)}"
    return variables


def read_modinfo(kernel: str, field: str, module: str) -> str:
    """Return a field of the module that this kernel would load; "" if there is none. `field` filename: its path."""
    ran = run(["modinfo", "-k", kernel, "-F", field, module])
    return ran.out.strip() if ran.status == 0 else ""


def is_flavour(kernel: str, module: str, flavour: str) -> bool:
    """Return whether the module has this flavour."""
    # The open module's license contains GPL: https://github.com/NVIDIA/open-gpu-kernel-modules kernel-open/nvidia/nv.c
    return ("GPL" in read_modinfo(kernel, "license", module)) == (flavour == "open")


def is_right(kernel: str, module: str, version: str, flavour: str) -> bool:
    """Return whether the kernel would load this version and flavour, from modules that were built for it."""
    if read_modinfo(kernel, "version", module) != version:
        return False
    made = read_modinfo(kernel, "vermagic", module).partition(" ")[0]
    # Of another kernel it is right only where the distribution has found that it fits (weak-modules).
    fits = made in ("", kernel) or "/weak-updates/" in read_modinfo(kernel, "filename", module)
    return fits and is_flavour(kernel, module, flavour)


def install_modules(module: Source, kernel: str) -> None:
    """Build and install the modules for this kernel. Raises Failed with the end of make.log."""
    ran = find_dkms("install", "--force", *module.words, "-k", kernel, kernel=kernel)
    if ran.status:
        log = peek(f"{TREE}/{module.name}/{module.version}/build/make.log").splitlines()[-12:]
        raise Failed(" ".join(" ".join([f"kernel {kernel}:", ran.out, ran.err, *log]).split()))


def find_complaints(path: str, most: int = 8) -> list[str]:
    """Return the lines of a build's log that report the failure, or else its last lines."""
    lines = peek(path).splitlines()[-100_000:]
    return [line[:200] for line in ([line for line in lines if ERRORS.search(line)] or lines[-most:])[:most]]


def forget(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
