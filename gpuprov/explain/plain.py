"""A line as a terminal, a web page, a log in JSON or a program in another language prints it -> the message in it."""

import re
from collections.abc import Set as AbstractSet
from functools import cache

from gpuprov.catalog.context import fold
from gpuprov.catalog.languages import list_foreign_words, translate
from gpuprov.catalog.signatures import find_held

# Colours and links of a terminal, also as other programs print them: with the name of the first character, or without
# it.
_ESCAPE = re.compile(
    r"(?:\x1b|\\u001b|\\x1b|\\033|\\e|\^\[|#033)(?:\[[0-9;:?]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\))|\x1b[()][AB0]"
    r"|\[(?:[0-9]|[349][0-7]|39|49|[0-9]{1,2}(?:;[0-9]{1,3}){1,4})m",
    re.IGNORECASE,
)
_CODE = re.compile(r"\\u([0-9a-f]{4})", re.IGNORECASE)
# A new line or a tab within quotes; not the beginning of a name in a Windows path: `Files\nvidia`.
_BREAK = re.compile(r"\\(?:r\\n|n(?!v)|t)")
_ENTITY = re.compile(r"&(quot|lt|gt|amp|apos|nbsp|#([0-9]{1,5})|#x([0-9a-f]{1,4}));", re.IGNORECASE)
_ENTITIES = {"quot": '"', "lt": "<", "gt": ">", "amp": "&", "apos": "'", "nbsp": " "}
# Characters that are not seen, and those that stand for a hyphen, an apostrophe, a colon or a blank.
_MARKS = str.maketrans(
    dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad")
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-")
    | {"\u2018": "'", "\u2019": "'", "\uff1a": ": ", "\u00a0": " "}
)
# A block without any of them, all in ASCII and in English, is plain.
_SIGNS = (b"\x1b", b"\\", b"^[[", b"#033[", b"[0m", b"&quot;", b"&#", b"&lt;", b"&gt;", b"&amp;")
# Characters of a line that a terminal may have broken, at the least; lines of a message that it broke, at most.
_LEAST, _MOST = 50, 12


@cache
def _foreign() -> frozenset[bytes]:
    return frozenset(word.encode() for word in list_foreign_words())


def read_plain(text: str) -> str:
    """Return a text without colours, escapes, entities and unseen characters, and with errors in English."""
    text = _ESCAPE.sub("", text)
    if "\\" in text:
        text = _BREAK.sub(" ", _CODE.sub(lambda match: _decode_character(match[1], 16), text))
    if "&" in text:
        text = _ENTITY.sub(_resolve, text)
    return translate(text.translate(_MARKS))


def is_plain(block: bytes, words: AbstractSet[bytes]) -> bool:
    """True if `read_plain` would change nothing of a block with these words."""
    return block.isascii() and not any(sign in block for sign in _SIGNS) and _foreign().isdisjoint(words)


def _resolve(entity: re.Match[str]) -> str:
    name, number, digits = entity.groups()
    if number or digits:
        return _decode_character(number or digits, 10 if number else 16)
    return _ENTITIES[name.casefold()]


def _decode_character(digits: str, base: int) -> str:
    character = chr(int(digits, base))
    return character if character.isprintable() else " "


def join_broken(text: str) -> tuple[str, ...]:
    """Return the message that a terminal has broken into these lines, as it may have been: broken anywhere, if its
    lines are of one length, and between words; none if the lines are no such message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not 2 <= len(lines) <= _MOST or any(len(line) < _LEAST for line in lines[:-1]):
        return ()
    lengths = {len(line) for line in lines[:-1]}
    anywhere = ("".join(lines),) if len(lengths) == 1 or max(lengths) - min(lengths) < 2 else ()
    return (*anywhere, " ".join(lines))


def choose_joined(candidates: tuple[str, ...]) -> str:
    """Return the one of these lines with the most specific message, "" if there are none."""
    held = ((find_held(fold(line)), line) for line in candidates)
    return min(((entries[0].rank, line) for entries, line in held if entries), default=((), ""))[1]
