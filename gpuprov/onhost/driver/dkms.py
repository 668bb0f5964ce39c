"""DKMS, and what modinfo says of the modules that it has put in place."""

from __future__ import annotations

import os
import re
import shutil
from typing import Mapping, NamedTuple, Sequence

from ..packages.commands import Ran, run

TREE = "/var/lib/dkms"
SOURCES = "/usr/src"
KERNELS = "/lib/modules"
TOOLSETS = "/opt/rh"
ERRORS = re.compile(r": (fatal )?error:|^ERROR: |: command not found")


class Failed(Exception):
    """What could not be built or put in place. `lines`: what the build said."""

    def __init__(self, message: str, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.lines = list(lines)


class Source(NamedTuple):
    """What a folder below /usr/src has: DKMS knows modules by the folder, whatever name is in dkms.conf."""

    name: str
    version: str

    @property
    def words(self) -> list[str]:
        return ["-m", self.name, "-v", self.version]


def source(conf: str) -> Source:
    """Of this dkms.conf."""
    with open(conf, encoding="utf-8", errors="replace") as file:
        found = re.search(r'^PACKAGE_VERSION="?([^"\n]*)', file.read(), re.MULTILINE)
    version = found[1] if found else ""
    folder = os.path.basename(os.path.dirname(conf))
    return Source(folder[: -len(version) - 1] if version and folder.endswith(f"-{version}") else folder, version)


def dkms(*words: str, kernel: str = "") -> Ran:
    return run(["dkms", *words], environment(kernel) if kernel else None)


def known(mine: Source, kernel: str, *states: str) -> bool:
    """Whether DKMS calls the modules for this kernel one of these: built, installed."""
    return any(state in dkms("status", *mine.words, "-k", kernel).out for state in states)


def environment(kernel: str) -> Mapping[str, str]:
    """What a build for this kernel runs with.

    The source asks for the kernel by uname -r where dkms.conf does not say which:
    https://github.com/NVIDIA/open-gpu-kernel-modules/issues/791
    A kernel may have another compiler than the system's:
    https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/615/oracle-linux.html
    """
    found = {"KERNEL_UNAME": kernel}
    wanted = re.search(r'^CONFIG_CC_VERSION_TEXT="gcc[^"]*\) (\d*)\.', _config(kernel), re.MULTILINE)
    tools = f"{TOOLSETS}/gcc-toolset-{wanted[1]}/root/usr/bin" if wanted else ""
    if wanted and os.access(f"{tools}/gcc", os.X_OK):
        system = run(["gcc", "-dumpversion"]).out.strip().partition(".")[0]
        if system != wanted[1]:
            found["PATH"] = f"{tools}:{os.environ.get('PATH', os.defpath)}"
    return found


def _config(kernel: str) -> str:
    try:
        with open(f"{KERNELS}/{kernel}/build/.config", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def modinfo(kernel: str, field: str, module: str) -> str:
    """What the module that this kernel would load says; empty where there is none. `field` filename: where it is."""
    ran = run(["modinfo", "-k", kernel, "-F", field, module])
    return ran.out.strip() if ran.status == 0 else ""


def is_flavour(kernel: str, module: str, flavour: str) -> bool:
    """The open module's license has GPL in it: https://github.com/NVIDIA/open-gpu-kernel-modules kernel-open/nvidia/nv.c"""
    return ("GPL" in modinfo(kernel, "license", module)) == (flavour == "open")


def is_right(kernel: str, module: str, version: str, flavour: str) -> bool:
    """Whether the kernel would load this version and flavour, of modules that were made for it."""
    if modinfo(kernel, "version", module) != version:
        return False
    made = modinfo(kernel, "vermagic", module).partition(" ")[0]
    # Of another kernel it is right only where the distribution has found that it fits (weak-modules).
    fits = made in ("", kernel) or "/weak-updates/" in modinfo(kernel, "filename", module)
    return fits and is_flavour(kernel, module, flavour)


def installed(mine: Source, kernel: str) -> None:
    """Build and install the modules for this kernel. Raises Failed with the end of make.log."""
    ran = dkms("install", "--force", *mine.words, "-k", kernel, kernel=kernel)
    if ran.status:
        log = _end(f"{TREE}/{mine.name}/{mine.version}/build/make.log", 12)
        raise Failed(" ".join(" ".join([f"kernel {kernel}:", ran.out, ran.err, *log]).split()))


def _end(path: str, most: int) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()[-most:]
    except OSError:
        return []


def complaints(path: str, most: int = 8) -> list[str]:
    """Of a build's log what says that it failed, else its end."""
    lines = _end(path, 100_000)
    return [line[:200] for line in ([line for line in lines if ERRORS.search(line)] or lines[-most:])[:most]]


def forget(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
