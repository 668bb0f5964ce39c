"""Repositories of small packages of nobody's, for apt, dnf and zypper: a driver in two versions, what needs it, what is
in its way."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from gpuprov.simulate import debs

OLD, NEW = "570.10", "580.20"


@dataclass(frozen=True)
class Made:
    """A package: what it needs and what it cannot be beside, and a script that is run when it is in place."""

    name: str
    version: str
    needs: str = ""
    clashes: str = ""
    script: str = ""


def packages(form: str) -> tuple[Made, ...]:
    """All of them. `form`: how a dependency on a version is written."""
    versions = [
        package
        for version in (OLD, NEW)
        for package in (Made("gp-driver", version, form.format("gp-lib", f"{version}-1")), Made("gp-lib", version))
    ]
    others = (Made("gp-user", "1.0", "gp-driver"), Made("gp-clash", "1.0", clashes="gp-driver"))
    return (*versions, *others, Made("gp-fails", "1.0", script="exit 3"), Made("gp-spare", "1.0"))


def apt(folder: Path) -> None:
    """A flat repository that a source has to trust."""
    for made in packages("{} (= {})"):
        content = folder / "content" / f"{made.name}-{made.version}"
        (content / "DEBIAN").mkdir(parents=True)
        fields = {
            "Package": made.name, "Version": f"{made.version}-1", "Architecture": "all", "Maintainer": debs.MAINTAINER,
            "Depends": made.needs, "Conflicts": made.clashes, "Description": "nothing",
        }  # fmt: skip
        debs.write_control(content, fields)
        if made.script:
            (content / "DEBIAN/postinst").write_text(f"#!/bin/sh\n{made.script}\n")
            (content / "DEBIAN/postinst").chmod(0o755)
        subprocess.run(["dpkg-deb", "--build", "--root-owner-group", content, folder], check=True, capture_output=True)
    index = subprocess.run(["apt-ftparchive", "packages", "."], cwd=folder, check=True, capture_output=True)
    (folder / "Packages").write_bytes(index.stdout)


def rpm(folder: Path, *, shell: str = "") -> None:
    """A repository without signatures. `shell`: what runs scripts (`-p <lua>`), where there is none."""
    folder.mkdir(parents=True)
    for made in packages("{} = {}"):
        lines = [
            f"Name: {made.name}",
            f"Version: {made.version}",
            "Release: 1",
            "Summary: nothing",
            "License: none",
            "BuildArch: noarch",
        ]
        lines += [f"Requires: {made.needs}"] if made.needs else []
        lines += [f"Conflicts: {made.clashes}"] if made.clashes else []
        lines += [
            "%description",
            "nothing",
            *([f"%post {shell}".strip(), f"error({made.script!r})" if shell else made.script] if made.script else []),
            "%files",
        ]
        spec = folder / f"{made.name}.spec"
        spec.write_text("\n".join([*lines, ""]))
        macros = {"_topdir": folder / "build", "_rpmdir": folder, "_rpmfilename": "%%{NAME}-%%{VERSION}.rpm"}
        defines = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
        subprocess.run(["rpmbuild", "-bb", "--quiet", *defines, spec], check=True, capture_output=True)
    subprocess.run(["createrepo_c", "--quiet", folder], check=True, capture_output=True)
