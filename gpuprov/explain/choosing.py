"""A log, read as a stream -> the lines that may hold a message, and those around them. Most lines of a log hold none:
they are read in blocks, and a block without any message's words is skipped."""

import re
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from typing import IO

from gpuprov.catalog.kernel import kernel_file
from gpuprov.catalog.signatures import list_choosing_words
from gpuprov.explain.plain import is_plain, read_plain

# Bytes examined together.
BLOCK = 16 << 10
# Maximum number of characters searched in a line.
LONGEST_LINE = 4000
# Lines before and after one that may hold a message: the message may continue in them, or name a device in them.
AROUND = 40
# Maps each byte to a lower-case part of a word, or to a blank.
_TO_WORDS = bytes(ord(chr(i).lower()) if (chr(i).isalnum() and i < 128) or chr(i) == "_" else 32 for i in range(256))
# Words of the lines that show which PCI addresses are GPUs'.
OF_A_GPU = frozenset({b"nvidia", b"nvrm", b"10de"})


_ALONE: tuple[frozenset[bytes], ...] = (frozenset(),)


@cache
def _words() -> dict[bytes, tuple[frozenset[bytes], ...]]:
    """Return, by word, the words that must occur beside it in a line that may hold a message."""
    word_sets = {
        word.encode(): tuple(frozenset(word.encode() for word in words) for words in sets)
        for word, sets in list_choosing_words().items()
    }
    xids = {f"xid{number}".encode(): _ALONE for number in ("", *range(1000))}
    ending = {word: (*word_sets.get(word, ()), *sets) for word, sets in _list_ending_words().items()}
    return word_sets | ending | xids | {b"sxid": _ALONE}


@cache
def _keys() -> frozenset[bytes]:
    return frozenset(_words())


def _list_ending_words() -> dict[bytes, tuple[frozenset[bytes], ...]]:
    """Return the same for lines that end what earlier ones asked for, a boot's first among them: they hold no
    message."""
    begins = ["linux version", "booting linux on"]
    begins += [begin.lower() for line in kernel_file().lines if line.ends for begin in line.begins]
    sets = [frozenset(word.encode() for word in re.findall("[a-z]+", begin)) for begin in begins]
    return {max(words, key=len): (words,) for words in sets}


def chosen(stream: IO[bytes], note: Callable[[str], None]) -> Iterator[str]:
    """Yield the lines that may hold a message, with those around them; an empty line marks omitted ones. `note` is
    called with each line that names a GPU, whether it is yielded or not. Never more than a block of the log is kept."""
    before: deque[bytes] = deque(maxlen=AROUND)
    rest, gap = 0, False
    for block, words in map(_prepare, _read_blocks(stream)):
        if not rest and OF_A_GPU.isdisjoint(words) and not _can_hold(words):
            gap = True
            before.extend(block[-AROUND * LONGEST_LINE :].splitlines()[-AROUND:])
            continue
        for line in block.splitlines():
            words = set(line.translate(_TO_WORDS).split())
            if not OF_A_GPU.isdisjoint(words):
                note(_text(line))
            if _can_hold(words):
                if gap:
                    yield ""
                yield from map(_text, before)
                before.clear()
                rest, gap = AROUND + 1, False
            if rest:
                rest -= 1
                yield _text(line)
            else:
                gap = gap or len(before) == AROUND
                before.append(line)


def _prepare(block: bytes) -> tuple[bytes, set[bytes]]:
    """Return a block as plain text, and its words."""
    words = set(block.translate(_TO_WORDS).split())
    if is_plain(block, words):
        return block, words
    block = read_plain(block.decode("utf-8", "replace")).encode("utf-8", "replace")
    return block, set(block.translate(_TO_WORDS).split())


def _can_hold(words: set[bytes]) -> bool:
    """True if a message could be in text with these words: in a line of them, or in one of several."""
    beside = _words()
    return any(words.issuperset(others) for word in _keys() & words for others in beside[word])


def _text(line: bytes) -> str:
    return line[: LONGEST_LINE * 4].decode("utf-8", "replace")[:LONGEST_LINE]


def _read_blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the stream in blocks of whole lines; of a line that is longer than a block only the beginning."""
    while block := stream.read(BLOCK):
        if not block.endswith(b"\n"):
            tail = stream.readline(BLOCK)
            block += tail
            while tail and not tail.endswith(b"\n"):
                tail = stream.readline(BLOCK)
        yield block
