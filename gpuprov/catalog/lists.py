"""Whole lists of errors that programs have, by name and text."""

import re
from functools import cache
from typing import NamedTuple

import msgspec

from gpuprov.catalog.context import fold
from gpuprov.catalog.kernel import Context
from gpuprov.catalog.reader import Fact, File, load

# Words from which on the text of an error is that of its program only.
_OWN = 5


class Error(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error of a list."""

    name: str
    text: str = ""
    # `means` and `fix`: of this one, where those of the list do not say enough.
    means: str = ""
    fix: str = ""


class Narrowed(NamedTuple):
    """The words of a line's very error, in the place of its list's own."""

    signatures: tuple[str, ...]
    cause: str
    fix: str


class ErrorList(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Errors of one kind that a program (`errors_of`) has. Other programs print short texts, too: these count beside
    one of `words`."""

    key: str
    errors_of: str
    cause: str
    check: str
    fix: str
    errors: tuple[Error, ...]
    # As those of a symptom.
    fallbacks: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()

    @property
    def signatures(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text for error in self.errors for text in (error.name, error.text) if text))

    @property
    def needs(self) -> tuple[Context, ...]:
        short = tuple(error.text for error in self.errors if error.text and len(error.text.split()) < _OWN)
        return (Context(words=self.words, of=short),) if short else ()

    def narrow(self, line: str) -> Narrowed:
        """Return the cause and fix of the error in a line with the longest name or text; the list's own without one."""
        folded = fold(line)
        found = max((text for text, pattern in _compile(self.key) if pattern.search(folded)), key=len, default="")
        for error in self.errors:
            if found and found in (error.name, error.text):
                names = (error.name, error.text) if error.text else (error.name,)
                return Narrowed(
                    names, f"An error of {self.errors_of}. {error.means or self.cause}", error.fix or self.fix
                )
        return Narrowed(self.signatures, self.cause, self.fix)


class ErrorListsFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/lists_errors.yaml"""

    lists: tuple[ErrorList, ...]


@cache
def index_lists() -> dict[str, ErrorList]:
    """Return each list by its key."""
    return {one.key: one for one in load("lists_errors", ErrorListsFile).lists}


@cache
def _compile(key: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    texts = index_lists()[key].signatures
    return tuple((text, re.compile(r"\S*".join(map(re.escape, fold(text).split("*"))))) for text in texts)
