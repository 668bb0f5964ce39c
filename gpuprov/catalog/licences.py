"""Classes of licences: packages that their owner may copy to hosts, and packages for which somebody has to confirm
this."""

from functools import partial

from gpuprov.catalog.reader import Fact, File, load


class Licence(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A class."""

    key: str
    told: str
    # Whether somebody has to confirm that the site may copy it.
    accept: bool = False
    # Of packages, a regular expression.
    names: str = ""


class LicencesFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    classes: tuple[Licence, ...]
    areas: tuple[str, ...]


read_licences_file = partial(load, "licences", LicencesFile)


def format_source(licence: Licence) -> str:
    """Return the location of the licence's text."""
    return read_licences_file().sources[licence.source[0]].url
