"""A log -> the symptoms whose messages stand in it."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gpuprov.catalog.symptoms import XID, Symptom, fold, symptoms

DENIED = re.compile(r"\w*\s*:\s*(not active|inactive|no|none|n/a|not supported|disabled|0( us)?)\s*\Z")
"""What follows a message that is the name of a row of nvidia-smi -q, where what it names is not there."""
WORD = re.compile(r"[\w./-]*")
"""What may be in any log: a name or a path, with no blank or colon in it."""
LONGEST_LINE = 4000
"""Characters of a line that are searched."""


class Seen(msgspec.Struct, frozen=True):
    """A symptom in a text: how often, and the first line that shows it."""

    symptom: Symptom
    count: int
    line: str


def symptoms_in(text: str) -> list[Seen]:
    """Each symptom once, the most telling first: Xids, then long messages before short ones. Single words are no messages."""
    lines = [line[:LONGEST_LINE] for line in text.splitlines()]
    xids = _xids(lines)
    known = symptoms()
    found = [Seen(symptom, *_seen(xids, symptom.xids)) for symptom in known if any(n in xids for n in symptom.xids)]
    messages: dict[str, list[Symptom]] = {}
    for symptom in known:
        for said in map(fold, symptom.signatures):
            if not WORD.fullmatch(said):
                messages.setdefault(said, []).append(symptom)
    for said, where in sorted(_spoken(lines, messages).items(), key=lambda pair: -len(pair[0])):
        found += [Seen(symptom, len(where), _short(where[0])) for symptom in messages[said]]
    first: dict[str, Seen] = {}
    for seen in found:
        first.setdefault(seen.symptom.key, seen)
    return list(first.values())


def _xids(lines: Iterable[str]) -> dict[int, list[str]]:
    """The lines that name an Xid, by its number."""
    found: dict[int, list[str]] = {}
    for line in lines:
        if "xid" in line.casefold() and (named := XID.search(line)) and len(named[1]) < 5:
            found.setdefault(int(named[1]), []).append(line)
    return found


def _seen(xids: dict[int, list[str]], numbers: Iterable[int]) -> tuple[int, str]:
    lines = [line for number in numbers for line in xids.get(number, ())]
    return len(lines), _short(lines[0])


def _spoken(lines: Iterable[str], messages: Iterable[str]) -> dict[str, list[str]]:
    """The lines by the message that they hold; where one message is part of another, the longer counts."""
    needle = re.compile("|".join(re.escape(said) for said in sorted(messages, key=len, reverse=True)))
    found: dict[str, list[str]] = {}
    for line in lines:
        folded = fold(line)
        there = [match[0] for match in needle.finditer(folded) if not DENIED.match(folded, match.end())]
        for said in dict.fromkeys(there):
            found.setdefault(said, []).append(line)
    return found


def _short(line: str) -> str:
    line = " ".join(line.split())
    return line if len(line) <= 200 else line[:200] + " ..."
