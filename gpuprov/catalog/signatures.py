"""Symptoms in a line: matched by the required words of their signatures, and by the required text beside them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

import msgspec

from gpuprov.catalog.codes import find_codes, list_code_words
from gpuprov.catalog.context import XID, compile_any, fold, is_whole_line, strip_host
from gpuprov.catalog.lists import index_lists
from gpuprov.catalog.nics import NicLine, find_nic_line, find_speakers, read_nics_file
from gpuprov.catalog.symptoms import Symptom, list_symptoms

# Text after a message that is the name of a row of nvidia-smi -q, meaning that the named error is absent, or only
# counted.
DENIED = re.compile(r"\w*\s*:\s*(not active|inactive|no|none|n/a|not supported|disabled|0|\d+ us)\s*\Z")
# In a signature: any text without a blank; at its end, may be empty.
ANY = "*"
WORD = re.compile(r"[a-z0-9_]+")
# The end of a signature that is followed by a number.
_OPEN = "0x"
# Words in lines of every program: if possible, a signature is looked up by another of its words.
_COMMON = frozenset(
    "address allocate another available cannot command connection container could couldn connect device devices "
    "disabled driver "
    "enabled error exited failed found initialize initialization installed invalid kernel loaded loading memory "
    "module nvidia "
    "operation package permission possible process provider register running server service status support "
    "supported system this timeout unable unknown version without".split()
)


class Signature(NamedTuple):
    """A signature, folded."""

    text: str
    words: frozenset[str]
    # Those of its words that must be whole words of a line, too.
    entire: frozenset[str]
    # The word by which it is looked up.
    word: str
    # Whether it names only the part of a program that printed the line.
    fallback: bool = False
    # Whether it is an error of CUDA's, in a line of any program.
    coded: bool = False


@cache
def list_signatures(symptom: Symptom) -> tuple[Signature, ...]:
    messages = (parse_signature(fold(text)) for text in symptom.signatures)
    return (*messages, *(parse_signature(fold(text), fallback=True) for text in symptom.fallbacks))


@cache
def parse_signature(text: str, *, fallback: bool = False) -> Signature:
    words = frozenset(WORD.findall(text))
    entire = frozenset(match[0] for match in re.finditer(rf"(?<![*\w]){WORD.pattern}(?![*\w])", text)) - {_OPEN}
    word = min(entire, key=lambda candidate: (candidate in _COMMON, -len(candidate), candidate))
    return Signature(text, words, entire, word, fallback)


@cache
def build_pattern(text: str) -> re.Pattern[str]:
    """Return a pattern for a signature, with a group for what each * stands for. Its words must begin and end where
    those of the line do, except beside a *; a setting with the name of a single-word signature does not match."""
    inner = r"(\S*)".join(map(re.escape, text.split(ANY)))
    before = r"(?<!\w)" if re.match(r"\w", text) else ""
    after = (
        (r"(?![\w=])" if len(WORD.findall(text)) < 2 else r"(?!\w)")
        if re.search(r"\w\Z", text) and not text.endswith(_OPEN)
        else ""
    )
    return re.compile(before + inner + after)


@cache
def index_by_word() -> dict[str, tuple[tuple[Signature, tuple[Symptom, ...]], ...]]:
    """Return, by lookup word, each signature with its symptoms, in their order."""
    holders: dict[Signature, list[Symptom]] = {}
    for symptom in list_symptoms():
        for signature in list_signatures(symptom):
            holders.setdefault(signature, []).append(symptom)
    index: dict[str, list[tuple[Signature, tuple[Symptom, ...]]]] = {}
    for signature, those in holders.items():
        index.setdefault(signature.word, []).append((signature, tuple(those)))
    return {word: tuple(pairs) for word, pairs in index.items()}


@cache
def list_choosing_words() -> dict[str, tuple[frozenset[str], ...]]:
    """Return the word sets for choosing lines: a folded line with any signature has one of these words, and all of one
    of its sets."""
    sets = {word: {signature.entire for signature, _ in pairs} for word, pairs in index_by_word().items()}
    for words in list_code_words():
        sets.setdefault(max(words, key=len), set()).add(frozenset(words))
    return {word: tuple(those) for word, those in sets.items()}


@cache
def index_by_code() -> dict[int, tuple[Symptom, ...]]:
    """Return, by number of a CUDA error, the symptoms that have it."""
    holders: dict[int, tuple[Symptom, ...]] = {}
    for symptom in list_symptoms():
        for code in symptom.codes:
            holders[code] = (*holders.get(code, ()), symptom)
    return holders


# Number of messages above which a symptom is of a whole kind of them.
MANY = 20
Rank = tuple[bool, bool, bool, bool, int]


class Held(NamedTuple):
    """A symptom in a line, by the most specific of its signatures in it."""

    signature: Signature
    symptom: Symptom

    @property
    def rank(self) -> Rank:
        """Rank of an answer, the most specific first: what a person wrote before a list of all that a program prints, a
        message before the name of a part of a program, and before a single word, a symptom of few messages before one
        of a whole kind, long messages before short ones."""
        signature = self.signature
        of_a_kind = signature.coded or len(self.symptom.signatures) > MANY
        short = signature.coded or len(signature.words) < 2
        return is_listed(self.symptom), signature.fallback, short, of_a_kind, -len(signature.text)

    @property
    def is_harmless(self) -> bool:
        """True if hosts that are well print this message, too."""
        return self.signature.text in fold_harmless(self.symptom)


def is_listed(symptom: Symptom) -> bool:
    """True if a symptom is a list of all that a program prints, not a cause that a person wrote down."""
    return symptom.key in index_lists()


@cache
def fold_harmless(symptom: Symptom) -> frozenset[str]:
    return frozenset(map(fold, symptom.harmless))


def find_held(line: str) -> list[Held]:
    """Return the symptoms with a message in a folded line, the most specific first. If one message is a part of
    another, the longer counts; the name of a part of a program only counts in a line without any message that a person
    wrote down."""
    matches = [*_match_signatures(line), *_match_codes(line)]
    if any(not match.signature.fallback and not match.is_listed for match in matches):
        matches = [match for match in matches if not match.signature.fallback]
    telling = [
        Held(match.signature, symptom)
        for match in matches
        if not any(other.covers(match) for other in matches)
        for symptom in match.symptoms
    ]
    first_of: dict[str, Held] = {}
    for held in sorted(telling, key=lambda held: held.rank):
        first_of.setdefault(held.symptom.key, held)
    return list(first_of.values())


class _Match(NamedTuple):
    """A signature at a place of a line, and the symptoms that the line fits."""

    signature: Signature
    start: int
    end: int
    symptoms: list[Symptom]
    # The places that a * stands for.
    open: tuple[tuple[int, int], ...] = ()

    def covers(self, other: _Match) -> bool:
        """True if another message is a part of this one, or leaves open what this one names."""
        if self.signature.text == other.signature.text or self._leaves_open(other):
            return False
        if self.is_listed and not other.is_listed:
            return False
        longer = self.end - self.start > other.end - other.start
        around = self.start <= other.start and other.end <= self.end and longer
        return other.signature.text in self.signature.text or around or other._leaves_open(self)

    @property
    def is_listed(self) -> bool:
        return all(map(is_listed, self.symptoms))

    def _leaves_open(self, other: _Match) -> bool:
        """True if another message has words of its own for all that this one leaves open."""
        return (
            bool(self.open) and not other.open and all(other.start <= at and end <= other.end for at, end in self.open)
        )


def _match_signatures(line: str) -> Iterator[_Match]:
    known, words = index_by_word(), dict.fromkeys(WORD.findall(line))
    for word in words:
        for signature, those in known.get(word, ()):
            if not signature.entire <= words.keys():
                continue
            matches = build_pattern(signature.text).finditer(line)
            match = next((match for match in matches if not DENIED.match(line, match.end())), None)
            fitting = [symptom for symptom in those if is_fitting(symptom, signature.text, line)] if match else []
            if match and fitting:
                spans = (match.span(group + 1) for group in range(len(match.groups())))
                yield _Match(signature, *match.span(), fitting, tuple(span for span in spans if span[0] < span[1]))


def _match_codes(line: str) -> Iterator[_Match]:
    for code, text, (start, end) in find_codes(line):
        if those := [symptom for symptom in index_by_code().get(code, ()) if not is_excluded(symptom, line)]:
            yield _Match(parse_signature(text)._replace(coded=True), start, end, those)


@cache
def index_nic_lines() -> dict[str, NicLine]:
    """Return the lines whose symptoms are made of them, by key."""
    return {line.key: line for line in read_nics_file().lines if line.cause or line.verdict == "recovered"}


def is_possible_for(symptom: Symptom, line: str) -> bool:
    """False if a line is from a driver that cannot have this symptom: the words of one driver mean nothing in another's
    line."""
    entry = index_nic_lines().get(symptom.key)
    drivers = None if entry is None else find_speakers(line)
    return drivers is None or find_nic_line(drivers, line) is entry


@cache
def compile_words(symptom: Symptom) -> tuple[dict[str, re.Pattern[str]], re.Pattern[str] | None]:
    """Return, for a symptom, the required words of its folded signatures, and a pattern for lines that are not of the
    symptom."""
    narrow_last = sorted(symptom.needs, key=lambda need: bool(need.of))
    needs = {fold(text): compile_any(need.words) for need in narrow_last for text in need.of or symptom.signatures}
    return needs, compile_any(symptom.unless) if symptom.unless else None


def is_fitting(symptom: Symptom, signature: str, line: str) -> bool:
    """True if a folded line with a signature has the text that this symptom requires beside it."""
    if not is_possible_for(symptom, line):
        return False
    line = strip_host(line)
    if symptom.xids and XID.match(signature):
        return is_whole_line(signature, line)
    if is_excluded(symptom, line):
        return False
    needs, _ = compile_words(symptom)
    drivers = compile_driver_names(symptom.key)
    if drivers is not None and len(signature.split()) > 3 and line.startswith(signature):
        return True
    needed = needs.get(signature) or drivers
    return needed is None or needed.search(line) is not None or is_whole_line(signature, line)


def is_excluded(symptom: Symptom, line: str) -> bool:
    """True if a folded line has words that lines of this symptom do not have."""
    _, unless = compile_words(symptom)
    return unless is not None and unless.search(strip_host(line)) is not None


@cache
def compile_driver_names(key: str) -> re.Pattern[str] | None:
    """Return the names of the network drivers whose lines a symptom is about; None if it is about something else."""
    entry = index_nic_lines().get(key)
    also = ("mlx5", "infiniband", "port module event", "health issue observed")
    return compile_any((*entry.drivers, *also)) if entry else None


class Beside(msgspec.Struct, frozen=True):
    """A symptom that appears beside another, and the line or message that shows it."""

    symptom: Symptom
    line: str


def find_decisive(symptom: Symptom, seen: Iterable[Beside]) -> Beside | None:
    """Return the symptom beside another that decides its cause: the first that the symptom itself names."""
    known = {sighting.symptom.key: sighting for sighting in seen}
    return next((known[key] for key in symptom.decided_by if key in known), None)
