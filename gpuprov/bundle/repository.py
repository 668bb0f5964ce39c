"""The signed index of a bundle's packages, for apt, dnf and zypper."""

import gzip
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from gpuprov.bundle.licences import classify
from gpuprov.bundle.model import Package
from gpuprov.bundle.needs import HostNeeds
from gpuprov.bundle.resolve import INDEX, read_stanzas
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.probes.host.family import Family
from gpuprov.host_code.files import compute_digest

OWNER = "gpuprov bundle"
MODULES = "modules.yaml"
FIX = "install createrepo-c (Debian, Ubuntu) or createrepo_c (EL, SUSE) where gpuprov runs"
# Matches rpm's field License.
NOT_FREE = re.compile(r"nvidia|propriet|commercial|eula|non-?free|redistribut", re.IGNORECASE)


class Signer:
    """An OpenPGP key for one bundle: made for it, and deleted once it is written. The manifest has its fingerprint."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._gpg(
            "--pinentry-mode", "loopback", "--passphrase", "", "--quick-generate-key", OWNER, "rsa3072", "sign", "never"
        )
        rows = [line.split(":") for line in self._gpg("--with-colons", "--list-keys").splitlines()]
        self.fingerprint = next(row[9] for row in rows if row[0] == "fpr")

    def sign(self, text: str, *, apart: bool = False) -> str:
        """Return the text with its signature around it; or, apart, the signature alone, armoured."""
        return self._gpg(*(("--armor", "--detach-sign") if apart else ("--clear-sign",)), stdin=text)

    def public(self) -> str:
        """Export the public key, armoured."""
        return self._gpg("--armor", "--export")

    def _gpg(self, *words: str, stdin: str = "") -> str:
        argv = ["gpg", "--homedir", str(self._home), "--batch", "--yes", "--quiet", *words]
        try:
            ran = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise GpuprovError("gpg, which signs package repositories, is not installed", "install gnupg") from error
        if ran.returncode:
            raise GpuprovError(f"gpg cannot sign: {' '.join(ran.stderr.split())[-300:]}")
        return ran.stdout


@contextmanager
def make_signer() -> Iterator[Signer]:
    """Make a key that nobody keeps."""
    with tempfile.TemporaryDirectory(prefix="gpuprov-gpg-") as home:
        try:
            yield Signer(Path(home))
        finally:
            subprocess.run(["gpgconf", "--homedir", home, "--kill", "gpg-agent"], capture_output=True, check=False)


def write_index(folder: Path, about: HostNeeds, until: float, now: float, key: Signer) -> None:
    """Write and sign the index of the folder's packages, as the family's package managers read it."""
    if about.family == "debian":
        _write_release(folder, about, until, now, key)
    else:
        _write_metadata(folder, about, now, key)


def _write_release(folder: Path, about: HostNeeds, until: float, now: float, key: Signer) -> None:
    """Write a flat repository."""
    # https://wiki.debian.org/DebianRepository/Format. apt itself refuses it once it has expired.
    packages = folder / INDEX
    packages.touch()
    fields = {
        "Origin": "gpuprov",
        "Label": OWNER,
        "Suite": about.release,
        "Architectures": about.architecture,
        "Date": _format_date(now),
        "Valid-Until": _format_date(until),
    }
    lines = [f"{name}: {value}" for name, value in fields.items()]
    text = "\n".join([*lines, "SHA256:", f" {compute_digest(str(packages))} {packages.stat().st_size} {INDEX}", ""])
    (folder / "InRelease").write_text(key.sign(text), encoding="utf-8")


def _write_metadata(folder: Path, about: HostNeeds, now: float, key: Signer) -> None:
    """Write repodata, by createrepo_c, with a signature beside it."""
    # https://github.com/rpm-software-management/createrepo_c
    modules = folder / MODULES
    text = _select_stream(modules.read_text(encoding="utf-8"), about.stream) if modules.exists() else ""
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


def _select_stream(text: str, stream: str) -> str:
    """Select the documents of the driver's module: of others the bundle has packages at most, which dnf takes as they
    are."""
    module = re.compile(
        rf"\b(name|module): *[\"']?{re.escape(stream.partition(':')[0])}[\"']?[ \t]*([,}}]|$)", re.MULTILINE
    )
    documents = re.split(r"^---[ \t]*$", text, flags=re.MULTILINE)
    return "".join(f"---{document}" for document in documents if module.search(document))


def list_packages(folder: Path, family: Family) -> tuple[Package, ...]:
    """List the packages of a repository, by its index. Raises GpuprovError if the index lacks one: createrepo_c goes on
    without it."""
    rows = tuple(sorted(_read_debs(folder) if family == "debian" else _read_rpms(folder)))
    if lost := {file.name for file in folder.glob("*.rpm")} - {row.file for row in rows}:
        raise GpuprovError(
            f"createrepo_c leaves {min(lost)} out of its index, so that no host would find it",
            "rpm -qpi FILE: a control character in its description, for one; take the package from elsewhere",
        )
    return rows


def _read_debs(folder: Path) -> Iterator[Package]:
    for stanza in read_stanzas((folder / INDEX).read_text(encoding="utf-8")):
        section = stanza.get("Section", "")
        yield Package(
            name=stanza["Package"],
            version=stanza["Version"],
            architecture=stanza["Architecture"],
            file=stanza["Filename"].removeprefix("./"),
            section=section,
            sha256=stanza["SHA256"],
            licence=classify(stanza["Package"], section).key,
        )


def _read_rpms(folder: Path) -> Iterator[Package]:
    with gzip.open(folder / "repodata/primary.xml.gz") as file:
        tree = ElementTree.parse(file)
    for element in tree.iterfind("{*}package"):
        name, version = element.findtext("{*}name", ""), element.find("{*}version")
        at, licence_text = element.find("{*}location"), element.findtext("{*}format/{*}license", "")
        if version is None or at is None:
            raise GpuprovError(f"createrepo_c does not give the version of {name}")
        epoch = f"{version.get('epoch')}:" if version.get("epoch", "0") != "0" else ""
        # rpm has no sections: a package's licence field stands in for the area of Debian's archive.
        section = f"non-free/{licence_text}" if NOT_FREE.search(licence_text) else f"main/{licence_text}"
        yield Package(
            name=name,
            version=f"{epoch}{version.get('ver')}-{version.get('rel')}",
            architecture=element.findtext("{*}arch", ""),
            file=at.get("href", ""),
            section=section,
            sha256=element.findtext("{*}checksum", ""),
            licence=classify(name, section).key,
        )


def _run(*argv: str) -> None:
    try:
        ran = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise GpuprovError(f"{argv[0]} is not installed; it makes repositories of rpm packages", FIX) from error
    if ran.returncode:
        raise GpuprovError(f"{argv[0]}: {' '.join(ran.stderr.split())[-300:]}")


def _format_date(at: float) -> str:
    return time.strftime("%a, %d %b %Y %H:%M:%S UTC", time.gmtime(at))
