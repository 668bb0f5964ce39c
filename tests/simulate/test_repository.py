"""The package repository: what it offers, and how packages become stand-ins."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import debs
from gpuprov.simulate.parts.base import text
from gpuprov.simulate.repository.debian import Package, closure, parse
from gpuprov.simulate.repository.plan import Plan, plan
from gpuprov.simulate.repository.standins import Content, standin
from tests.rows import run_each
from tests.simulate.needs import needs_dpkg

INDEX = """\
Package: nvidia-smi
Source: nvidia-graphics-drivers (535.1-1)
Version: 535.261.03-1
Architecture: amd64
Depends: libnvidia-ml1 (= 535.261.03-1), libc6 (>= 2.34), nvidia-support--v1

Package: nvidia-smi
Version: 535.309.01-0+deb12u1
Architecture: amd64
Depends: libnvidia-ml1 (= 535.309.01-0+deb12u1)

Package: libnvidia-ml1
Version: 535.261.03-1
Architecture: amd64

Package: libnvidia-ml1
Version: 535.309.01-0+deb12u1
Architecture: amd64

Package: nvidia-open-kernel-dkms
Version: 535.261.03-1
Architecture: amd64

Package: nvidia-support
Version: 2022+3~deb12u1
Architecture: amd64
Provides: nvidia-support--v1, other

Package: steam
Version: 1
Architecture: i386
"""
NAMES = ["nvidia-smi", "libnvidia-ml1", "nvidia-open-kernel-dkms"]


def show(deb: Path, field: str) -> str:
    return subprocess.run(
        ["dpkg-deb", "--field", deb, field], check=True, capture_output=True, text=True
    ).stdout.strip()


@run_each(
    ("driver", "real", "rewritten"),
    [
        ("", ("535.261.03", "535.309.01"), ()),
        ("535", ("535.261.03", "535.309.01"), ()),
        ("535.309.01", ("535.309.01",), ()),
        ("535.104.05", (), ("535.104.05",)),
        ("580", (), ("580.178.04",)),
        ("580.126.20, 580", (), ("580.126.20", "580.178.04")),
        ("535 570.124.06", ("535.261.03", "535.309.01"), ("570.124.06",)),
    ],
)
def test_versions_on_offer(driver: str, real: tuple[str, ...], rewritten: tuple[str, ...]) -> None:
    # The open kernel modules are there for one version only: a set made up from it is whole.
    assert plan(driver, parse(INDEX), NAMES) == Plan(real, rewritten, "535.261.03")


@pytest.mark.install
@needs_dpkg
def test_a_standin_says_so_and_keeps_the_layout(tmp_path: Path) -> None:
    scripts = {"postinst": "#!/bin/sh\nDKMS_VERSION=535.261.03\n"}
    files = {
        "/usr/src/nvidia-current-535.261.03/nvidia.c": text("real"),
        "/usr/share/doc/nvidia-kernel-dkms/copyright": text("kept"),
        "/etc/nvidia/nvidia-535.261.03/x.conf": text("for 535.261.03\n"),
    }
    original = debs.standin_deb(
        tmp_path, "nvidia-kernel-dkms", "535.261.03-1", description="modules", files=files, scripts=scripts,
        depends="firmware-nvidia-gsp (= 535.261.03)",
    )  # fmt: skip
    package = Package("nvidia-kernel-dkms", "535.261.03-1", {})
    content = Content(lambda version, flavour: {"nvidia.c": f"{version} {flavour}".encode()}, lambda _: {})
    target = tmp_path / "out"
    target.mkdir()
    for version, expected in (("", "535.261.03"), ("580.65.06", "580.65.06")):
        made = standin(original, package, target, content, version)
        assert made.name == f"nvidia-kernel-dkms_{expected}-1_amd64.deb"
        assert show(made, "Version") == f"{expected}-1"
        assert show(made, "Depends") == f"firmware-nvidia-gsp (= {expected})"
        assert debs.MARK in show(made, "Description").splitlines()[0]
        assert ("Its files are those of 535.261.03." in show(made, "Description")) == bool(version)
        folder = tmp_path / f"unpacked-{expected}"
        debs.unpack(made, folder)
        assert (folder / f"usr/src/nvidia-current-{expected}/nvidia.c").read_text() == f"{expected} proprietary"
        assert (folder / f"etc/nvidia/nvidia-{expected}/x.conf").read_text() == f"for {expected}\n"
        assert (folder / "usr/share/doc/nvidia-kernel-dkms/copyright").read_text() == "kept"
        assert f"DKMS_VERSION={expected}" in (folder / "DEBIAN/postinst").read_text()
        subprocess.run(["md5sum", "--check", "--quiet", "DEBIAN/md5sums"], cwd=folder, check=True)


def test_a_package_that_the_mirror_lacks_is_named() -> None:
    with pytest.raises(GpuprovError, match="have no package nvidia-nothing"):
        closure(parse(INDEX), ["nvidia-nothing"])
