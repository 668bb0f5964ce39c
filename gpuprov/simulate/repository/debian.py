"""Packages of Debian's contrib and non-free, with the real files from there; this machine's own apt is not touched."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import tools
from gpuprov.simulate.sources import KEYRING, Mirrors

COMPONENTS = "contrib non-free non-free-firmware"


@dataclass(frozen=True)
class Package:
    """One version of a package in the index."""

    name: str
    version: str
    # Its stanza, `source` the name of its source package.
    fields: dict[str, str] = field(repr=False, hash=False, compare=False)

    @property
    def source(self) -> str:
        """Return the name of its source package."""
        return self.fields.get("Source", self.name).partition(" ")[0]

    @property
    def file(self) -> str:
        """Return the name of its file."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.fields['Architecture']}.deb"


class Archive:
    """Components of Debian's archive for one suite, with its updates and security updates, through a separate apt
    configuration."""

    def __init__(self, folder: Path, suite: str, mirrors: Mirrors, components: str = COMPONENTS):
        self._folder = folder
        for name in ("state/lists/partial", "cache/archives/partial", "sources"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        sources = "".join(
            f"Types: deb\nURIs: {uri}\nSuites: {name}\nComponents: {components}\nSigned-By: {KEYRING}\n\n"
            for uri, name in (
                (mirrors.debian, f"{suite} {suite}-updates"),
                (mirrors.security, f"{suite}-security"),
            )
        )
        (folder / "sources/debian.sources").write_text(sources, encoding="utf-8")

    def packages(self) -> tuple[Package, ...]:
        """Return every version of every package on offer, fetched now."""
        self._apt("update", "--quiet", "--error-on=any")
        lists = self._apt("indextargets", "--format", "$(FILENAME)", "Created-By: Packages").split()
        unique: dict[tuple[str, str], Package] = {}
        for name in lists:
            for package in parse(Path(name).read_text(encoding="utf-8")):
                unique.setdefault((package.name, package.version), package)
        return tuple(unique.values())

    def download(self, packages: Iterable[Package], target: Path) -> list[Path]:
        """Download the packages' files into the folder `target`, except those already there."""
        packages = list(packages)
        missing = [package for package in packages if not _whole(target / package.file, package)]
        if missing:
            names = [f"{package.name}={package.version}" for package in missing]
            self._apt("download", "--quiet", *names, folder=target)
        return [target / package.file for package in packages]

    def _apt(self, command: str, *arguments: str, folder: Path | None = None) -> str:
        here = self._folder
        options = {
            "Dir::State": here / "state",
            "Dir::State::status": here / "status",
            "Dir::Cache": here / "cache",
            "Dir::Etc::sourcelist": "/dev/null",
            "Dir::Etc::sourceparts": here / "sources",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Acquire::GzipIndexes": "false",
            "Acquire::Retries": "3",
        }
        flags = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        program = ["env", f"--chdir={folder or here}", "LC_ALL=C", "apt-get", command]
        return tools.run([*program, *flags, *arguments])


def parse(text: str) -> list[Package]:
    """Parse the packages of an index."""
    packages = []
    for stanza in text.split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): *(.*)$", stanza, re.MULTILINE))
        if "Package" in fields:
            packages.append(Package(fields["Package"], fields["Version"], fields))
    return packages


def closure(packages: Iterable[Package], names: Iterable[str]) -> list[Package]:
    """Return every version of the named packages, and of whatever else in the index they depend on.

    Raises GpuprovError for a name that the index does not have.
    """
    by_name: dict[str, list[Package]] = {}
    providers: dict[str, list[str]] = {}
    for package in packages:
        by_name.setdefault(package.name, []).append(package)
        for virtual in _names(package.fields.get("Provides", "")):
            providers.setdefault(virtual[0], []).append(package.name)
    queue = list(dict.fromkeys(names))
    for name in queue:  # it grows on the way
        if name not in by_name:
            raise GpuprovError(f"Debian's {COMPONENTS} have no package {name}", fix="is the mirror complete?")
        for package in by_name[name]:
            for field_name in ("Pre-Depends", "Depends"):
                for group in _names(package.fields.get(field_name, "")):
                    known = [n for n in group if n in by_name] or sorted(
                        {p for n in group for p in providers.get(n, [])}
                    )
                    if known and not set(known) & set(queue):
                        queue.append(known[0])
    return [package for name in queue for package in by_name[name]]


def _names(relation: str) -> list[list[str]]:
    groups = (group.split("|") for group in relation.split(",") if group.strip())
    return [[re.split(r"[\s(:\[]", name.strip(), maxsplit=1)[0] for name in group] for group in groups]


def _whole(file: Path, package: Package) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == package.fields["SHA256"]
