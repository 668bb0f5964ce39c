"""A package repository of nobody's: one apt and one rpm package, signed by a key made for it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gpuprov.simulate import debs
from gpuprov.simulate.repository import index as repository_index
from gpuprov.simulate.repository.signing import Signer

NAME, VERSION = "gpuprov-nothing", "1.2"


@dataclass(frozen=True)
class Key:
    """A key with a home of its own."""

    home: Path
    fingerprint: str

    @property
    def file(self) -> Path:
        """Its public part, armoured."""
        return self.home / "public.asc"


def make_key(home: Path, *, expires: str = "never") -> Key:
    """A signing key; `expires` as gpg takes it (`seconds=1`)."""
    home.mkdir(mode=0o700, parents=True)
    signer = Signer(home)
    signer.gpg(
        "--pinentry-mode", "loopback", "--passphrase", "", "--quick-generate-key", home.name, "rsa3072", "sign", expires
    )
    rows = signer.gpg("--with-colons", "--fingerprint", home.name).splitlines()
    fingerprint = next(row.split(":")[9] for row in rows if row.startswith("fpr"))
    signer.gpg("--armor", "--output", str(home / "public.asc"), "--export")
    return Key(home, fingerprint)


def end(key: Key) -> None:
    """The agent that gpg left running."""
    subprocess.run(["gpgconf", "--homedir", str(key.home), "--kill", "gpg-agent"], check=True)


def apt(folder: Path, key: Key, suite: str = "stable") -> None:
    """An apt repository with suites."""
    package = folder / "content/DEBIAN"
    package.mkdir(parents=True)
    fields = {
        "Package": NAME, "Version": VERSION, "Architecture": "all", "Maintainer": debs.MAINTAINER,
        "Description": "nothing",
    }  # fmt: skip
    debs.write_control(package.parent, fields)
    pool = folder / "pool"
    pool.mkdir()
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", package.parent, pool], check=True, capture_output=True)
    repository_index.apt(folder, repository_index.Release("nobody", "nothing", suite), Signer(key.home))


def rpm(folder: Path, key: Key, *, packages: bool = True, index: bool = True) -> None:
    """A dnf repository; `packages` and `index`: what is signed."""
    folder.mkdir(parents=True)
    spec = folder / "nothing.spec"
    spec.write_text(
        f"Name: {NAME}\nVersion: {VERSION}\nRelease: 1\nSummary: nothing\nLicense: none\nBuildArch: noarch\n"
        "%description\nnothing\n%files\n"
    )
    macros = {"_topdir": folder / "build", "_rpmdir": folder, "_rpmfilename": "%%{NAME}-%%{VERSION}.rpm"}
    defines = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
    subprocess.run(["rpmbuild", "-bb", "--quiet", *defines, spec], check=True, capture_output=True)
    made = folder / f"{NAME}-{VERSION}.rpm"
    if packages:
        sign = {"_gpg_name": key.home.name, "_gpg_path": key.home, "__gpg": "/usr/bin/gpg"}
        words = [word for name, value in sign.items() for word in ("--define", f"{name} {value}")]
        environment = {**os.environ, "GNUPGHOME": str(key.home)}
        subprocess.run(["rpmsign", *words, "--addsign", made], check=True, capture_output=True, env=environment)
    subprocess.run(["createrepo_c", "--quiet", folder], check=True, capture_output=True)
    if index:
        Signer(key.home).detached(folder / "repodata/repomd.xml", folder / "repodata/repomd.xml.asc")
