"""The indexes of apt and rpm repositories, signed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpuprov.simulate import tools
from gpuprov.simulate.repository.signing import Signer


@dataclass(frozen=True)
class Release:
    """Metadata of an apt repository. `suite` empty: a flat repository."""

    origin: str
    label: str
    suite: str = ""
    component: str = "main"
    codename: str = ""


OWN = Release("gpuprov-sim", "gpuprov simulation: Debian's packages and stand-ins", "gpuprov-sim")
NVIDIA = Release("NVIDIA", "NVIDIA CUDA")


def apt(folder: Path, release: Release, signer: Signer) -> None:
    """Index the packages below `folder`/pool as a distribution with one component; or those in `folder`, as a flat
    repository."""
    only_sha256 = [flag for name in ("MD5", "SHA1", "SHA512") for flag in ("-o", f"APT::FTPArchive::{name}=false")]
    place = folder / "dists" / release.suite if release.suite else folder
    index = place / release.component / "binary-amd64" if release.suite else folder
    index.mkdir(parents=True, exist_ok=True)
    pool = "pool" if release.suite else "."
    listing = tools.run(["env", f"--chdir={folder}", "apt-ftparchive", *only_sha256, "packages", pool])
    (index / "Packages").write_text(listing, encoding="utf-8")
    fields = {"Origin": release.origin, "Label": release.label, "Architectures": "amd64"}
    if release.suite:
        fields |= {
            "Suite": release.suite,
            "Codename": release.codename or release.suite,
            "Components": release.component,
        }
    options = [flag for key, value in fields.items() for flag in ("-o", f"APT::FTPArchive::Release::{key}={value}")]
    text = tools.run(["apt-ftparchive", *only_sha256, *options, "release", str(place)])
    (place / "Release").write_text(text, encoding="utf-8")
    signer.inline(place / "Release", place / "InRelease")


def rpm(folder: Path, signer: Signer, modules: str = "") -> None:
    """Sign and index the rpm packages below `folder`; `modules`: metadata of module streams (modules.yaml)."""
    signer.rpms(sorted(folder.rglob("*.rpm")))
    tools.run(["createrepo_c", "--quiet", "--no-database", "--simple-md-filenames", str(folder)])
    if modules:
        file = folder / "modules.yaml"
        file.write_text(modules, encoding="utf-8")
        tools.run(["modifyrepo_c", "--mdtype=modules", str(file), str(folder / "repodata")])
        file.unlink()
    signer.detached(folder / "repodata/repomd.xml", folder / "repodata/repomd.xml.asc")
