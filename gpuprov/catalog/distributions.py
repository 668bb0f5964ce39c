"""Distributions that gpuprov knows, by their key in the catalogue, which is also the key of the roles' tables, and
Ansible's names of them."""

from collections.abc import Iterable
from typing import Literal

from gpuprov.catalog.reader import Fact, File, load
from gpuprov.core.errors import GpuprovError

Family = Literal["debian", "redhat", "suse"]
Support = Literal["whole", "read", "none"]
Signed = Literal["packages", "index", "both"]
FAMILIES: dict[str, Family] = {"apt": "debian", "dnf": "redhat", "zypper": "suse"}


class CudaRepository(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NVIDIA's repository for a distribution."""

    # Its name, if it differs from the distribution's key.
    folder: str = ""
    architectures: tuple[str, ...]
    signed_by: str
    signed: Signed


class Distribution(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A distribution."""

    key: str
    name: str
    # `id`, `version_id`: as in /etc/os-release.
    id: str
    # Other IDs with the same packages.
    likes: tuple[str, ...] = ()
    version_id: str = ""
    codename: str = ""
    manager: Literal["apt", "dnf", "zypper"]
    # Names by which lists of packages include it with others.
    groups: tuple[str, ...] = ()
    # whole: gpuprov installs its driver; read: it knows the packages, reads hosts and changes nothing there; none: the
    # packages are not known.
    support: Support = "whole"
    # The source of DKMS and the compiler.
    builds_from: str
    # The fix if its own archive has no driver.
    no_driver: str = ""
    cuda: CudaRepository | None = None
    # Tables that lack it because nobody offers what they list, and the source or reason.
    without: dict[str, str] = {}

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def family(self) -> Family:
        """The family of its package manager."""
        return FAMILIES[self.manager]

    @property
    def modular(self) -> bool:
        """True if NVIDIA's repository for it has module streams."""
        return "modular" in self.groups


class DistributionsFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/distributions.yaml"""

    distributions: tuple[Distribution, ...]


def list_distributions() -> tuple[Distribution, ...]:
    """The distributions the catalogue has package names for."""
    return load("distributions", DistributionsFile).distributions


def list_managed() -> tuple[Distribution, ...]:
    """The distributions whose driver gpuprov installs."""
    return tuple(entry for entry in list_distributions() if entry.support == "whole")


def list_supported_names() -> tuple[str, ...]:  # `debian 12` and its like, for messages
    return tuple(f"{entry.id} {entry.version_id}" for entry in list_managed())


def find_distribution(os_id: str, version_id: str) -> Distribution | None:
    """The distribution with this ID and VERSION_ID of /etc/os-release; a minor release counts as its major's."""
    for entry in list_distributions():
        same = version_id == entry.version_id or version_id.startswith(f"{entry.version_id}.")
        if os_id.casefold() in (entry.id, *entry.likes) and (same or not entry.version_id):
            return entry
    return None


def expand_groups(names: Iterable[str], where: str) -> tuple[str, ...]:
    """The keys of the distributions that a list names by key or by group; `where` names the list in errors."""
    rows, requested = list_distributions(), frozenset(names)
    known = {name for row in rows for name in (row.key, *row.groups)}
    if wrong := sorted(requested - known):
        raise GpuprovError(
            f'{where} names "{wrong[0]}"; allowed: {", ".join(sorted(known))}',
            "name a key or a group of gpuprov/catalog/data/distributions.yaml",
        )
    return tuple(row.key for row in rows if requested.intersection((row.key, *row.groups)))
