"""Errors that a system prints in its user's language -> the same in English, by which messages are known."""

import re
from functools import cache
from typing import NamedTuple

from gpuprov.catalog.reader import Fact, File, load

# In a text: a name, of which a program prints one in its place.
_ANY = "*"
_NAME = r"(\S{1,200}?)"
# The first of the characters that are written without blanks between words.
_IDEOGRAPHS = "\u2e80"
_WORD = re.compile(r"[a-z0-9_]+")


class Text(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text of a program in English, and as it is printed in other languages."""

    english: str
    printed: tuple[str, ...]


class LanguagesFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/languages.yaml"""

    texts: tuple[Text, ...]


class _Phrase(NamedTuple):
    """A printed text: the longest part of it without a name, the whole, and the English for it."""

    part: str
    pattern: re.Pattern[str]
    english: str


@cache
def _list_phrases() -> tuple[_Phrase, ...]:
    """Return all phrases, the longest first: of two that begin alike, the longer says more."""
    pairs = [(printed, text.english) for text in load("languages", LanguagesFile).texts for printed in text.printed]
    return tuple(_build_phrase(*pair) for pair in sorted(pairs, key=lambda pair: -len(pair[0])))


def _build_phrase(printed: str, english: str) -> _Phrase:
    before = r"(?<!\w)" if printed[0] < _IDEOGRAPHS and printed[0].isalnum() else ""
    after = r"(?!\w)" if printed[-1] < _IDEOGRAPHS and printed[-1].isalnum() else ""
    inner = _NAME.join(map(re.escape, printed.split(_ANY)))
    numbers = iter(range(1, 10))
    phrase = re.sub(r"\*", lambda _: f"\\{next(numbers)}", english)
    return _Phrase(max(printed.split(_ANY), key=len), re.compile(f"{before}{inner}{after}"), phrase)


@cache
def list_foreign_words() -> frozenset[str]:
    """Return words in lower case, none of them in the English texts, of which a text has one if it is in another
    language and has no letters but those of English."""
    english = {
        word for text in load("languages", LanguagesFile).texts for word in _WORD.findall(text.english.casefold())
    }
    parts = (
        set(_WORD.findall(phrase.part.casefold())) - english for phrase in _list_phrases() if phrase.part.isascii()
    )
    return frozenset(max(words, key=len) for words in parts if words)


def translate(text: str) -> str:
    """Return a text with the errors in other languages that it has in English."""
    if text.isascii() and list_foreign_words().isdisjoint(_WORD.findall(text.casefold())):
        return text
    for phrase in _list_phrases():
        if phrase.part in text:
            text = phrase.pattern.sub(phrase.english, text)
    return text
