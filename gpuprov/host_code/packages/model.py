"""The interface that the package managers share: a transaction, its trial run, and the operations of each manager."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, Sequence

from ..failed import Failed

# Exists while an apply changes the host, and after one that failed or was interrupted.
MARKER = "/var/lib/gpuprov/applying.json"
# Seconds after which package lists are fetched again, by default.
LISTS_MAX_AGE = 86400
# The meaning of a mark that exists when another apply begins.
MARKED = "an apply of gpuprov that failed or was cut off"


class Refused(Failed):
    """An impossible operation: problem, reason and fix, in one line."""


@dataclass(frozen=True)
class Settings:
    """Settings of the package manager.

    lock_timeout: seconds to wait for another process's package manager. without: names of gpuprov's own package sources
    that are to be removed, and are ignored until then. mirror_timeout: seconds to wait for a mirror that does not
    answer, tried twice (dnf; zypper and apt ask none for what is on offer); 0: as the host is configured.
    """

    lock_timeout: int = 300
    without: tuple[str, ...] = ()
    mirror_timeout: int = 0


@dataclass(frozen=True)
class Pin:
    """Packages that match one of the patterns (globs) and have a driver's version may only have this version."""

    version: str
    patterns: tuple[str, ...]


@dataclass(frozen=True)
class Refusal:
    """Packages (regular expressions of whole names) that a transaction may not install, change or remove; the reason;
    the fix."""

    patterns: tuple[str, ...]
    why: str
    fix: str


@dataclass(frozen=True)
class Transaction:
    """Packages to install (`NAME`, `NAME=VERSION`, `NAME:ARCHITECTURE=VERSION`, or a file) and to remove in one
    transaction.

    of: a description, for messages. stream: a module stream that is enabled first (dnf). fix: the fix if it is
    impossible. instead: what works without its packages, if they belong to another driver than the host's.
    """

    of: str
    install: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    may_remove: tuple[str, ...] = ()
    pin: Pin | None = None
    stream: str = ""
    fix: str = "correct what it reports"
    refusal: Refusal | None = None
    instead: str = ""

    @property
    def empty(self) -> bool:
        """True if there is nothing to do."""
        return not self.install and not self.remove

    @property
    def verb(self) -> str:
        """The verb for messages."""
        return "install" if self.install else "do"


@dataclass(frozen=True)
class Trial:
    """The changes a transaction would make, as `Inst NAME VERSION` and `Remv NAME`; the reason why it is impossible;
    whether a half-finished state remains that it would complete."""

    rows: list[str] = field(default_factory=list)
    problem: str = ""
    unfinished: bool = False


@dataclass(frozen=True)
class Done:
    """The result of a real transaction: the problem, and errors reported although everything is installed."""

    problem: str = ""
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Known:
    """Packages on the host and on offer.

    rows: [state, name, version, source, architecture, vendor]. index: versions by name, newest first. lock_problem: the
    reason why held packages would change anyway. lock_needs: packages without which nothing can be held.
    """

    rows: list[list[str]]
    installed: dict[str, str]
    index: dict[str, list[str]]
    held: list[str]
    lock_problem: str = ""
    lock_needs: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Prepared:
    """Changes made to a package database before any decision relies on it."""

    changed: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class Manager(Protocol):
    """A host's package manager. A method that cannot do its work raises Refused, unless its answer has a `problem`."""

    name: str

    def prepare(self, max_age: int, check: bool) -> Prepared:
        """Complete an interrupted apply, refuse a broken database, fetch lists older than max_age seconds."""

    def fetch(self, source: str) -> None:
        """Fetch the lists of this gpuprov source, whatever their age, and no others."""

    def read(self, names: Sequence[str], related: str = "") -> Known:
        """List the packages that are installed and held, and those of these names, or related to installed packages by
        source, in the index."""

    def attempt(self, transaction: Transaction) -> Trial:
        """Return the changes that the transaction would make, without making them."""

    def download(self, transaction: Transaction) -> str:
        """Download its packages and check their signatures; return the problem."""

    def commit(self, transaction: Transaction) -> Done:
        """Execute the transaction."""

    def hold(self, hold: Sequence[str], release: Sequence[str], check: bool) -> list[str]:
        """Hold packages and release others; return the changes, as `hold NAME` and `release NAME`."""

    def files(self, packages: Sequence[str]) -> list[str]:
        """Return the file of each `NAME=VERSION`, downloaded if necessary."""
