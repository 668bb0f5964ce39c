"""The signed index of a bundle's packages, as apt, dnf and zypper read it."""

from __future__ import annotations

import gzip
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from gpuprov.errors import GpuprovError
from gpuprov.offline.licences import licence
from gpuprov.offline.model import Package
from gpuprov.offline.resolve import INDEX, stanzas
from gpuprov.offline.wanted import Wanted
from gpuprov.onhost.files import digest
from gpuprov.probe.host.family import Family

OWNER = "gpuprov bundle"
MODULES = "modules.yaml"
HINT = "install createrepo-c (Debian, Ubuntu) or createrepo_c (EL, SUSE) where gpuprov runs"
NOT_FREE = re.compile(r"nvidia|propriet|commercial|eula|non-?free|redistribut", re.IGNORECASE)
"""In rpm's field License."""


class Signer:
    """An OpenPGP key for one bundle: made for it, and gone once it is written. The manifest says its fingerprint."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._gpg(
            "--pinentry-mode", "loopback", "--passphrase", "", "--quick-generate-key", OWNER, "rsa3072", "sign", "never"
        )
        rows = [line.split(":") for line in self._gpg("--with-colons", "--list-keys").splitlines()]
        self.fingerprint = next(row[9] for row in rows if row[0] == "fpr")

    def sign(self, text: str, *, apart: bool = False) -> str:
        """The text with its signature around it; or, apart, the signature alone, armoured."""
        return self._gpg(*(("--armor", "--detach-sign") if apart else ("--clear-sign",)), stdin=text)

    def public(self) -> str:
        """The public key, armoured."""
        return self._gpg("--armor", "--export")

    def _gpg(self, *words: str, stdin: str = "") -> str:
        argv = ["gpg", "--homedir", str(self._home), "--batch", "--yes", "--quiet", *words]
        try:
            ran = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise GpuprovError("gpg is not installed, which signs package repositories", "install gnupg") from error
        if ran.returncode:
            raise GpuprovError(f"gpg cannot sign: {' '.join(ran.stderr.split())[-300:]}")
        return ran.stdout


@contextmanager
def signer() -> Iterator[Signer]:
    """A key that nobody keeps."""
    with tempfile.TemporaryDirectory(prefix="gpuprov-gpg-") as home:
        try:
            yield Signer(Path(home))
        finally:
            subprocess.run(["gpgconf", "--homedir", home, "--kill", "gpg-agent"], capture_output=True, check=False)


def index(folder: Path, about: Wanted, until: float, now: float, key: Signer) -> None:
    """Write and sign the index of the folder's packages, as the family's package managers read it."""
    if about.family == "debian":
        _release(folder, about, until, now, key)
    else:
        _metadata(folder, about, now, key)


def _release(folder: Path, about: Wanted, until: float, now: float, key: Signer) -> None:
    """A flat repository: https://wiki.debian.org/DebianRepository/Format. apt itself refuses it once it has expired."""
    packages = folder / INDEX
    packages.touch()
    told = {
        "Origin": "gpuprov",
        "Label": OWNER,
        "Suite": about.release,
        "Architectures": about.architecture,
        "Date": _date(now),
        "Valid-Until": _date(until),
    }
    lines = [f"{name}: {value}" for name, value in told.items()]
    text = "\n".join([*lines, "SHA256:", f" {digest(str(packages))} {packages.stat().st_size} {INDEX}", ""])
    (folder / "InRelease").write_text(key.sign(text), encoding="utf-8")


def _metadata(folder: Path, about: Wanted, now: float, key: Signer) -> None:
    """repodata, by createrepo_c, with a signature beside it: https://github.com/rpm-software-management/createrepo_c"""
    modules = folder / MODULES
    text = _of_stream(modules.read_text(encoding="utf-8"), about.stream) if modules.exists() else ""
    modules.unlink(missing_ok=True)
    _run("createrepo_c", "--quiet", "--no-database", "--simple-md-filenames", f"--revision={int(now)}", str(folder))
    if text:
        modules.write_text(text, encoding="utf-8")
        _run("modifyrepo_c", "--mdtype=modules", "--simple-md-filenames", str(modules), str(folder / "repodata"))
        modules.unlink()
    listed = folder / "repodata/repomd.xml"
    listed.with_name("repomd.xml.asc").write_text(
        key.sign(listed.read_text(encoding="utf-8"), apart=True), encoding="utf-8"
    )
    listed.with_name("repomd.xml.key").write_text(key.public(), encoding="utf-8")


def _of_stream(text: str, stream: str) -> str:
    """The documents of the driver's module: of other modules the bundle has packages at most, and dnf takes them as they are."""
    mine = re.compile(
        rf"\b(name|module): *[\"']?{re.escape(stream.partition(':')[0])}[\"']?[ \t]*([,}}]|$)", re.MULTILINE
    )
    documents = re.split(r"^---[ \t]*$", text, flags=re.MULTILINE)
    return "".join(f"---{one}" for one in documents if mine.search(one))


def packages(folder: Path, family: Family) -> tuple[Package, ...]:
    """The packages of a repository, by its index. Raises GpuprovError where that lacks one: createrepo_c goes on without it."""
    rows = tuple(sorted(_debs(folder) if family == "debian" else _rpms(folder)))
    if lost := {file.name for file in folder.glob("*.rpm")} - {one.file for one in rows}:
        raise GpuprovError(
            f"createrepo_c leaves {min(lost)} out of its index, so that no host would find it",
            "rpm -qpi FILE: a control character in its description, for one; take the package from elsewhere",
        )
    return rows


def _debs(folder: Path) -> Iterator[Package]:
    for one in stanzas((folder / INDEX).read_text(encoding="utf-8")):
        section = one.get("Section", "")
        yield Package(
            name=one["Package"],
            version=one["Version"],
            architecture=one["Architecture"],
            file=one["Filename"].removeprefix("./"),
            section=section,
            sha256=one["SHA256"],
            licence=licence(one["Package"], section).key,
        )


def _rpms(folder: Path) -> Iterator[Package]:
    with gzip.open(folder / "repodata/primary.xml.gz") as file:
        tree = ElementTree.parse(file)
    for one in tree.iterfind("{*}package"):
        name, version = one.findtext("{*}name", ""), one.find("{*}version")
        at, said = one.find("{*}location"), one.findtext("{*}format/{*}license", "")
        if version is None or at is None:
            raise GpuprovError(f"createrepo_c says nothing of the version of {name}")
        epoch = f"{version.get('epoch')}:" if version.get("epoch", "0") != "0" else ""
        # rpm has no sections: what a package says of its licence stands in for the area of Debian's archive.
        section = f"non-free/{said}" if NOT_FREE.search(said) else f"main/{said}"
        yield Package(
            name=name,
            version=f"{epoch}{version.get('ver')}-{version.get('rel')}",
            architecture=one.findtext("{*}arch", ""),
            file=at.get("href", ""),
            section=section,
            sha256=one.findtext("{*}checksum", ""),
            licence=licence(name, section).key,
        )


def _run(*argv: str) -> None:
    try:
        ran = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise GpuprovError(f"{argv[0]} is not installed, which makes repositories of rpm packages", HINT) from error
    if ran.returncode:
        raise GpuprovError(f"{argv[0]}: {' '.join(ran.stderr.split())[-300:]}")


def _date(at: float) -> str:
    return time.strftime("%a, %d %b %Y %H:%M:%S UTC", time.gmtime(at))
