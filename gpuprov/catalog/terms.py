"""Technical terms and their meanings."""

from functools import partial

from gpuprov.catalog.reader import Fact, File, load


class Term(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A term as it is written."""

    key: str
    # Other spellings.
    also: tuple[str, ...]
    means: str
    # A command that shows it, or the block or field that is about it.
    see: str


class TermsFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/terms.yaml"""

    terms: tuple[Term, ...]


def find_term(word: str) -> Term | None:
    """Return the term with this name, in any case."""
    folded = word.casefold()
    return next((term for term in read_terms_file().terms if folded in map(str.casefold, (term.key, *term.also))), None)


read_terms_file = partial(load, "terms", TermsFile)
