"""Debian's driver packages with the parts that touch a GPU replaced, and whole sets rewritten to another version."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from gpuprov.simulate import debs, tools
from gpuprov.simulate.parts.base import File
from gpuprov.simulate.repository.debian import Package
from gpuprov.simulate.repository.plan import upstream

Flavour = Literal["proprietary", "open"]
LIBRARIES = "/usr/lib/x86_64-linux-gnu/nvidia/current"
KERNEL: dict[str, Flavour] = {"nvidia-kernel-dkms": "proprietary", "nvidia-open-kernel-dkms": "open"}
# Packages that touch the GPU: always stand-ins.
CHANGED = {*KERNEL, "firmware-nvidia-gsp", "libnvidia-ml1", "libnvidia-cfg1"}
CFG_SOURCE = Path(__file__).parents[1] / "parts/packages_files/libnvidia_cfg.c"
# Big, and replaced anyway: not even unpacked.
LEFT_OUT = ("./usr/src", "./lib/firmware", "./usr/lib/firmware")
FIRMWARE = b"A gpuprov stand-in: there is no GPU that could take this firmware.\n"


@dataclass(frozen=True)
class Content:
    """Sources of the stand-ins' content."""

    # Files of a DKMS source tree, by path in it, for a version and flavour.
    kernel_source: Callable[[str, Flavour], Mapping[str, bytes]]
    # Files of libnvidia-ml1, by path on the host, for a version.
    nvml: Callable[[str], Mapping[str, File]]


def standin(deb: Path, package: Package, target: Path, content: Content, version: str = "") -> Path:
    """Build a stand-in for a package in the folder `target`, rewritten to the driver version if one is given."""
    old = upstream(package.version)
    version = version or old
    with tempfile.TemporaryDirectory(prefix="gpuprov-") as temporary:
        folder = Path(temporary) / "package"
        debs.unpack(deb, folder, without=LEFT_OUT if package.name in CHANGED else ())
        if version != old:
            debs.rename(folder, old, version)
        if package.name in CHANGED:
            debs.put(folder, _replacements(package.name, version, content))
        debs.mark(folder, f"Its files are those of {old}." if version != old else "")
        return debs.pack(folder, target)


def _replacements(name: str, version: str, content: Content) -> dict[str, File]:
    if name in KERNEL:
        tree = f"/usr/src/nvidia-current{'-open' if KERNEL[name] == 'open' else ''}-{version}"
        return {f"{tree}/{path}": File(source) for path, source in content.kernel_source(version, KERNEL[name]).items()}
    if name == "firmware-nvidia-gsp":
        folder = f"/lib/firmware/nvidia/{version}"
        return {f"{folder}/{file}.bin": File(FIRMWARE) for file in ("gsp_ga10x", "gsp_tu10x")}
    if name == "libnvidia-cfg1":
        return {f"{LIBRARIES}/libnvidia-cfg.so.{version}": File(configuration_library())}
    return dict(content.nvml(version))


@cache
def configuration_library() -> bytes:
    """Return the stand-in libnvidia-cfg."""
    with tempfile.TemporaryDirectory(prefix="gpuprov-") as temporary:
        library = Path(temporary) / "library"
        flags = ("-std=c11", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-Wl,-soname,libnvidia-cfg.so.1")
        tools.run(["gcc", *flags, "-o", str(library), str(CFG_SOURCE)])
        return library.read_bytes()


def keep(deb: Path, target: Path) -> Path:
    """Copy a package unchanged."""
    made = target / deb.name
    try:
        made.hardlink_to(deb)
    except OSError:
        shutil.copyfile(deb, made)
    return made
