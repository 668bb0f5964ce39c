"""What the package managers have in common: a transaction, what it would do, and what each manager can be asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, Sequence

MARKER = "/var/lib/gpuprov/applying.json"
"""There while an apply changes the host, and after one that failed or was cut off."""
LISTS_MAX_AGE = 86400
"""Seconds from which package lists are fetched anew, where nobody says otherwise."""
MARKED = "an apply of gpuprov that failed or was cut off"
"""What a mark that is there when another apply begins says."""


class Refused(Exception):
    """What cannot be done: what, why, and the way out, in one line."""


@dataclass(frozen=True)
class Settings:
    """How the manager is used. lock_timeout: seconds to wait for somebody else's package manager. without: names of gpuprov's own
    package sources that are to leave, and are not seen until then. mirror_timeout: seconds to wait for a mirror that does not answer,
    tried twice (dnf; zypper and apt ask none for what is on offer); 0: as the host is configured."""

    lock_timeout: int = 300
    without: tuple[str, ...] = ()
    mirror_timeout: int = 0


@dataclass(frozen=True)
class Pin:
    """Packages that match one of the patterns (globs) and have a driver's version may come in this one only."""

    version: str
    patterns: tuple[str, ...]


@dataclass(frozen=True)
class Refusal:
    """Packages (regular expressions of whole names) that a transaction may not install, move or remove; why; the way out."""

    patterns: tuple[str, ...]
    why: str
    hint: str


@dataclass(frozen=True)
class Transaction:
    """What is to be installed (`NAME`, `NAME=VERSION`, `NAME:ARCHITECTURE=VERSION`, or a file) and removed at once.

    of: what it is, for messages. stream: a module's stream that is enabled first (dnf). hint: the way out where it cannot be done.
    instead: what does without its packages, where they are of another driver than the host's.
    """

    of: str
    install: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    may_remove: tuple[str, ...] = ()
    pin: Pin | None = None
    stream: str = ""
    hint: str = "correct what it reports"
    refusal: Refusal | None = None
    instead: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.install and not self.remove


@dataclass(frozen=True)
class Trial:
    """What a transaction would do, as `Inst NAME VERSION` and `Remv NAME`; why it cannot be done; whether something half-way is left
    that it would complete."""

    rows: list[str] = field(default_factory=list)
    problem: str = ""
    unfinished: bool = False


@dataclass(frozen=True)
class Done:
    """A transaction that was tried in earnest: what was in the way, and what was complained of though all is in place."""

    problem: str = ""
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Known:
    """What is on the host and on offer.

    rows: [state, name, version, source, architecture, vendor]. index: versions by name, newest first. lock_problem: why what is held
    would move all the same. lock_needs: packages without which nothing can be held.
    """

    rows: list[list[str]]
    installed: dict[str, str]
    index: dict[str, list[str]]
    held: list[str]
    lock_problem: str = ""
    lock_needs: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Prepared:
    """What was done to a package database before anything is judged by it."""

    changed: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class Manager(Protocol):
    """A host's package manager. A method that cannot do what it is asked for raises Refused, unless its answer has a `problem`."""

    name: str

    def prepare(self, max_age: int, check: bool) -> Prepared:
        """Complete what a cut-off apply left, refuse a broken database, fetch lists older than max_age seconds."""

    def fetch(self, source: str) -> None:
        """Fetch the lists of this source of gpuprov's, whatever their age, and no others."""

    def read(self, names: Sequence[str], related: str = "") -> Known:
        """What is installed and held, and what the index has of these names and of installed packages whose source matches."""

    def attempt(self, wanted: Transaction) -> Trial:
        """What it would do; changes nothing."""

    def download(self, wanted: Transaction) -> str:
        """Download its packages and check their signatures; what was in the way."""

    def commit(self, wanted: Transaction) -> Done:
        """Do it."""

    def hold(self, hold: Sequence[str], release: Sequence[str], check: bool) -> list[str]:
        """Hold packages and release others; what changes, as `hold NAME` and `release NAME`."""

    def files(self, packages: Sequence[str]) -> list[str]:
        """The file of each `NAME=VERSION`, downloaded where it is not there."""
