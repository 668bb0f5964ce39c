"""Symptoms that users see: the meaning, where to look, and the fix."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import msgspec

from gpuprov.catalog.context import XID, any_of, bounded, fold, is_whole_line, named_xid, without_host
from gpuprov.catalog.nics import NicLine, find_nic_line, nics_file, speakers
from gpuprov.catalog.rdma.gpudirect import Message, gpudirect_file
from gpuprov.catalog.reader import Fact, File, load
from gpuprov.catalog.xids import Xid, asks, resolution, xids_file
from gpuprov.reading import is_whole, whole


class Cause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cause with the read-only command that shows it, and what to do."""

    cause: str
    check: str
    cure: str


class Context(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Words of which a line has to hold one beside these signatures, all of the symptom where none is named."""

    words: tuple[str, ...]
    of: tuple[str, ...] = ()


class Symptom(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`signatures`: text as printed. `xids`: kernel error numbers. `check`: a read-only command that shows it, or "".

    `cause`, `check` and `cure` are of the likeliest cause; `others` follow in the order of likelihood. `action`: of an Xid,
    what NVIDIA says is to be done. `decided_by`: keys of symptoms that say, where they are seen beside it, which cause it has.

    `needs`: what the lines hold beside signatures that programs of other matters print too, unless the signature is the whole line.
    `unless`: words of lines that are not this symptom."""

    key: str
    signatures: tuple[str, ...]
    needs: tuple[Context, ...] = ()
    unless: tuple[str, ...] = ()
    xids: tuple[int, ...] = ()
    cause: str
    check: str = ""
    cure: str
    action: str = ""
    others: tuple[Cause, ...] = ()
    decided_by: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class SymptomsFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/symptoms.yaml"""

    symptoms: tuple[Symptom, ...]


FILES = ("symptoms_programs", "symptoms_services", "symptoms")


def addresses(symptom: Symptom) -> tuple[str, ...]:
    """Return the address of each of its sources, or its description if it has no address."""
    return tuple(_sources()[key] for key in symptom.source)


@cache
def _sources() -> dict[str, str]:
    files = (xids_file(), gpudirect_file(), nics_file())
    tables = (*(load(name, SymptomsFile).sources for name in FILES), *(file.sources for file in files))
    return {key: source.url or source.description for table in tables for key, source in table.items()}


@cache
def symptoms() -> tuple[Symptom, ...]:
    """All symptoms: messages first, then Xids by subject, then what the kernel says of peer memory modules and network adapters."""
    known = gpudirect_file()
    spoken = (_of_message(message) for message in (*known.messages, known.bad_context))
    files = (load(name, SymptomsFile).symptoms for name in FILES)
    nics = (_of_nic_line(line) for line in nics_file().lines if line.verdict != "recovered")
    return (*(symptom for file in files for symptom in file), *map(_of_xid, xids_file().xids), *spoken, *nics)


def _of_xid(xid: Xid) -> Symptom:
    known = resolution(xid.nvidia)
    return Symptom(
        key=xid.key,
        signatures=xid.signatures,
        xids=xid.xids,
        cause=xid.cause,
        check=xid.check,
        cure=xid.cure,
        action=f"{known.key}: {known.words}" if known else "",
        notes=xid.notes,
        source=xid.source,
        confidence=xid.confidence,
    )


def of_line(symptom: Symptom, number: int, line: str) -> Symptom:
    """A symptom with what this very line asks for, where it says so itself."""
    known = resolution(asks(number, line))
    if known is None:
        return symptom
    return msgspec.structs.replace(symptom, cure=known.words, action=f"{known.key}: {known.words}")


def _of_message(message: Message) -> Symptom:
    return Symptom(
        key=f"peermem-{message.key}",
        signatures=message.signatures,
        cause=message.cause,
        check=message.check,
        cure=message.way,
        source=message.source,
        confidence=message.confidence,
    )


def _of_nic_line(line: NicLine) -> Symptom:
    return Symptom(
        key=line.key,
        signatures=line.signatures,
        cause=line.cause,
        check=line.check,
        cure=line.cure,
        notes=(f"As the kernel prints it: {line.example}",),
        source=line.source,
        confidence=line.confidence,
    )


class _Signature(NamedTuple):
    """A signature, to be compared."""

    text: str
    words: frozenset[str]
    several: bool


@cache
def _signatures(symptom: Symptom) -> tuple[_Signature, ...]:
    texts = ((text, _words(text)) for text in map(fold, symptom.signatures))
    return tuple(_Signature(text, frozenset(words), len(words) > 1) for text, words in texts)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9_]+", text)


DENIED = re.compile(r"\w*\s*:\s*(not active|inactive|no|none|n/a|not supported|disabled|0( us)?)\s*\Z")
"""What follows a message that is the name of a row of nvidia-smi -q, where what it names is not there."""


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    """Return the pattern that finds each signature, by the folded signature. A signature of a single word matches a whole word that
    is not a setting's name; one that ends in a number matches the whole number."""
    known = {signature.text: signature.several for symptom in symptoms() for signature in _signatures(symptom)}
    return {
        text: re.compile(bounded(text) if several else rf"(?<!\w){re.escape(text)}(?![\w=])")
        for text, several in known.items()
    }


def signatures_in(line: str, among: Iterable[str] | None = None) -> list[str]:
    """The signatures that a folded line holds, of all or of these. Of those that are a part of each other the longest counts."""
    known = _patterns()
    held = [
        text
        for text in (known if among is None else among)
        if text in line
        and any(not DENIED.match(line, match.end()) for match in known[text].finditer(line))
        and symptoms_of(text, line)
    ]
    return [text for text in held if not any(text != other and text in other for other in held)]


@cache
def _nic_lines() -> dict[str, NicLine]:
    return {line.key: line for line in nics_file().lines}


def may_say(symptom: Symptom, line: str) -> bool:
    """False if a line is of a driver for whose lines this symptom is not: the words of one mean nothing from another."""
    entry = _nic_lines().get(symptom.key)
    drivers = None if entry is None else speakers(line)
    return drivers is None or find_nic_line(drivers, line) is entry


@cache
def _words_of(symptom: Symptom) -> tuple[dict[str, re.Pattern[str]], re.Pattern[str] | None]:
    """Return a symptom's patterns: the words that its folded signatures need, and those of lines that it excludes."""
    needs = {fold(text): any_of(need.words) for need in symptom.needs for text in need.of or symptom.signatures}
    return needs, any_of(symptom.unless) if symptom.unless else None


def _fits(symptom: Symptom, signature: str, line: str) -> bool:
    """True if a folded line that holds a signature has what this symptom asks for beside it."""
    if not may_say(symptom, line):
        return False
    line = without_host(line)
    if symptom.xids and XID.match(signature):
        return is_whole_line(signature, line)
    needs, unless = _words_of(symptom)
    if unless is not None and unless.search(line):
        return False
    drivers = _of_drivers(symptom.key)
    if drivers is not None and len(signature.split()) > 3 and line.startswith(signature):
        return True
    needed = needs.get(signature) or drivers
    return needed is None or needed.search(line) is not None or is_whole_line(signature, line)


@cache
def _of_drivers(key: str) -> re.Pattern[str] | None:
    """The names of the network drivers whose lines a symptom is of; None for one of another matter."""
    entry = _nic_lines().get(key)
    also = ("mlx5", "infiniband", "port module event", "health issue observed")
    return any_of((*entry.drivers, *also)) if entry else None


@cache
def _holders() -> dict[str, list[Symptom]]:
    """Return the symptoms that have each signature, by the folded signature."""
    holders: dict[str, list[Symptom]] = {}
    for symptom in symptoms():
        for signature in _signatures(symptom):
            holders.setdefault(signature.text, []).append(symptom)
    return holders


def symptoms_of(signature: str, line: str) -> list[Symptom]:
    """The symptoms of a folded signature that a line may show."""
    return [symptom for symptom in _holders()[signature] if _fits(symptom, signature, line)]


def possible_in(text: str) -> list[str]:
    """The signatures that one line or another of a folded text may hold: quick, of however many lines."""
    return [signature for signature in _patterns() if signature in text]


def _score(sought: str, words: list[str], held: list[str], symptom: Symptom) -> int:
    """3: it is a sign or the key; 2: one holds the other; 1: all words are in one sign; 0: no match."""
    best = 3 if sought == symptom.key else 0
    for sign in _signatures(symptom):
        if sought == sign.text:
            best = max(best, 3)
        elif (sign.text in held and _fits(symptom, sign.text, sought)) or (len(words) > 1 and sought in sign.text):
            best = max(best, 2)
        elif words and sign.words.issuperset(words):
            best = max(best, 1)
    return best


class Beside(msgspec.Struct, frozen=True):
    """A symptom that stands beside another, and the line or message that shows it."""

    symptom: Symptom
    line: str


def decides(symptom: Symptom, seen: Iterable[Beside]) -> Beside | None:
    """The one of those beside a symptom that says which cause it has: the first that the symptom itself names."""
    known = {beside.symptom.key: beside for beside in seen}
    return next((known[key] for key in symptom.decided_by if key in known), None)


def held_by(words: str) -> list[Beside]:
    """The symptoms of which a text holds a message, and not only words of one."""
    text = fold(words)
    return [Beside(symptom, signature) for signature in signatures_in(text) for symptom in symptoms_of(signature, text)]


def find_symptom(words: str) -> list[Symptom]:
    """Symptoms that match, best first: a number ("79", "802"), a phrase, or a whole log line that holds one. Up to three words are
    looked for wherever they stand; more are a message, as is what has a colon.

    A plain number is an Xid or a number inside a signature; "Xid 79" and kernel log lines are an Xid only.
    """
    if not (sought := fold(words)):
        return []
    if named := named_xid(words):
        number = whole(named)
        return [of_line(symptom, number or 0, words) for symptom in symptoms() if number in symptom.xids]
    if is_whole(sought):
        exact = [symptom for symptom in symptoms() if int(sought) in symptom.xids]
        spoken = [s for s in symptoms() if not s.xids and any(sought in sign.words for sign in _signatures(s))]
        return exact + spoken
    held, asked = signatures_in(sought), _words(sought)
    scored = [(symptom, _score(sought, asked, held, symptom)) for symptom in symptoms() if may_say(symptom, sought)]
    best = max((score for _, score in scored), default=0)
    is_message = ":" in words or len(asked) > 3  # a message of its own, which has words in common with another
    least = 2 if best == 3 or is_message else 1
    return [symptom for symptom, score in sorted(scored, key=lambda pair: -pair[1]) if score >= least]
