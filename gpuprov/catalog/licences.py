"""Classes of licences: which packages may be copied to hosts by whoever has them, and which only by somebody's word."""

from __future__ import annotations

from gpuprov.catalog.reader import Fact, File, load


class Licence(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A class. `accept`: whether somebody has to say that the site may copy it. `names`: of packages, a regular expression."""

    key: str
    told: str
    accept: bool = False
    names: str = ""


class LicencesFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    classes: tuple[Licence, ...]
    areas: tuple[str, ...]


def licences_file() -> LicencesFile:
    return load("licences", LicencesFile)


def source(one: Licence) -> str:
    """Return the location of the licence's text."""
    return licences_file().sources[one.source[0]].url
