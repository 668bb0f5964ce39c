"""The signed index of a bundle's packages, as apt reads it: https://wiki.debian.org/DebianRepository/Format"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuprov.errors import GpuprovError
from gpuprov.offline.resolve import INDEX, sha256

OWNER = "gpuprov bundle"


class Signer:
    """An OpenPGP key for one bundle: made for it, and gone once it is written. The manifest says its fingerprint."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._gpg(
            "--pinentry-mode", "loopback", "--passphrase", "", "--quick-generate-key", OWNER, "rsa3072", "sign", "never"
        )
        rows = [line.split(":") for line in self._gpg("--with-colons", "--list-keys").splitlines()]
        self.fingerprint = next(row[9] for row in rows if row[0] == "fpr")

    def sign(self, text: str) -> str:
        """The text with its signature around it."""
        return self._gpg("--clear-sign", stdin=text)

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


def index(folder: Path, release: str, architecture: str, until: float, now: float, key: Signer) -> None:
    """Sign the index of a flat repository. apt itself refuses it once it has expired."""
    packages = folder / INDEX
    told = {
        "Origin": "gpuprov",
        "Label": OWNER,
        "Suite": release,
        "Architectures": architecture,
        "Date": _date(now),
        "Valid-Until": _date(until),
    }
    lines = [f"{name}: {value}" for name, value in told.items()]
    text = "\n".join([*lines, "SHA256:", f" {sha256(packages)} {packages.stat().st_size} {INDEX}", ""])
    (folder / "InRelease").write_text(key.sign(text), encoding="utf-8")


def _date(at: float) -> str:
    return time.strftime("%a, %d %b %Y %H:%M:%S UTC", time.gmtime(at))
