"""Whole lists of what programs print: their errors by name and text, and their messages, file by file."""

import re
from collections.abc import Iterator
from functools import cache

import msgspec

from gpuprov.catalog.context import fold
from gpuprov.catalog.kernel import Context
from gpuprov.catalog.reader import Fact, File, load

FILES = (
    "lists_errors",
)
_OWN = 5
"""Number of words from which the text of an error is that of its program only."""


class Error(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error of a list. `means` and `fix`: of this one, where those of the list do not say enough."""

    name: str
    text: str = ""
    means: str = ""
    fix: str = ""


class Narrowed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a line's very message says in the place of its list's own words."""

    cause: str
    fix: str
    source: tuple[str, ...]


class Messages(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one part of a program prints.

    `errors`: a list of errors, `errors_of` a program. `own` and `shared`: messages by the source that has them, with *
    for what the program fills in. Other programs print the shared ones and short texts of errors, too: these count
    beside one of `words`. `fallbacks`: as those of a symptom.
    """

    key: str
    errors_of: str = ""
    cause: str
    check: str
    fix: str
    errors: tuple[Error, ...] = ()
    own: dict[str, tuple[str, ...]] = {}
    shared: dict[str, tuple[str, ...]] = {}
    fallbacks: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()

    @property
    def signatures(self) -> tuple[str, ...]:
        errors = (text for error in self.errors for text in (error.name, error.text) if text)
        return tuple(dict.fromkeys((*errors, *(text for _, text in self._list_messages()))))

    @property
    def needs(self) -> tuple[Context, ...]:
        short = (error.text for error in self.errors if error.text and len(error.text.split()) < _OWN)
        of = (*short, *(text for texts in self.shared.values() for text in texts))
        return (Context(words=self.words, of=of),) if of else ()

    def narrow(self, line: str) -> Narrowed:
        """Return what this says of the longest of its messages in a line."""
        folded = fold(line)
        found = max((text for text, pattern in _compile(self.key) if pattern.search(folded)), key=len, default="")
        for error in self.errors:
            if found and found in (error.name, error.text):
                quoted = f'{error.name}, "{error.text}"' if error.text else error.name
                cause = f"Error of {self.errors_of}: {quoted}. {error.means or self.cause}"
                return Narrowed(cause=cause, fix=error.fix or self.fix, source=self.source)
        sources = tuple(source for source, text in self._list_messages() if text == found)
        return Narrowed(cause=self.cause, fix=self.fix, source=sources or self.source)

    def _list_messages(self) -> Iterator[tuple[str, str]]:
        for table in (self.own, self.shared):
            yield from ((source, text) for source, texts in table.items() for text in texts)


class MessagesFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/lists_*.yaml"""

    lists: tuple[Messages, ...]


@cache
def index_lists() -> dict[str, Messages]:
    """Return each list by its key."""
    return {one.key: one for name in FILES for one in load(name, MessagesFile).lists}


@cache
def _compile(key: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    texts = index_lists()[key].signatures
    return tuple((text, re.compile(r"\S*".join(map(re.escape, fold(text).split("*"))))) for text in texts)
