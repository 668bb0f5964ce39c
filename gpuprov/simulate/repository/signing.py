"""The key that signs the packages of simulated hosts: made once, cached, and trusted nowhere else."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuprov.simulate import image, tools

OWNER = "gpuprov simulated hosts"
KEYRING = "gpuprov-sim.gpg"
ARMOURED = "gpuprov-sim.asc"
# The second key, which signs NVIDIA's repository. Its files are named nvidia.gpg and nvidia.asc.
VENDOR = "nvidia"
OWNERS = {"gpuprov-sim": OWNER, VENDOR: "gpuprov simulated hosts: NVIDIA's repository"}


@dataclass(frozen=True)
class Signer:
    """gpg with the key in a home directory of its own."""

    home: Path
    name: str = "gpuprov-sim"

    def gpg(self, *arguments: str, stdin: str | None = None) -> str:
        """Run gpg and return its standard output."""
        return tools.run(["gpg", "--homedir", str(self.home), "--batch", "--yes", "--quiet", *arguments], stdin=stdin)

    def inline(self, file: Path, signed: Path) -> None:
        """Sign a text file inline."""
        self.gpg("--output", str(signed), "--clear-sign", str(file))

    def detached(self, file: Path, signature: Path) -> None:
        """Write a detached signature beside a file."""
        self.gpg("--armor", "--output", str(signature), "--detach-sign", str(file))

    def rpms(self, files: list[Path]) -> None:
        """Sign rpm packages."""
        environment = {**os.environ, "GNUPGHOME": str(self.home)}
        # rpm looks for a gpg2 that not every distribution has.
        macros = {"_gpg_name": OWNERS[self.name], "_gpg_path": str(self.home), "__gpg": shutil.which("gpg") or "gpg"}
        defines = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
        tools.run(["rpmsign", *defines, "--addsign", *map(str, files)], environment=environment)

    def export(self, folder: Path) -> None:
        """Write the public key, in both forms that package managers accept."""
        self.gpg("--output", str(folder / f"{self.name}.gpg"), "--export")
        self.gpg("--armor", "--output", str(folder / f"{self.name}.asc"), "--export")

    def fingerprint(self) -> str:
        """Return the key's fingerprint."""
        rows = [line.split(":") for line in self.gpg("--with-colons", "--list-keys").splitlines()]
        return next(row[9] for row in rows if row[0] == "fpr")


@contextmanager
def signer(name: str = "gpuprov-sim") -> Iterator[Signer]:
    """Yield gpg with the cached key of this name, or with a new one."""
    secret = image.cache_dir() / ("repository-key.asc" if name == "gpuprov-sim" else f"repository-key-{name}.asc")
    with tempfile.TemporaryDirectory(prefix="gpuprov-gpg-") as temporary:
        made = Signer(Path(temporary), name)
        try:
            with image.alone(secret.with_suffix(".lock")):
                if not secret.exists():
                    make = ("--quick-generate-key", OWNERS[name], "rsa3072", "sign", "never")
                    made.gpg("--pinentry-mode", "loopback", "--passphrase", "", *make)
                    partial = secret.with_suffix(".partial")
                    made.gpg("--armor", "--output", str(partial), "--export-secret-keys")
                    partial.chmod(0o600)
                    os.replace(partial, secret)
                else:
                    made.gpg("--import", str(secret))
            yield made
        finally:
            tools.run(["gpgconf", "--homedir", temporary, "--kill", "gpg-agent"])
