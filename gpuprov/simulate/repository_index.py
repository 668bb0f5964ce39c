"""The indexes of the apt and the rpm repository, signed."""

from __future__ import annotations

from pathlib import Path

from gpuprov.simulate import tools
from gpuprov.simulate.repository_signing import Signer

ORIGIN = "gpuprov-sim"
LABEL = "gpuprov simulation: Debian's packages and stand-ins"


def apt(folder: Path, suite: str, signer: Signer) -> None:
    """Index the packages below `folder`/pool as the distribution `suite` with the component main."""
    binaries = folder / "dists" / suite / "main/binary-amd64"
    binaries.mkdir(parents=True)
    only_sha256 = [flag for name in ("MD5", "SHA1", "SHA512") for flag in ("-o", f"APT::FTPArchive::{name}=false")]
    listing = tools.run(["env", f"--chdir={folder}", "apt-ftparchive", *only_sha256, "packages", "pool"])
    (binaries / "Packages").write_text(listing, encoding="utf-8")
    told = {
        "Origin": ORIGIN,
        "Label": LABEL,
        "Suite": suite,
        "Codename": suite,
        "Components": "main",
        "Architectures": "amd64",
    }
    options = [flag for key, value in told.items() for flag in ("-o", f"APT::FTPArchive::Release::{key}={value}")]
    release = folder / "dists" / suite / "Release"
    text = tools.run(["apt-ftparchive", *only_sha256, *options, "release", str(release.parent)])
    release.write_text(text, encoding="utf-8")
    signer.inline(release, release.with_name("InRelease"))


def rpm(folder: Path, signer: Signer) -> None:
    """Sign and index the rpm packages in `folder`."""
    signer.rpms(sorted(folder.glob("*.rpm")))
    tools.run(["createrepo_c", "--quiet", str(folder)])
    signer.detached(folder / "repodata/repomd.xml", folder / "repodata/repomd.xml.asc")
