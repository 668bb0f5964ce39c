"""Technical terms and their meanings."""

from __future__ import annotations

from gpuprov.catalog.reader import Fact, File, load


class Term(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A term as it is written; `also`: other spellings; `see`: a command that shows it, or the block or field that is about it."""

    key: str
    also: tuple[str, ...]
    means: str
    see: str


class TermsFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/terms.yaml"""

    terms: tuple[Term, ...]


def find_term(word: str) -> Term | None:
    """Return the term with this name, in any case."""
    wanted = word.casefold()
    return next((one for one in read_terms_file().terms if wanted in map(str.casefold, (one.key, *one.also))), None)


def read_terms_file() -> TermsFile:
    return load("terms", TermsFile)
