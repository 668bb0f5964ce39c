"""Installers of a cloud's driver: a published version, or an archive at a URL or beside the inventory, with its checksum."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from gpuprov.catalog.rdma.installers import Published
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


def digest(asked: Asked, known: Published) -> str:
    """Return the SHA-256 of the requested archive; empty if there is none."""
    published = known.find(asked.installer)
    return published.sha256 if published else asked.sha256.lower()


def address(asked: Asked, known: Published) -> str:
    """Return the URL of the archive; empty for a file beside the inventory, and if there is none."""
    return known.at(asked.installer) if known.find(asked.installer) else asked.url


def unchecked(say: Say, asked: Asked, where: str) -> Iterable[Problem]:
    """Yield a problem for an archive without a checksum; `where`: the place where that is published."""
    if (asked.url or asked.file) and not asked.sha256:
        key = "url" if asked.url else "file"
        hint = f"sha256sum FILE, compared with {where}"
        yield say("sha256", f"is missing: {key} names a program that is run as root", hint)


def problems(say: Say, asked: Asked, known: Published, *, archive: str, by: str, listed: str) -> Iterable[Problem]:
    """Yield the problems of a block's installer. `archive`: the name of the file; `by`: its publisher; `listed`: known versions."""
    published = known.find(asked.installer)
    if asked.installer and published is None:
        hint = f"allowed: {listed}; or url or file with sha256"
        yield say("installer", f'is "{asked.installer}", whose checksum gpuprov does not know', hint)
    if published and asked.sha256 and asked.sha256.lower() != published.sha256:
        message = f"is not the one that {by} publishes of {asked.installer}"
        yield say("sha256", message, "leave it out: installer brings its own")
    if asked.sha256 and not (asked.url or asked.file or asked.installer):
        yield say("sha256", "is of no file", "name url or file, or leave it out")
    if asked.file and not Path(asked.file).is_file():
        yield say("file", f"{asked.file} is not there", f"put {archive} there, or name url")
