"""Package changes that a host's package manager would make, or has made, by the rows of `gpuprov_packages`."""

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

from gpuprov.capabilities.base import Change

HOLDS = {"hold": ("not held", "held"), "release": ("held", "not held")}


def moves(rows: Iterable[str], installed: Mapping[str, str]) -> list[Change]:
    """Return the changes that the rows name, by name of the package: the order in which a package manager lists them
    differs from run to run. A row of prose that names no package is one change of that name. installed: the versions
    before, by name."""
    return sorted(_list_changes(rows, installed), key=attrgetter("kind", "name"))


def _list_changes(rows: Iterable[str], installed: Mapping[str, str]) -> Iterator[Change]:
    for row in rows:
        word, name, *rest = *row.split(), "", ""
        before = installed.get(name.partition(":")[0], "")
        if word in HOLDS:
            yield Change(kind="hold", name=name, before=HOLDS[word][0], after=HOLDS[word][1])
        elif word == "Remv":
            yield Change(kind="package", name=name, before=before, after="removed")
        elif word == "Inst":
            yield Change(kind="package", name=name, before=before, after=rest[0])
        elif word:
            yield Change(kind="package", name=row)
