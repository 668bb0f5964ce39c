"""RPM packages that stand in for those that cannot be had, and the set that a simulated repository for EL 9 carries."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from gpuprov.catalog.packages import package_names, package_sets
from gpuprov.simulate import debs, tools
from gpuprov.simulate.parts.base import File

DISTRIBUTION = "rhel9"
EPOCH = 3
"""NVIDIA's driver packages for dnf carry this epoch."""
MODULES = {"kmod-nvidia-open-dkms": "open", "kmod-nvidia-latest-dkms": "proprietary"}
# name -> what it requires of its own version; the kernel modules are alternatives, so nothing requires one by name.
DRIVER: dict[str, tuple[str, ...]] = {
    "nvidia-driver": ("libnvidia-ml",),
    "nvidia-driver-cuda": ("nvidia-driver", "libnvidia-ml", "nvidia-persistenced"),
    "libnvidia-ml": (),
    "nvidia-persistenced": (),
    "nvidia-open": ("kmod-nvidia-open-dkms", "nvidia-driver", "nvidia-driver-cuda"),
    **dict.fromkeys(MODULES, ()),
}


def standin_rpm(
    target: Path, name: str, version: str, *, summary: str, release: str = "1.el9", epoch: int = 0,
    requires: Iterable[str] = (), provides: Iterable[str] = (), conflicts: Iterable[str] = (),
    files: Mapping[str, File] | None = None,
) -> Path:  # fmt: skip
    """A package of this name and version that says in its summary that it stands in for the real one."""
    with tempfile.TemporaryDirectory(prefix="gpuprov-") as temporary:
        root, content = Path(temporary), Path(temporary) / "content"
        content.mkdir()
        debs.put(content, files or {})
        relations = [("Requires", requires), ("Provides", provides), ("Conflicts", conflicts)]
        lines = [
            *(f"Name: {name}", f"Version: {version}", f"Release: {release}", f"Epoch: {epoch}"),
            *(f"Summary: {summary} ({debs.MARK})", "License: none", "BuildArch: x86_64", "AutoReqProv: no"),
            *(f"{key}: {value}" for key, values in relations for value in values),
            *("%description", f"{summary}.", "A stand-in made by gpuprov for simulated hosts; never for a real one."),
            "%install",
            f"mkdir -p %{{buildroot}} && cp -a {content}/. %{{buildroot}}/",
            "%files",
            *(f"%attr({file.mode:o}, root, root) {path}" for path, file in (files or {}).items()),
        ]
        spec = root / f"{name}.spec"
        spec.write_text("\n".join(lines) + "\n", encoding="utf-8")
        defines = {
            "_topdir": root, "_rpmdir": target, "_rpmfilename": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
            "debug_package": "%{nil}", "__os_install_post": "%{nil}", "_build_id_links": "none",
            "source_date_epoch_from_changelog": "0", "use_source_date_epoch_as_buildtime": "1",
        }  # fmt: skip
        flags = [word for key, value in defines.items() for word in ("--define", f"{key} {value}")]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": debs.EPOCH}
        tools.run(["rpmbuild", "-bb", "--quiet", "--target", "x86_64", *flags, str(spec)], environment=environment)
        return target / f"{name}-{version}-{release}.x86_64.rpm"


def driver_set(target: Path, version: str) -> list[Path]:
    """The driver's packages of this version, and its fabric manager, under the names that NVIDIA's dnf repository has."""
    target.mkdir(parents=True, exist_ok=True)
    made = []
    for name, required in DRIVER.items():
        made.append(
            standin_rpm(
                target, name, version, epoch=EPOCH, summary=f"NVIDIA driver {version}: {name}",
                requires=[f"{other} = {EPOCH}:{version}-1.el9" for other in required],
                provides=[f"nvidia-kmod = {EPOCH}:{version}"] if name in MODULES else [],
                conflicts=[other for other in MODULES if name in MODULES and other != name],
            )
        )  # fmt: skip
    for entry in package_sets(DISTRIBUTION, "fabric-manager", version, origin="nvidia"):
        made += [
            standin_rpm(target, name, version, release="1", summary=f"NVIDIA Fabric Manager {version}")
            for name in package_names(entry, version)
        ]
    return made
