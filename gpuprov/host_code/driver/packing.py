"""The modules that DKMS has installed on this host, as a Debian package that replaces the DKMS package."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

from ..files import compute_digest
from ..packages.commands import run
from .dkms import Failed
from .prebuilt import FOLDER, Driver, make_version, name_package, place_of

CONTROL = """Package: {package}
Source: {source}
Version: {version}
Architecture: {architecture}
Maintainer: gpuprov <root@localhost>
Section: kernel
Priority: optional
Provides: {instead} (= {version})
Conflicts: {instead}
Replaces: {instead}
Description: NVIDIA kernel modules that another host built
 For the kernels {kernels}, with the checksums in /usr/share/{package}/SHA256SUMS.
"""
SCRIPT = """#!/bin/sh
set -e
{guard}for kernel in {kernels}; do
  [ ! -e "/lib/modules/$kernel/build" ] && [ ! -e "/boot/vmlinuz-$kernel" ] || depmod -a "$kernel"
done
"""


def make_package(driver: Driver, sums: str) -> bool:
    """Make the package and its description, unless its modules have these sums. Return whether it was made. Raises
    Failed."""
    with tempfile.TemporaryDirectory(prefix="gpuprov-") as folder:
        work = Path(folder)
        work.chmod(0o755)
        for kernel in driver["kernels"]:
            _take(work, str(kernel), str(driver["module_file"]))
        share = work / "usr/share" / name_package(driver)
        share.mkdir(parents=True)
        (share / "SHA256SUMS").write_text(list_checksums(work, "lib"), encoding="utf-8")
        checksum = compute_digest(str(share / "SHA256SUMS"))
        if checksum == sums:
            return False
        write_control(work, driver)
        os.makedirs(FOLDER, exist_ok=True)
        package = f"{place_of(driver)}.deb"
        _run("dpkg-deb", "--root-owner-group", "-Zgzip", "-b", folder, package)
    about = {
        "version": make_version(driver),
        "flavour": driver["flavour"],
        "sha256": compute_digest(package),
        "sums": checksum,
    }
    text = json.dumps({**about, "kernels": list(driver["kernels"])})
    Path(f"{place_of(driver)}.json").write_text(f"{text}\n", encoding="utf-8")
    return True


def _take(work: Path, kernel: str, module: str) -> None:
    path = run(["modinfo", "-k", kernel, "-n", module])
    if path.status:
        raise Failed(f"kernel {kernel} has no module {module}")
    into = work / f"lib/modules/{kernel}/updates/dkms"
    into.mkdir(parents=True)
    for file in Path(path.out.strip()).parent.glob("nvidia*.ko*"):
        shutil.copy2(str(file), str(into))


def list_checksums(work: Path, *folders: str, kind: str = "sha256") -> str:
    """Return checksums in the format of sha256sum, in the order of the paths' bytes."""
    files = [path for folder in folders for path in (work / folder).rglob("*") if path.is_file()]
    names = sorted(os.fsencode(path.relative_to(work)) for path in files)
    return "".join(f"{compute_sum(work / os.fsdecode(name), kind)}  {os.fsdecode(name)}\n" for name in names)


def compute_sum(path: Path, kind: str) -> str:
    return hashlib.new(kind, path.read_bytes()).hexdigest()


def write_control(work: Path, driver: Driver) -> None:
    debian, instead, kernels = work / "DEBIAN", str(driver["module"]), " ".join(driver["kernels"])
    debian.mkdir()
    words = {
        "package": name_package(driver),
        "source": _run("dpkg-query", "-W", "-f", "${source:Package}", instead),
        "version": make_version(driver),
        "architecture": _run("dpkg", "--print-architecture"),
        "instead": instead,
        "kernels": kernels,
    }
    (debian / "control").write_text(CONTROL.format(**words), encoding="utf-8")
    for name, guard in (("postinst", ""), ("postrm", '[ "$1" = remove ] || exit 0\n')):
        (debian / name).write_text(SCRIPT.format(guard=guard, kernels=kernels), encoding="utf-8")
        (debian / name).chmod(0o755)
    (debian / "md5sums").write_text(list_checksums(work, "lib", "usr", kind="md5"), encoding="utf-8")


def _run(*argv: str) -> str:
    ran = run(list(argv))
    if ran.status:
        lines = (ran.err or ran.out).strip().splitlines()
        raise Failed(f"{argv[0]}: {lines[-1] if lines else f'status {ran.status}'}")
    return ran.out.strip()
