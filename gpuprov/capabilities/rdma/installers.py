"""Installers of a cloud's driver: a published version, or an archive at a URL or beside the inventory, with its
checksum; and what the host fetches."""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from gpuprov.catalog.rdma.installers import Published
from gpuprov.spec import named
from gpuprov.spec.problem import Problem, Say


class Asked(Protocol):
    """A block that names an installer."""

    @property
    def installer(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def sha256(self) -> str: ...


def digest(source: Asked, known: Published) -> str:
    """Return the SHA-256 of the requested archive; empty if there is none."""
    published = known.find(source.installer)
    return published.sha256 if published else source.sha256.lower()


def address(source: Asked, known: Published) -> str:
    """Return the URL of the archive; empty for a file beside the inventory, and if there is none."""
    return known.at(source.installer) if known.find(source.installer) else source.url


def unchecked(say: Say, source: Asked, where: str) -> Iterable[Problem]:
    """Yield a problem for an archive without a checksum; `where`: the place where that is published."""
    if (source.url or source.file) and not source.sha256:
        key = "url" if source.url else "file"
        fix = f"sha256sum FILE, compared with {where}"
        yield say("sha256", f"is missing: {key} names a program that is run as root", fix)


def problems(say: Say, source: Asked, known: Published, *, archive: str, by: str, listed: str) -> Iterable[Problem]:
    """Yield the problems of a block's installer. `archive`: the name of the file; `by`: its publisher; `listed`: known
    versions."""
    published = known.find(source.installer)
    if source.installer and published is None:
        fix = f"allowed: {listed}; or url or file with sha256"
        yield say("installer", f'is "{source.installer}", whose checksum gpuprov does not know', fix)
    if published and source.sha256 and source.sha256.lower() != published.sha256:
        message = f"is not the one that {by} publishes of {source.installer}"
        yield say("sha256", message, "leave it out: installer brings its own")
    if source.sha256 and not (source.url or source.file or source.installer):
        yield say("sha256", "is of no file", "name url or file, or leave it out")
    if source.file and (why := named.explain_unusable(source.file, source.sha256)):
        yield say("file", f"{source.file} {why}", f"put {archive} there, or name url")


class Fetch(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of step fetch: `url`, or else `file` beside the inventory."""

    of: str
    url: str
    file: str
    path: str
    sha256: str
    most: int
    fix: str
    public: bool = False
    unreachable: str = "correct the url, the network, or the proxy of the host"
